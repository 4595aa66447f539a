"""Which manifests apply to a device: by product, version and board, never by file name alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from provisioner.checks.attestation.reference_manifests import ReferenceManifest
from provisioner.model.certificate import Effect, Finding, FindingName, unproves

# NV_GPU_VBIOS_1010_0200_882_96005E0001, or the file 1010_0200_882_96005E0001_PROD
_BOARD = re.compile(
    r"(?:^|_)([0-9A-Z]{4}_[0-9A-Z]{4}_[0-9A-Z]{3})_[0-9A-F]{10}(?:_|$)", re.IGNORECASE
)
_VBIOS = re.compile(r"^[0-9A-F]{2}(?:\.[0-9A-F]{2}){4}$", re.IGNORECASE)
NEEDED = {"gpu.report": ("driver", "vbios"), "nvswitch.report": ("vbios",)}


@dataclass(frozen=True)
class Device:
    """A device as its signed report describes it."""

    product: str
    kind: str
    identity: str
    versions: tuple[tuple[str, str], ...]
    board: str = ""  # project, SKU and chip SKU: 1010_0200_882; "" if not stated

    @property
    def label(self) -> str:
        """The device for a person: product, kind and identity."""
        noun = {"gpu.report": "GPU", "nvswitch.report": "NVSwitch"}.get(self.kind, "")
        return " ".join(w for w in (self.product, noun, self.identity) if w) or "unknown"


@dataclass(frozen=True)
class Choice:
    """The manifests whose golden values apply, and the findings about the choice."""

    manifests: tuple[ReferenceManifest, ...] = ()
    findings: tuple[Finding, ...] = ()
    complete: bool = False  # each version that the device states has its manifest


def choose_references(
    device: Device, manifests: Sequence[ReferenceManifest], admitted: frozenset[str]
) -> Choice:
    """Return the manifests that apply to this device, with the reasons against the others."""
    chosen: list[ReferenceManifest] = []
    findings: list[Finding] = []
    needed = NEEDED.get(device.kind, ())
    versions = dict(device.versions)
    for slot in needed:
        fitting = [m for m in manifests if _fits(m, slot, device, versions[slot])]
        usable = [m for m in fitting if m.is_usable and _is_admitted(m, admitted)]
        if usable:
            chosen.append(usable[0])
            findings += usable[0].findings
            continue
        findings += [f for m in fitting for f in m.findings if f.effect is Effect.UNPROVES]
        findings += [_not_admitted(m) for m in fitting if m.is_usable]
        if not fitting:
            findings += _explain_others(device, slot, versions[slot], manifests)
        findings.append(_missing(device, slot, versions[slot]))
    return Choice(tuple(chosen), tuple(findings), bool(needed) and len(chosen) == len(needed))


def read_board(rim_id: str) -> str:
    """Return project, SKU and chip SKU from a manifest's id, in upper case; "" without them."""
    match = _BOARD.search(rim_id)
    return match[1].upper() if match else ""


def _slot(manifest: ReferenceManifest) -> str:
    return "vbios" if _VBIOS.match(manifest.version) else "driver"


def _fits(manifest: ReferenceManifest, slot: str, device: Device, version: str) -> bool:
    board = read_board(manifest.rim_id)
    return (
        manifest.product == device.product
        and _slot(manifest) == slot
        and manifest.version.casefold() == version.casefold()
        and (not board or not device.board or board == device.board.upper())
    )


def _is_admitted(manifest: ReferenceManifest, admitted: frozenset[str]) -> bool:
    """Whether it is among the manifests that were admitted; any is if none was named."""
    return not admitted or manifest.sha256 in admitted


def _not_admitted(manifest: ReferenceManifest) -> Finding:
    return unproves(FindingName.RIM_NOT_ADMITTED, f"{manifest.rim_id} is {manifest.sha256}")


def _missing(device: Device, slot: str, version: str) -> Finding:
    detail = f"no usable manifest for {device.product} {slot} {version or 'of unknown version'}"
    return unproves(FindingName.REFERENCE_MISSING, detail)


def _explain_others(
    device: Device, slot: str, version: str, manifests: Sequence[ReferenceManifest]
) -> list[Finding]:
    """Say of each manifest of this slot for which device it is; unreadable ones say why."""
    rows = []
    for manifest in manifests:
        if not manifest.version:
            rows += list(manifest.findings)
        elif manifest.product != device.product:
            detail = f"{manifest.product} {manifest.version}, found {device.product}"
            rows += [unproves(FindingName.RIM_OTHER, detail), *manifest.findings]
        elif _slot(manifest) == slot:
            board = read_board(manifest.rim_id)
            ours = device.board
            theirs = manifest.version
            if board and ours and board != ours.upper():
                rows.append(unproves(FindingName.RIM_OTHER, f"{board}, found {ours}"))
            else:
                rows.append(unproves(FindingName.RIM_OTHER, f"{theirs}, found {version}"))
    return rows
