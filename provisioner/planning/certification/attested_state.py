"""The attested state of a node: which roots of trust answered, and what firmware they measured.

Evidence differs with every nonce; the state does not. It covers each root's name, kind and identity
(the serial in its leaf certificate) and the measurements that the profile's rule names. Other
measurements are left out, since an index without a published meaning may count boots.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import rfc8785

from provisioner.checks import attested_firmware, secure_boot
from provisioner.checks.attestation.spdm_messages import parse_signed_measurements
from provisioner.checks.attested_firmware import JudgedRoot
from provisioner.checks.check import Unreadable
from provisioner.model.attestation import Unacceptable, Verdict
from provisioner.model.base import Record
from provisioner.model.health import CheckResult, Evidence, HealthReport
from provisioner.model.matrix import AttestationRule, Matrix
from provisioner.model.node import Node, NodeKind
from provisioner.planning.certification.rejudging import parse_outputs

NOT_REQUIRED = "not required by the profile"  # in place of the digest of an attestation
STATE = "state-sha256:"  # in front of the digest of a state that was required
RECORDED = "recorded "  # in front of that of a state that was only recorded


class AttestedRoot(Record):
    """One root of trust, without anything that changes from one question to the next."""

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


def list_asked(rule: AttestationRule) -> frozenset[str]:
    """Return the names of the checks that a profile's rule adds to every validation."""
    return _name_checks(roots=rule.is_asked, boot=rule.secure_boot.is_asked)


def list_required(rule: AttestationRule) -> frozenset[str]:
    """Return the names of the checks without whose result no certificate may be issued."""
    return _name_checks(roots=rule.is_required, boot=rule.secure_boot.policy == "require")


def _name_checks(*, roots: bool, boot: bool) -> frozenset[str]:
    names = {attested_firmware.NAME: roots, secure_boot.NAME: boot}
    return frozenset(name for name, is_in in names.items() if is_in)


def read_roots(
    evidence: Mapping[str, Evidence], rule: AttestationRule
) -> tuple[AttestedRoot, ...] | None:
    """Return the roots of trust that gave a signed answer; None if the evidence is unreadable."""
    try:
        judged, _ = attested_firmware.judge_roots(evidence, rule)
    except Unreadable:
        return None
    return tuple(sorted((_read_root(one, rule) for one in judged), key=lambda root: root.name))


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
    result: CheckResult | None, text: str | None, rule: AttestationRule
) -> str:
    """Return what a certificate says about signed measurements.

    `text` is the stored evidence of the check's result. Required evidence that cannot be read any
    more is named by its own digest, as in earlier releases.
    """
    if result is None or not rule.is_asked:
        return NOT_REQUIRED
    roots = read_roots(parse_evidence(text), rule)
    if roots is None:
        digest = f"sha256:{result.evidence}"
        return digest if rule.is_required else f"{RECORDED}{digest}, none proved"
    digest = f"{STATE}{digest_roots(roots)}"
    if rule.is_required:
        return digest
    expected = sum(group.count for group in rule.components.values())
    proved = sum(root.proved for root in roots)
    return f"{RECORDED}{digest}, {proved} of {expected} proved"


def find_result(report: HealthReport) -> CheckResult | None:
    """Return the result of the check that asks roots of trust; None if it was not run."""
    return next((r for r in report.results if r.check == attested_firmware.NAME), None)


def parse_evidence(text: str | None) -> Mapping[str, Evidence]:
    """Return stored outputs by command name; nothing if they are not stored or unreadable."""
    return (parse_outputs(text) if text else None) or {}


def _read_root(judged: JudgedRoot, rule: AttestationRule) -> AttestedRoot:
    named = rule.components[judged.pattern].digests
    try:
        report = parse_signed_measurements(judged.report)
        measured = {m.index: m.value.hex() for m in report.measurements}
    except Unacceptable:
        measured = {}
    attestation = judged.attestation
    return AttestedRoot(
        name=judged.name,
        kind=attestation.kind,
        identity=attestation.identity,
        values=tuple((i, measured.get(i, "")) for i in sorted(named)),
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
