"""The attested state of a node: which devices proved themselves, and what firmware they measured.

Evidence differs with every nonce; the state does not. It covers the name, kind and identity (the
serial in its leaf certificate) of each root of trust, GPU and NVSwitch, and the measurements that
have golden values. Others are left out, since an index without a published meaning may count boots.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import rfc8785

from provisioner.checks import attested_firmware, collected_reports, secure_boot
from provisioner.checks.attestation.event_log import BootState, read_boot_states
from provisioner.checks.attestation.spdm_messages import parse_signed_measurements
from provisioner.checks.attested_firmware import (
    JudgedRoot,
    name_row,
    read_report,
    read_rows,
    verify_row,
)
from provisioner.checks.check import CheckContext, Unreadable
from provisioner.checks.collected_reports import KINDS, ReportKind, judge_devices
from provisioner.checks.readers.tool_output import read_output
from provisioner.model.base import Record
from provisioner.model.certificate import (
    Attestation,
    Certificate,
    Effect,
    FindingName,
    Mismatch,
    Unacceptable,
    Verdict,
)
from provisioner.model.cohort import CheckResult, Evidence, Finding, HealthReport
from provisioner.model.matrix import (
    ASKED,
    AttestationRule,
    AttestedComponents,
    Matrix,
    TrustedMaker,
)
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


# ------------------------------------------------------------------------------
# Golden values that a person admits from witness nodes: what to admit, and what to leave out.
#
# A signed answer of a witness proves whose it is and that it is new, not that its firmware is good:
# that remains the reviewer's decision. An index that changed from one question to the next counts
# something, and one with another value at each root of a group names the device: both are left out.


_WITHOUT_REFERENCE = frozenset(
    {FindingName.REFERENCE_MISSING, FindingName.RIM_NOT_ADMITTED, FindingName.RIM_OTHER}
)
_NUMBER = re.compile(r"_\d+$")


class WitnessedGroup(Record):
    """The roots of one glob: what may be admitted for them, and which indices are left out."""

    pattern: str
    roots: tuple[str, ...]
    questions: int  # fewest of one root: with one, an index that counts is not recognised
    digests: Mapping[int, tuple[str, ...]]
    counting: tuple[int, ...] = ()  # changed from one question to the next
    individual: tuple[int, ...] = ()  # with another value at each root

    def write_rule(self, learned_from: str) -> AttestedComponents:
        """Return the rule of the matrix that admits these values."""
        return AttestedComponents(
            count=len(self.roots), digests=dict(self.digests), learned_from=learned_from
        )


class Witnessed(Record):
    """The result over all evidence; with a refusal nothing should be admitted."""

    groups: tuple[WitnessedGroup, ...]
    refusals: tuple[tuple[str, str], ...] = ()  # root, and why its answer proves nothing


def collect_witnessed(
    questions: Sequence[Mapping[str, Evidence]],
    patterns: Sequence[str] = (),
    makers: Sequence[TrustedMaker] = (),
) -> Witnessed:
    """Return what the answers of witnesses show, by glob. Raises `Unreadable`.

    `questions`: the stored evidence of one or several questions, of one or several nodes.
    `patterns`: globs of the roots; by default one for the roots whose names differ by a number.
    """
    answers: dict[tuple[str, str], list[Mapping[int, str]]] = {}
    refusals: list[tuple[str, str]] = []
    for evidence in questions:
        rows, asked_at = read_rows(evidence)
        for row in rows:
            name = name_row(row)
            if patterns and not any(fnmatchcase(name, p) for p in patterns):
                continue
            if not isinstance(row.get("signed"), str):
                refusals.append((name, f"it gave no signed answer: {row.get('problem')}"[:200]))
                continue
            result = verify_row(row, makers, {}, "", asked_at)
            if reason := _find_reason(result):
                refusals.append((name, reason))
                continue
            answers.setdefault((name, result.identity), []).append(_read_values(read_report(row)))
    names = sorted({name for name, _ in answers})
    globs = list(patterns) or list(_find_globs(names))
    groups = (_group(glob, answers) for glob in globs)
    return Witnessed(groups=tuple(g for g in groups if g is not None), refusals=tuple(refusals))


def collect_devices(
    questions: Sequence[Mapping[str, Evidence]], makers: Sequence[TrustedMaker] = ()
) -> tuple[Mapping[str, WitnessedGroup], tuple[tuple[str, str], ...]]:
    """Return what reports of GPUs and NVSwitches show, by the name of their rule, and the refusals.

    Raises `Unreadable`.
    """
    asked = {"policy": "record"}
    rule = {"makers": tuple(makers), **{kind.name: asked for kind in KINDS}}
    context = CheckContext(attestation=AttestationRule.model_validate(rule))
    groups: dict[str, WitnessedGroup] = {}
    refusals: list[tuple[str, str]] = []
    for kind in KINDS:
        answers: dict[tuple[str, str], list[Mapping[int, str]]] = {}
        for evidence in (q for q in questions if kind.command.name in q):
            for device in judge_devices(kind, evidence, context)[0]:
                if reason := _find_reason(device.attestation):
                    refusals.append((device.name, reason))
                    continue
                key = (device.name, device.attestation.identity)
                answers.setdefault(key, []).append(_read_values(device.report))
        group = _group("*", answers)
        if group is not None:
            groups[kind.name] = group
    return groups, tuple(refusals)


def _find_reason(result: Attestation) -> str:
    """Return why an answer proves nothing; that no golden values exist yet is no reason."""
    return "; ".join(
        str(f)
        for f in result.findings
        if f.effect is not Effect.NOTES and f.name not in _WITHOUT_REFERENCE
    )[:300]


def _read_values(report: bytes) -> Mapping[int, str]:
    try:
        return {m.index: m.value.hex() for m in parse_signed_measurements(report).measurements}
    except Unacceptable as refused:  # it was parsed before
        raise Unreadable(str(refused.finding)) from None


def _find_globs(names: Sequence[str]) -> Iterator[str]:
    """Return a glob for each group of names that differ by their last number."""
    stems: dict[str, list[str]] = {}
    for name in names:
        stems.setdefault(_NUMBER.sub("_", name), []).append(name)
    for stem, members in stems.items():
        yield members[0] if len(members) == 1 else f"{stem}*"


def _group(
    pattern: str, answers: Mapping[tuple[str, str], Sequence[Mapping[int, str]]]
) -> WitnessedGroup | None:
    mine = {key: rows for key, rows in answers.items() if fnmatchcase(key[0], pattern)}
    if not mine:
        return None
    common = set.intersection(*(set(values) for rows in mine.values() for values in rows))
    digests: dict[int, tuple[str, ...]] = {}
    counting: list[int] = []
    individual: list[int] = []
    for index in sorted(common):
        of_roots = [{values[index] for values in rows} for rows in mine.values()]
        distinct = set().union(*of_roots)
        if any(len(values) > 1 for values in of_roots):
            counting.append(index)
        elif len(mine) > 1 and len(distinct) == len(mine):
            individual.append(index)
        else:
            digests[index] = tuple(sorted(distinct))
    return WitnessedGroup(
        pattern=pattern,
        roots=tuple(sorted({name for name, _ in mine})),
        questions=min(len(rows) for rows in mine.values()),
        digests=digests,
        counting=tuple(counting),
        individual=tuple(individual),
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
