"""What the last validation proved of a node's firmware, root by root and database by database.

Stored evidence is read by the profile's rule of today; nothing is judged anew in the node.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.checks import attested_firmware, collected_reports, secure_boot
from provisioner.checks.attestation.boot_databases import BootState, read_boot_states
from provisioner.checks.attested_firmware import JudgedRoot
from provisioner.checks.check import CheckContext, Unreadable
from provisioner.checks.readers.tool_output import read_output
from provisioner.model.attestation import Mismatch
from provisioner.model.base import Record
from provisioner.model.health import CheckResult, Evidence, Finding, HealthReport
from provisioner.model.matrix import AttestationRule

CHECKS = (
    attested_firmware.NAME,
    secure_boot.NAME,
    *(kind.name for kind in collected_reports.KINDS),
)


class ProvedRoot(Record):
    """One device that gave a signed answer, and the comparison with its golden values."""

    component: str
    identity: str  # serial in its leaf certificate
    verdict: str  # proved, unproved, contradicted
    golden: int  # values that are compared
    matched: int
    mismatches: tuple[Mismatch, ...]
    remarks: tuple[str, ...]  # findings, in words


class ShownDatabase(Record):
    """One database of Secure Boot: its digest, and the digests that the matrix admits."""

    database: str
    entries: int
    entries_sha256: str
    admitted_digests: tuple[str, ...]  # () if it is not compared
    differs: bool


class ShownBoot(Record):
    """Secure Boot of one system."""

    source: str
    secure_boot: bool | None  # of this boot
    mode: str
    databases: tuple[ShownDatabase, ...]


def list_results(report: HealthReport) -> tuple[CheckResult, ...]:
    """Return the results of the checks of signed evidence and of Secure Boot."""
    return tuple(r for r in report.results if r.check in CHECKS)


def list_differences(report: HealthReport) -> tuple[Finding, ...]:
    """Return the findings of these checks, whether they cost the certificate or not."""
    return tuple(f for r in list_results(report) for f in r.findings)


def summarise_roots(
    evidence: Mapping[str, Evidence], rule: AttestationRule
) -> tuple[ProvedRoot, ...]:
    """Return each root with a signed answer; none if the evidence cannot be read."""
    try:
        judged, _ = attested_firmware.judge_roots(evidence, rule)
    except Unreadable:
        return ()
    return tuple(map(_summarise_root, judged))


def summarise_devices(
    evidence: Mapping[str, Evidence], context: CheckContext
) -> tuple[ProvedRoot, ...]:
    """Return each GPU and NVSwitch with a report; none of a kind whose evidence is unreadable."""
    rows: list[ProvedRoot] = []
    for kind in collected_reports.KINDS:
        try:
            judged, _ = collected_reports.judge_devices(kind, evidence, context)
        except Unreadable:
            continue
        rows += map(_summarise_root, judged)
    return tuple(rows)


def _summarise_root(root: JudgedRoot) -> ProvedRoot:
    result = root.attestation
    return ProvedRoot(
        component=root.name,
        identity=result.identity,
        verdict=result.verdict.value,
        golden=result.measurements.golden,
        matched=result.measurements.matched,
        mismatches=result.mismatches,
        remarks=tuple(str(f) for f in result.findings),
    )


def summarise_boot(
    evidence: Mapping[str, Evidence], rule: AttestationRule
) -> tuple[ShownBoot, ...]:
    """Return Secure Boot of each system; none if the evidence cannot be read."""
    try:
        states = read_boot_states(read_output(evidence, secure_boot.COMMAND))
    except Unreadable:
        return ()
    return tuple(_summarise_state(state, rule) for state in states)


def _summarise_state(state: BootState, rule: AttestationRule) -> ShownBoot:
    pinned: Mapping[str, tuple[str, ...]] = {
        str(name): accepted for name, accepted in rule.secure_boot.databases.items()
    }
    return ShownBoot(
        source=state.source,
        secure_boot=state.running,
        mode=state.mode,
        databases=tuple(
            ShownDatabase(
                database=name,
                entries=shown.entries,
                entries_sha256=shown.sha256,
                admitted_digests=pinned.get(name, ()),
                differs=bool(pinned.get(name)) and shown.sha256 not in pinned[name],
            )
            for name, shown in state.databases.items()
        ),
    )
