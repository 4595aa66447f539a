"""The roots of trust behind the BMC prove by their own signatures which firmware they started.

Run where the node's profile requires or records attestation. The BMC carries the answers and
cannot forge them: each component signs our nonce and its measurements with a key that its maker
certified, and the matrix names the accepted values. A component that does not answer fails like one
that lies.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from cryptography.x509.ocsp import OCSPResponse

from provisioner.checks.attestation.certificate_chains import (
    ANSWERS_MAX,
    parse_answer,
    parse_certificates,
)
from provisioner.checks.attestation.device_reports import Evidence as Report
from provisioner.checks.attestation.device_reports import (
    Expectation,
    find_shared_identities,
    verify_report,
)
from provisioner.checks.attestation.trust_anchors import TrustAnchor, TrustStore
from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.tool_output import (
    parse_json,
    read_output,
    require_list,
    require_object,
)
from provisioner.model.certificate import Attestation, Effect, FindingName, Unacceptable, Verdict
from provisioner.model.cohort import Evidence, Finding, Gate, Severity
from provisioner.model.matrix import AttestationRule, AttestedComponents, TrustedMaker

NAME = "attestation"
SOURCE = "signed measurements of "  # then the globs of the components, separated by spaces
COMPONENTS_MAX = 64
_NONCE = re.compile(r"[0-9a-f]{64}")
_COMMAND = Command(name="measurements", line=SOURCE, limit_s=3600.0, bmc=True)


def _lines(context: CheckContext) -> tuple[Command, ...]:
    line = SOURCE + " ".join(sorted(context.attestation.components))
    return (_COMMAND.model_copy(update={"line": line}),)


@dataclass(frozen=True)
class Revocation:
    """The OCSP answers at hand, and the effect of a missing one."""

    answers: tuple[OCSPResponse, ...] = ()
    policy: str = "record"


@dataclass(frozen=True)
class JudgedRoot:
    """A root of trust, GPU or NVSwitch that gave a signed answer: its report and the verdict."""

    name: str
    indices: tuple[int, ...]  # of measurements that have a golden value
    report: bytes
    attestation: Attestation


def judge_roots(
    evidence: Mapping[str, Evidence], rule: AttestationRule
) -> tuple[tuple[JudgedRoot, ...], tuple[Finding, ...]]:
    """Return the roots with a signed answer, and findings about those without one.

    Raises `Unreadable` if the evidence as a whole cannot be judged.
    """
    if not rule.is_asked:
        raise Unreadable("the profile names no components that must attest")
    rows, asked_at = read_rows(evidence)
    document = require_object(parse_json(read_output(evidence, _COMMAND), "BMC"), "measurements")
    answers = parse_answers(document.get("ocsp"))
    judged: list[JudgedRoot] = []
    missing: list[Finding] = []
    for pattern, expected in sorted(rule.components.items()):
        mine = [row for row in rows if fnmatchcase(name_row(row), pattern)]
        missing += _find_missing(pattern, expected, mine)
        for row in mine:
            if isinstance(row.get("signed"), str):
                result = verify_row(
                    row,
                    rule.makers,
                    expected.digests,
                    expected.learned_from or pattern,
                    asked_at,
                    Revocation(answers, rule.revocation),
                )
                judged.append(
                    JudgedRoot(name_row(row), tuple(expected.digests), read_report(row), result)
                )
    settled = find_shared_identities([root.attestation for root in judged])
    return (
        tuple(
            replace(root, attestation=result) for root, result in zip(judged, settled, strict=True)
        ),
        tuple(missing),
    )


def read_rows(evidence: Mapping[str, Evidence]) -> tuple[tuple[Mapping[str, Any], ...], float]:
    """Return a row for each root that was asked, and when. Raises `Unreadable`."""
    document = require_object(parse_json(read_output(evidence, _COMMAND), "BMC"), "measurements")
    rows = require_list(document.get("components"), "components")[:COMPONENTS_MAX]
    asked_at = document.get("asked_at")
    if not isinstance(asked_at, (int, float)):
        raise Unreadable("the evidence does not say when it was asked for")
    return tuple(require_object(row, "component") for row in rows), asked_at


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    judged, missing = judge_roots(evidence, context.attestation)
    yield from missing
    yield from find_copies(judged)
    for root in judged:
        yield from explain_result(root.name, root.attestation)


def name_row(row: Mapping[str, Any]) -> str:
    name = row.get("component")
    return name[:80] if isinstance(name, str) else ""


def _find_missing(
    pattern: str, expected: AttestedComponents, rows: list[Mapping[str, Any]]
) -> Iterator[Finding]:
    """Name each component that gave no signed answer, and a group with fewer than expected."""
    answered = 0
    for row in rows:
        if isinstance(row.get("signed"), str):
            answered += 1
            continue
        problem = row.get("problem")
        detail = f"it gave no signed measurements: {problem}"[:200]
        yield fault(name_row(row), Severity.POWER_CYCLE, detail)
    if answered < expected.count:
        detail = f"{FindingName.ATTESTER_MISSING.value}: {pattern}"
        yield fault("HGX", Severity.POWER_CYCLE, detail, answered, expected.count)


def verify_row(
    row: Mapping[str, Any],
    makers: Sequence[TrustedMaker],
    digests: Mapping[int, tuple[str, ...]],
    digests_id: str,
    asked_at: float,
    revocation: Revocation = Revocation(),
) -> Attestation:
    """Return the verdict about one signed answer. Raises `Unreadable` if our nonce is not in it."""
    nonce = row.get("nonce")
    chain = row.get("certificates")
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise Unreadable(f"{name_row(row)}: the evidence has no nonce of ours")
    problem = None
    try:
        certificates = parse_certificates(str(chain or "").encode())
    except Unacceptable as refused:
        certificates = ()
        problem = refused.finding
    added = tuple(TrustAnchor(m.name, m.spki_sha256, m.source, added="the matrix") for m in makers)
    expectation = Expectation(
        nonce=bytes.fromhex(nonce),
        at=asked_at,
        trust=TrustStore().with_added(added),
        digests=digests,
        digests_id=digests_id,
        answers=revocation.answers,
        revocation=revocation.policy,
    )
    return verify_report(Report(read_report(row), certificates, problem), expectation)


def parse_answers(rows: object) -> tuple[OCSPResponse, ...]:
    """Parse the OCSP answers that were at hand; one that cannot be read is no answer."""
    answers = []
    for row in rows[:ANSWERS_MAX] if isinstance(rows, list) else ():
        try:
            answers.append(parse_answer(base64.b64decode(str(row), validate=True)))
        except ValueError:
            continue
    return tuple(answers)


def read_report(row: Mapping[str, Any]) -> bytes:
    """Return the signed message; nothing if it is no Base64."""
    try:
        return base64.b64decode(str(row.get("signed")), validate=True)
    except (binascii.Error, ValueError):
        return b""


def find_copies(roots: Sequence[JudgedRoot]) -> Iterator[Finding]:
    """Refuse two components with one identity, whatever their nonces were."""
    owners: dict[str, str] = {}
    for root in roots:
        identity = root.attestation.identity
        if not identity:
            continue
        if identity in owners:
            detail = f"it answers with the identity of {owners[identity]}"
            yield fault(root.name, Severity.ISOLATE, detail, identity)
        owners.setdefault(identity, root.name)


def explain_result(name: str, result: Attestation) -> Iterator[Finding]:
    """State every mismatch with index, golden and measured value, and each other finding."""
    if result.verdict is Verdict.PROVED:
        return
    for mismatch in result.mismatches:
        detail = f"measurement {mismatch.index} is not the one that {mismatch.reference} admits"
        golden = " or ".join(mismatch.golden[:4])
        yield fault(name, Severity.ISOLATE, detail, mismatch.measured or "none", golden)
    for finding in result.findings:
        if finding.name is FindingName.MEASUREMENT or finding.effect is Effect.NOTES:
            continue
        lies = finding.effect is Effect.CONTRADICTS
        yield fault(name, Severity.ISOLATE if lies else Severity.CONFIG, str(finding))


CHECK = Check(
    NAME,
    Gate.A,
    (_COMMAND,),
    _findings,
    lines=_lines,
    on_request=True,
    is_recorded=lambda context: context.attestation.policy == "record",
)
