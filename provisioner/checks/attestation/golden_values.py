"""The comparison of measurements with golden values, index by index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.checks.attestation import opaque_data as opaque_types
from provisioner.checks.attestation.opaque_data import OpaqueData
from provisioner.checks.attestation.reference_choice import Choice
from provisioner.checks.attestation.spdm_messages import SignedMeasurements
from provisioner.model.attestation import (
    Finding,
    FindingName,
    Mismatch,
    contradicts,
    notes,
    unproves,
)

NVDEC_INDEX = 35  # in a manifest: the decoder's measurement, meaningful only while it is enabled


@dataclass(frozen=True)
class Compared:
    """The result over all golden values that apply."""

    golden: int = 0
    matched: int = 0
    mismatches: tuple[Mismatch, ...] = ()
    findings: tuple[Finding, ...] = ()
    references: tuple[tuple[str, str], ...] = ()  # id and SHA-256
    indices: tuple[int, ...] = ()  # of the golden values, in the report


@dataclass(frozen=True)
class _Golden:
    values: tuple[bytes, ...]
    reference: str
    name: str = ""


def compare_measurements(
    report: SignedMeasurements,
    opaque: OpaqueData,
    choice: Choice,
    digests: Mapping[int, tuple[str, ...]],
    digests_id: str,
) -> Compared:
    """Compare every golden value; an index that no reference names is ignored."""
    golden, findings = _collect(opaque, choice)
    references = tuple((m.rim_id, m.sha256) for m in choice.manifests)
    if digests:
        golden |= {
            i: _Golden(tuple(bytes.fromhex(d) for d in accepted), digests_id)
            for i, accepted in digests.items()
        }
    elif not choice.manifests and not choice.findings:
        detail = "neither a manifest nor admitted digests name its golden values"
        findings.append(unproves(FindingName.REFERENCE_MISSING, detail))
    mismatches = []
    for index in sorted(golden):
        value = report.value_at(index)
        if value not in golden[index].values:
            mismatches.append(_mismatch(index, golden[index], value))
            findings.append(contradicts(FindingName.MEASUREMENT, describe_mismatch(mismatches[-1])))
    matched = len(golden) - len(mismatches)
    return Compared(
        len(golden), matched, tuple(mismatches), tuple(findings), references, tuple(sorted(golden))
    )


def describe_mismatch(mismatch: Mismatch) -> str:
    """Return index, golden and measured value for a person, digests shortened."""
    golden = " or ".join(_short(g) for g in mismatch.golden[:4])
    measured = _short(mismatch.measured) if mismatch.measured else "no value"
    return f"index {mismatch.index}: golden {golden}, measured {measured} ({mismatch.reference})"


def _short(digest: str) -> str:
    return digest if len(digest) <= 24 else f"{digest[:24]}…"


def _mismatch(index: int, golden: _Golden, value: bytes | None) -> Mismatch:
    return Mismatch(
        index=index,
        reference=golden.reference,
        golden=tuple(v.hex() for v in golden.values),
        measured="" if value is None else value.hex(),
    )


def _collect(opaque: OpaqueData, choice: Choice) -> tuple[dict[int, _Golden], list[Finding]]:
    """Return the golden values by the report's index, which is one more than the manifest's."""
    golden: dict[int, _Golden] = {}
    findings: list[Finding] = []
    for manifest in choice.manifests:
        for value in manifest.golden:
            if value.index == NVDEC_INDEX and manifest.product != "LS10":
                finding = _check_nvdec(opaque)
                if finding is not None:
                    findings.append(finding)
                    continue
            if value.index + 1 in golden:
                detail = f"index {value.index} is active in two manifests"
                findings.append(unproves(FindingName.RIM_STRUCTURE, detail))
            golden[value.index + 1] = _Golden(value.values, manifest.rim_id, value.name)
    return golden, findings


def _check_nvdec(opaque: OpaqueData) -> Finding | None:
    """Return why the decoder's measurement is left out; None if it counts."""
    status = opaque.number(opaque_types.NVDEC0)
    if status == opaque_types.NVDEC_ENABLED:
        return None
    if status == opaque_types.NVDEC_DISABLED:
        return notes(FindingName.NVDEC_SKIPPED, f"index {NVDEC_INDEX} is skipped")
    shown = "absent" if status is None else f"0x{status:02x}"
    return unproves(FindingName.NVDEC, f"NVDEC0 is {shown}: index {NVDEC_INDEX} cannot be judged")
