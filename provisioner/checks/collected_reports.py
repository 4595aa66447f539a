"""GPUs and NVSwitches prove by their own signatures which firmware and driver they run.

Run where the node's profile requires or records it. The host carries the answers, collected there
by NVIDIA's `nvattest`, and cannot forge them: each device signs our nonce and its measurements with
a key that its maker certified. Versions are those of the matrix's pins, golden values those of the
manifests that the pins name, or those that a person admitted from a witness node.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

from provisioner.checks.attestation.device_reports import Evidence as Report
from provisioner.checks.attestation.device_reports import (
    Expectation,
    find_shared_identities,
    verify_report,
)
from provisioner.checks.attestation.evidence_containers import (
    PinnedVersions,
    read_evidence_file,
    select_pinned,
)
from provisioner.checks.attestation.reference_manifests import ReferenceManifest, read_manifest
from provisioner.checks.attestation.trust_anchors import TrustAnchor, TrustStore
from provisioner.checks.attested_firmware import (
    JudgedRoot,
    explain_result,
    find_copies,
    parse_answers,
)
from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.tool_output import (
    parse_json,
    read_output,
    require_list,
    require_object,
)
from provisioner.model.certificate import Attestation, FindingName, contradicts, judge_findings
from provisioner.model.cohort import Evidence, Finding, Gate, Severity
from provisioner.model.matrix import GpuReportRule, ReportRule

NONCE = "NONCE"  # in a command's line
DEVICES_MAX = 128
MANIFESTS_MAX = 64
ANSWERS_TRIED_MAX = 64  # lines of one output that begin as an answer does
NOT_INSTALLED = 127  # of a shell: there is no such program
# the first releases know neither variable; later ones print JSON only with it, and log to stdout
_TOOL = "NVAT_FORMAT=json NVAT_LOG_LEVEL=error nvattest collect-evidence --device "
# results of nvattest (NVIDIA/attestation-sdk 11b2bfeb, nvat.h.in) that a person can act on
_REMEDIES = {
    500: "NVML did not start: the GPU driver is not loaded",
    502: "a GPU of the host gives no reports",
    509: "the GPUs run neither in mode CC nor in PPCIE, outside of which NVML gives no reports",
    600: "NSCQ did not start: libnvidia-nscq is not installed, or no NVSwitch answers",
    602: "an NVSwitch of the host gives no reports",
    607: "Corelib did not start: libcorelib.so.1 is not installed",
}
_CORELIB = " --gpu-evidence-source corelib --gpu-architecture blackwell"
_NONCE = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ReportKind:
    name: str  # of the check
    kind: str  # of a report, by the device's certificate
    noun: str
    command: Command

    def find_rule(self, context: CheckContext) -> ReportRule:
        """Return the profile's rule for these devices."""
        rule = context.attestation
        return rule.gpu_reports if self is GPUS else rule.nvswitch_reports

    def count_expected(self, context: CheckContext) -> int:
        """Return how many must answer: never none."""
        listed = context.gpus if self is GPUS else context.nvswitches
        return max(1, self.find_rule(context).count or listed)


def _make_kind(name: str, device: str, noun: str) -> ReportKind:
    line = f"{_TOOL}{device} --nonce {NONCE}"
    command = Command(name=name, line=line, limit_s=300.0, asks=True)
    return ReportKind(name, f"{device}.report", noun, command)


GPUS = _make_kind("gpu_reports", "gpu", "GPU")
NVSWITCHES = _make_kind("nvswitch_reports", "nvswitch", "NVSwitch")
KINDS = (GPUS, NVSWITCHES)


def wrap_output(
    printed: str,
    exit_code: int,
    nonce: str,
    asked_at: float,
    manifests: Sequence[tuple[str, bytes]],
    answers: Sequence[bytes],
) -> str:
    """Return the text that is stored as evidence: the output, and everything it is judged by."""
    return json.dumps(
        {
            "asked_at": asked_at,
            "nonce": nonce,
            "exit_code": exit_code,
            "printed": printed,
            "manifests": [[name, base64.b64encode(raw).decode()] for name, raw in manifests],
            "ocsp": [base64.b64encode(raw).decode() for raw in answers],
        }
    )


def judge_devices(
    kind: ReportKind, evidence: Mapping[str, Evidence], context: CheckContext
) -> tuple[tuple[JudgedRoot, ...], tuple[Finding, ...]]:
    """Return the devices that gave a report, and findings about those that did not.

    Raises `Unreadable` if the evidence as a whole cannot be judged.
    """
    rule = kind.find_rule(context)
    if not rule.is_asked:
        raise Unreadable(f"the profile asks for no reports of {kind.noun}s")
    document = require_object(
        parse_json(read_output(evidence, kind.command), "nvattest"), "evidence"
    )
    expected = _expect(kind, document, rule, context)
    reports = read_reports(document)
    results = [_judge_kind(kind, verify_report(report, expected)) for report in reports]
    settled = find_shared_identities(results)
    judged = tuple(
        JudgedRoot(_name(kind, result, place), result.compared, report.report, result)
        for place, (report, result) in enumerate(zip(reports, settled, strict=True))
    )
    return judged, tuple(_find_missing(kind, len(judged), context))


def read_reports(document: Mapping[str, Any]) -> tuple[Report, ...]:
    """Return the reports that `nvattest` printed. Raises `Unreadable` if it printed none."""
    printed = document.get("printed")
    code = document.get("exit_code")
    if code == NOT_INSTALLED:
        raise Unreadable("nvattest is not installed in the host")
    if not isinstance(printed, str):
        raise Unreadable("the evidence has no output of nvattest")
    answer = find_answer(printed)
    if answer is None:
        start = " ".join(printed[:200].split())
        raise Unreadable(f"nvattest printed no evidence (exit code {code}): {start}")
    result = answer.get("result_code", 0)
    if result != 0 or not isinstance(result, int):
        message = answer.get("result_message")
        reason = _REMEDIES.get(result) if isinstance(result, int) else None
        raise Unreadable(f"nvattest: result {str(result)[:20]}: {reason or str(message)[:120]}")
    reports = read_evidences(answer)
    if len(reports) > DEVICES_MAX:
        raise Unreadable(f"nvattest printed more than {DEVICES_MAX} reports")
    return tuple(replace(report, source=f"#{n}") for n, report in enumerate(reports))


def read_evidences(answer: Mapping[str, Any]) -> tuple[Report, ...]:
    evidences = answer.get("evidences")
    if not isinstance(evidences, list):
        return ()
    contents = read_evidence_file(json.dumps(evidences).encode())
    return (*contents.paired, *(Report(raw) for raw in contents.reports))


def find_answer(printed: str) -> Mapping[str, Any] | None:
    """Return the object that nvattest prints, among the lines that it logs."""
    decoder = json.JSONDecoder()
    for begin in islice(re.finditer(r"^\{", printed, re.MULTILINE), ANSWERS_TRIED_MAX):
        try:
            document, _ = decoder.raw_decode(printed, begin.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(document, dict) and "evidences" in document:
            return document
    return None


def select_admitted(kind: ReportKind, context: CheckContext) -> PinnedVersions:
    """Return the versions and manifests that count; a bundle's contents where a part has no pin."""
    versions = {**context.bundled, **context.pins}
    return select_pinned(versions, context.references, kind.find_rule(context).references)


def _expect(
    kind: ReportKind, document: Mapping[str, Any], rule: ReportRule, context: CheckContext
) -> Expectation:
    """Return what the reports are judged by. Raises `Unreadable` if our nonce is not there."""
    nonce = document.get("nonce")
    if not isinstance(nonce, str) or not _NONCE.fullmatch(nonce):
        raise Unreadable("the evidence has no nonce of ours")
    asked_at = document.get("asked_at")
    if isinstance(asked_at, bool) or not isinstance(asked_at, (int, float)):
        raise Unreadable("the evidence does not say when it was asked for")
    makers = context.attestation.makers
    added = tuple(TrustAnchor(m.name, m.spki_sha256, m.source, added="the matrix") for m in makers)
    trust = TrustStore().with_added(added)
    pinned = select_admitted(kind, context)
    # digests stand in place of manifests: one kind of device is judged by one of the two
    manifests = (
        () if rule.digests else _read_manifests(document, trust, asked_at, pinned.admitted_at)
    )
    return Expectation(
        nonce=bytes.fromhex(nonce),
        at=asked_at,
        trust=trust,
        manifests=manifests,
        digests=rule.digests,
        digests_id=rule.learned_from or f"the profile's {kind.name}",
        admitted=pinned.manifests,
        versions=pinned.versions,
        answers=parse_answers(document.get("ocsp")),
        revocation=context.attestation.revocation,
    )


def _read_manifests(
    document: Mapping[str, Any], trust: TrustStore, at: float, admitted_at: Mapping[str, float]
) -> tuple[ReferenceManifest, ...]:
    """Parse and verify the manifests that were at hand."""
    manifests = []
    for row in require_list(document.get("manifests"), "manifests")[:MANIFESTS_MAX]:
        pair = require_list(row, "manifest")
        if len(pair) != 2 or not all(isinstance(one, str) for one in pair):
            raise Unreadable("a manifest of the evidence has another form")
        try:
            raw = base64.b64decode(pair[1], validate=True)
        except ValueError:
            raise Unreadable("a manifest of the evidence is no Base64") from None
        when = admitted_at.get(hashlib.sha256(raw).hexdigest(), at)
        manifests.append(read_manifest(raw, pair[0], trust.references, at, when))
    return tuple(manifests)


def _judge_kind(kind: ReportKind, result: Attestation) -> Attestation:
    """Contradict a genuine report of another kind of device."""
    if result.kind in (kind.kind, "unknown") or not result.identity:
        return result
    detail = f"a {kind.noun} was asked, and {result.component} answers"
    findings = (*result.findings, contradicts(FindingName.IDENTITY, detail))
    return result.model_copy(update={"findings": findings, "verdict": judge_findings(findings)})


def _name(kind: ReportKind, result: Attestation, place: int) -> str:
    """Return the device's name: what it is and its serial, as it signed them."""
    return result.component if result.identity else f"{kind.noun} report #{place}"


def _find_missing(kind: ReportKind, answered: int, context: CheckContext) -> Iterator[Finding]:
    expected = kind.count_expected(context)
    if answered < expected:
        detail = f"{FindingName.ATTESTER_MISSING.value}: {kind.noun}s that give a report"
        yield fault("host", Severity.POWER_CYCLE, detail, answered, expected)
    elif answered > expected:
        detail = f"more {kind.noun}s give a report than the host has"
        yield fault("host", Severity.CONFIG, detail, answered, expected)


def _findings(
    kind: ReportKind, evidence: Mapping[str, Evidence], context: CheckContext
) -> Iterator[Finding]:
    judged, missing = judge_devices(kind, evidence, context)
    yield from missing
    yield from find_copies(judged)
    for device in judged:
        yield from explain_result(device.name, device.attestation)


def _lines(kind: ReportKind, context: CheckContext) -> tuple[Command, ...]:
    rule = kind.find_rule(context)
    if isinstance(rule, GpuReportRule) and rule.library == "corelib":
        return (kind.command.model_copy(update={"line": kind.command.line + _CORELIB}),)
    return (kind.command,)


def _make_check(kind: ReportKind) -> Check:
    return Check(
        kind.name,
        Gate.A,
        (kind.command,),
        partial(_findings, kind),
        lines=partial(_lines, kind),
        on_request=True,
        is_recorded=lambda context: kind.find_rule(context).policy == "record",
    )


CHECK_GPUS = _make_check(GPUS)
CHECK_NVSWITCHES = _make_check(NVSWITCHES)
