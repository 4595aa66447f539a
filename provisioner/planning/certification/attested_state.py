"""The attested state of a node: which devices proved themselves, and what firmware they measured.

Evidence differs with every nonce; the state does not. It covers the name, kind and identity (the
serial in its leaf certificate) of each root of trust, GPU and NVSwitch, and the measurements that
have golden values. Others are left out, since an index without a published meaning may count boots.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import rfc8785

from provisioner.checks import attested_firmware, collected_reports, secure_boot
from provisioner.checks.attestation.event_log import BootState, read_boot_states
from provisioner.checks.attestation.spdm_messages import parse_signed_measurements
from provisioner.checks.attested_firmware import JudgedRoot
from provisioner.checks.check import CheckContext, Unreadable
from provisioner.checks.collected_reports import ReportKind, judge_devices
from provisioner.checks.readers.tool_output import read_output
from provisioner.model.base import Record
from provisioner.model.certificate import Certificate, Mismatch, Unacceptable, Verdict
from provisioner.model.cohort import CheckResult, Evidence, Finding, HealthReport
from provisioner.model.matrix import ASKED, AttestationRule, Matrix
from provisioner.model.node import Node, NodeKind
from provisioner.planning.certification.regression import parse_outputs

# ------------------------------------------------------------------------------
# What the last validation proved of a node's firmware, root by root and database by database.
#
# Stored evidence is read by the profile's rule of today; nothing is judged anew in the node.


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


NOT_REQUIRED = "not required by the profile"  # in place of the digest of an attestation
STATE = "state-sha256:"  # in front of the digest of a state that was required
RECORDED = "recorded "  # in front of that of a state that was only recorded


class AttestedRoot(Record):
    """One root of trust, GPU or NVSwitch, without anything that changes with the question."""

    name: str
    kind: str
    identity: str
    values: tuple[tuple[int, str], ...]  # index -> measured value in hex, of the named indices
    proved: bool


class RootChange(Record):
    """A difference of one root of trust between two states."""

    name: str
    detail: str


def find_rule(node: Node, matrix: Matrix) -> AttestationRule:
    """Return the attestation rule of a host's target release and profile."""
    release = matrix.releases.get(node.release)
    profile = release.profiles.get(node.profile) if release else None
    if profile is None or node.kind is not NodeKind.HOST:
        return AttestationRule()
    return profile.attestation


def find_certified_rule(node: Node, certificate: Certificate, matrix: Matrix) -> AttestationRule:
    """Return the rule of the release that a host is certified for.

    A host whose target is another release runs the certified one until its turn to be updated.
    """
    if certificate.release not in matrix.releases:
        return find_rule(node, matrix)
    return find_rule(node.model_copy(update={"release": certificate.release}), matrix)


def list_asked(rule: AttestationRule) -> frozenset[str]:
    """Return the names of the checks that a profile's rule adds to every validation."""
    return frozenset(name for name, policy in _list_policies(rule).items() if policy in ASKED)


def list_required(rule: AttestationRule) -> frozenset[str]:
    """Return the names of the checks without whose result no certificate may be issued."""
    return frozenset(name for name, policy in _list_policies(rule).items() if policy == "require")


def _list_policies(rule: AttestationRule) -> dict[str, str]:
    return {
        attested_firmware.NAME: rule.policy,
        secure_boot.NAME: rule.secure_boot.policy,
        collected_reports.GPUS.name: rule.gpu_reports.policy,
        collected_reports.NVSWITCHES.name: rule.nvswitch_reports.policy,
    }


def read_roots(
    evidence: Mapping[str, Evidence], rule: AttestationRule
) -> tuple[AttestedRoot, ...] | None:
    """Return the roots of trust that gave a signed answer; None if the evidence is unreadable."""
    try:
        judged, _ = attested_firmware.judge_roots(evidence, rule)
    except Unreadable:
        return None
    return tuple(sorted(map(_read_root, judged), key=lambda root: root.name))


def read_devices(
    kind: ReportKind, evidence: Mapping[str, Evidence], context: CheckContext
) -> tuple[AttestedRoot, ...] | None:
    """Return the GPUs or NVSwitches that gave a report; None if the evidence is unreadable."""
    try:
        judged, _ = judge_devices(kind, evidence, context)
    except Unreadable:
        return None
    return tuple(sorted(map(_read_root, judged), key=lambda device: device.name))


def digest_roots(roots: Sequence[AttestedRoot]) -> str:
    """Return the SHA-256 of a state; equal states have equal digests, whatever the nonces were."""
    rows: list[Any] = [
        [root.name, root.kind, root.identity, [[i, value] for i, value in root.values]]
        for root in sorted(roots, key=lambda root: root.name)
    ]
    return hashlib.sha256(rfc8785.dumps(rows)).hexdigest()


def compare_roots(
    before: Sequence[AttestedRoot], after: Sequence[AttestedRoot]
) -> tuple[RootChange, ...]:
    """Return the differences of roots that are in both states, by name.

    A root that gave no answer is reported by the check; one that answers now and did not before is
    a difference.
    """
    had = {root.name: root for root in before}
    changes = []
    for root in after:
        old = had.get(root.name)
        if old is None:
            changes.append(RootChange(name=root.name, detail="it was not certified"))
        elif old.identity != root.identity:
            detail = f"{old.identity or 'none'} was certified, now it is {root.identity or 'none'}"
            changes.append(RootChange(name=root.name, detail=detail))
        else:
            changes += _compare_values(root.name, dict(old.values), dict(root.values))
    return tuple(changes)


def describe_attestation(
    results: Iterable[CheckResult], texts: Mapping[str, str | None], context: CheckContext
) -> str:
    """Return what a certificate says about signed measurements.

    `texts`: the stored evidence of the results by its digest. Required evidence that cannot be read
    any more is named by its own digest, as in earlier releases.
    """
    rows = [
        one
        for result in results
        if (one := _read_result(result, texts.get(result.evidence), context)) is not None
    ]
    required = [row for row in rows if row.is_required]
    recorded = [row for row in rows if not row.is_required]
    sentences = [_describe_rows(required)] if required else []
    if recorded:
        proved = sum(root.proved for row in recorded for root in row.roots or ())
        expected = sum(row.expected for row in recorded)
        count = f"{proved} of {expected}" if any(row.roots for row in recorded) else "none"
        sentences.append(f"{RECORDED}{_describe_rows(recorded)}, {count} proved")
    return "; ".join(sentences) or NOT_REQUIRED


@dataclass(frozen=True)
class _Read:
    """The state that one check's evidence shows."""

    is_required: bool
    expected: int  # how many devices must answer
    evidence: str
    roots: tuple[AttestedRoot, ...] | None


def _read_result(result: CheckResult, text: str | None, context: CheckContext) -> _Read | None:
    """Return the state; None of a check that asks no device, or that the profile does not ask."""
    rule = context.attestation
    outputs = parse_evidence(text)
    if result.check == attested_firmware.NAME and rule.is_asked:
        count = sum(group.count for group in rule.components.values())
        return _Read(rule.is_required, count, result.evidence, read_roots(outputs, rule))
    for kind in collected_reports.KINDS:
        own = kind.find_rule(context)
        if result.check == kind.name and own.is_asked:
            roots = read_devices(kind, outputs, context)
            count = kind.count_expected(context)
            return _Read(own.policy == "require", count, result.evidence, roots)
    return None


def _describe_rows(rows: Sequence[_Read]) -> str:
    lost = [f"sha256:{row.evidence}" for row in rows if row.roots is None]
    roots = [root for row in rows for root in row.roots or ()]
    if len(lost) == len(rows):
        return ", ".join(lost)
    return ", ".join((f"{STATE}{digest_roots(roots)}", *lost))


def parse_evidence(text: str | None) -> Mapping[str, Evidence]:
    """Return stored outputs by command name; nothing if they are not stored or unreadable."""
    return (parse_outputs(text) if text else None) or {}


def _read_root(judged: JudgedRoot) -> AttestedRoot:
    attestation = judged.attestation
    try:
        report = parse_signed_measurements(judged.report)
        measured = {m.index: m.value.hex() for m in report.measurements}
    except Unacceptable:
        measured = {}
    return AttestedRoot(
        name=judged.name,
        kind=attestation.kind,
        identity=attestation.identity,
        values=tuple((i, measured.get(i, "")) for i in sorted(judged.indices)),
        proved=attestation.verdict is Verdict.PROVED,
    )


def _compare_values(
    name: str, before: Mapping[int, str], after: Mapping[int, str]
) -> list[RootChange]:
    changes = []
    for index in sorted(before.keys() | after.keys()):
        old = before.get(index, "") or "none"
        new = after.get(index, "") or "none"
        if old != new:
            detail = f"measurement {index}: {old} was certified, now it is {new}"
            changes.append(RootChange(name=name, detail=detail))
    return changes
