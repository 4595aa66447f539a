"""Certified parts that a serving node no longer reports. Pure.

A part that vanishes from a node is a fault of the node, in contrast to a version that a controller
does not report for a moment. So absence counts only where the BMC answered completely while the
host was on, and only if a second reading, at least `CONFIRM_S` later, has the same result.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.alert import Classification
from provisioner.model.certificate import Certificate
from provisioner.model.inventory import DeviceKind, Inventory, Power
from provisioner.model.outcome import Reason
from provisioner.planning.certification.certification import list_serials, list_versions
from provisioner.planning.watch.watch_rules import ITEMS_MAX, Found

# Ours: the restart of a baseboard's management controller takes 2 to 4 minutes, in which it lists
# its parts one after the other (facts: redfish 3).
CONFIRM_S = 300.0
# parts that only the host's BMC reports; cards with a BMC of their own are listed by that one
_OF_HOST = frozenset(
    {
        DeviceKind.BASEBOARD,
        DeviceKind.GPU,
        DeviceKind.NVSWITCH,
        DeviceKind.CPU,
        DeviceKind.MEMORY,
        DeviceKind.STORAGE,
    }
)
# gaps of an absent resource or of a single value; any other gap may hide a part
_NO_HOLES = frozenset({Reason.NOT_OFFERED, Reason.VERSION_MISSING, Reason.UNKNOWN_VENDOR})
# components whose absence in a list of versions implies that their part is absent
_PARTS_OF = {"hgx.gpu": "gpu", "hgx.nvswitch": "nvswitch"}


def is_whole(seen: Inventory) -> bool:
    """Return whether this answer of a BMC can prove that a part is absent."""
    return seen.power is Power.ON and all(g.reason in _NO_HOLES for g in seen.gaps)


def may_have_lost(certificate: Certificate, seen: Inventory) -> bool:
    """Return whether a list of versions lacks an entry that only a missing part explains.

    It is cheap, and asks for the parts to be read; it proves nothing.
    """
    listed = {name for name, _ in list_versions(seen)}
    certified = (name for name, version in certificate.versions if version)
    return any(n.partition("/")[0] in _PARTS_OF and n not in listed for n in certified)


def find_lost(certificate: Certificate, seen: Inventory) -> frozenset[str]:
    """Return the certified parts ("gpu/GPU_SXM_5=serial") that the BMC of the host lacks.

    A part in another slot, or one that is there without its serial, is not lost.
    """
    serials = {part.partition("=")[2] for part in list_serials(seen)}
    slots = {f"{d.kind.value}/{d.slot}" for d in seen.devices}
    lost = set()
    for part in certificate.serials:
        slot, _, serial = part.partition("=")
        kind = slot.partition("/")[0]
        if kind in _OF_HOST and slot not in slots and serial not in serials:
            lost.add(part)
    return frozenset(lost)


def confirm_losses(
    lost: frozenset[str], since: Mapping[str, float], now: float
) -> tuple[tuple[Found, ...], bool]:
    """Return the confirmed findings, and whether an absence still needs a confirming reading.

    `since`: when each lost part was first absent in an unbroken series of readings.
    """
    pending = any(now - since.get(part, now) < CONFIRM_S for part in lost)
    findings = [
        Found(
            id="PartMissing",
            target=slot,
            classifications=(Classification.HARDWARE, Classification.DRIFT),
            message=f"{slot} with serial {serial} is no longer present",
        )
        for part in sorted(lost)
        for slot, _, serial in (part.partition("="),)
        if now - since.get(part, now) >= CONFIRM_S
    ]
    return tuple(findings[:ITEMS_MAX]), pending
