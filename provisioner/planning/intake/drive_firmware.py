"""The firmware of a host's NVMe drives: the one that runs, and the one that the next reset brings.

The kernel lists the drives (sysfs, /sys/class/nvme), so that one is seen where nvme-cli is missing.
`nvme id-ctrl` has the revision that runs; the Firmware Slot Information log (`nvme fw-log`, log
page 03h) has the revision in each slot, and in bits 6:4 of AFI the slot that the next reset
activates, if the drive announces it. Output of a host is untrusted: what does not fit is a gap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from provisioner.checks.readers.tool_output import END, END_WORDS
from provisioner.model.health import Evidence
from provisioner.model.inventory import Activation, Component
from provisioner.model.machine.drive_firmware import NVME_FIRMWARE, join_version
from provisioner.model.matrix import Matrix
from provisioner.model.outcome import Gap, Reason

LOOK = "drive_firmware"
_LINE = (
    'for c in /sys/class/nvme/nvme*; do [ -e "$c/serial" ] || continue; n=${c##*/};'
    ' echo "drive $n"; for f in transport serial model firmware_rev;'
    ' do echo "$f $(cat $c/$f)"; done; nvme id-ctrl /dev/$n -o json; nvme fw-log /dev/$n -o json;'
    " done 2>/dev/null; "
)
COMMAND = (LOOK, _LINE + END, 120.0)
DRIVES_MAX = 256
_NAME = re.compile(r"drive (nvme\d{1,4})")
_FIELD = re.compile(r"(transport|serial|model|firmware_rev) (.{0,64})")
_SERIAL = re.compile(r"[!-.0-~]+( [!-.0-~]+)*")  # no "/", which separates kind and slot
_REVISION = re.compile(r"\d{1,20} \((.{1,8})\)")  # nvme-cli: the number, then its characters


def is_pinned_somewhere(matrix: Matrix) -> bool:
    """Return whether a profile pins firmware of drives; without one no host is asked."""
    profiles = (p for release in matrix.releases.values() for p in release.profiles.values())
    return any(NVME_FIRMWARE in profile.pins for profile in profiles)


def read_drives(evidence: Evidence) -> tuple[tuple[Component, ...], tuple[Gap, ...]]:
    """Return one component for each drive behind PCIe, and the gaps of what could not be read."""
    gaps: list[Gap] = []
    lines = evidence.text.splitlines()
    if END_WORDS not in lines[-1:] or evidence.truncated:
        return (), (_gap(evidence, "the list of drives was cut short"),)
    components: dict[str, Component] = {}
    for block in _split_blocks(lines):
        fields = {m[1]: m[2] for line in block if (m := _FIELD.fullmatch(line))}
        if fields.get("transport", "").strip() != "pcie":
            continue  # a volume of a storage system (NVMe over Fabrics) is no part of the host
        serial = " ".join(fields.get("serial", "").split())
        if not _SERIAL.fullmatch(serial) or serial in components:
            gaps.append(_gap(evidence, f"a drive without a serial number of its own: {serial!r}"))
            continue
        components[serial] = _read_drive(evidence, serial, fields, block, gaps)
    return tuple(components[serial] for serial in sorted(components)), tuple(gaps)


def _split_blocks(lines: Iterable[str]) -> list[list[str]]:
    """Return the lines of each drive."""
    blocks: list[list[str]] = []
    for line in lines:
        if _NAME.fullmatch(line) and len(blocks) < DRIVES_MAX:
            blocks.append([])
        elif blocks:
            blocks[-1].append(line)
    return blocks


def _read_drive(
    evidence: Evidence,
    serial: str,
    fields: Mapping[str, str],
    block: list[str],
    gaps: list[Gap],
) -> Component:
    identity, slots = _read_documents("\n".join(block))
    model = fields.get("model", "")
    # the kernel's copy stays old after an activation without a reset (Linux before 6.7)
    running = _get_text(identity, "fr") or fields.get("firmware_rev", "")
    version = join_version(model, running)
    if version is None:
        detail = (
            f"drive {serial} shows no model and firmware: {model.strip()!r} {running.strip()!r}"
        )
        gaps.append(_gap(evidence, detail, Reason.VERSION_MISSING))
    following = _find_next_revision(slots)
    staged = join_version(model, following) if following is not None else None
    waits = staged is not None and staged != version
    return Component(
        kind=NVME_FIRMWARE,
        slot=serial,
        version=version,
        staged=staged if waits else None,
        pending=Activation.COLD_BOOT if waits else None,
        updateable=True,
        serial=serial,
        source=evidence.source[:200],
    )


def _read_documents(text: str) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Return the JSON of `id-ctrl` and of the one drive in `fw-log`; {} for one that is missing."""
    identity: Mapping[str, object] = {}
    slots: Mapping[str, object] = {}
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            document, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        inner = next(iter(document.values()), None) if len(document) == 1 else None
        if isinstance(inner, dict):
            slots = inner
        elif "fr" in document:
            identity = document
        at = text.find("{", end)
    return identity, slots


def _get_text(document: Mapping[str, object], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _find_next_revision(slots: Mapping[str, object]) -> str | None:
    """Return the revision in the slot that the next reset activates; None if none is announced."""
    active = slots.get("Active Firmware Slot (afi)")
    if not isinstance(active, int) or not (following := active >> 4 & 0x7):
        return None
    match = _REVISION.fullmatch(_get_text(slots, f"Firmware Rev Slot {following}"))
    return match[1] if match else None


def _gap(evidence: Evidence, detail: str, reason: Reason = Reason.MALFORMED) -> Gap:
    return Gap(reason=reason, source=evidence.source[:200], detail=detail[:200])
