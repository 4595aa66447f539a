"""I6: every card answers, runs pinned firmware, and nothing is burned that does not run.

mlxfwmanager shows a running version apart from the burned one only when they differ; that line is
the sign of "burned, not activated" (Mellanox/nic-configuration-operator). Exit code 1 is allowed,
the content is judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree

from provisioner.checks.check import Check, CheckContext, Unreadable, fault
from provisioner.checks.commands import NICS
from provisioner.checks.reading import pci, text_of
from provisioner.model.health import Evidence, Finding, Gate, Severity

_RUNNING = re.compile(r"^FW.*running", re.IGNORECASE)
_LOCKED = "Failed to open device"
_VERSION = re.compile(r"^\d{2}\.\d{2}\.\d{4}$")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    devices = _devices(text_of(evidence, NICS, any_exit=True))
    wanted = context.rails + len(context.dpu_pci)
    if len(devices) < wanted:
        yield fault("host", Severity.ISOLATE, "network cards that answer", len(devices), wanted)
    for device in devices:
        part = pci(device.get("pciName", "?"))
        versions = device.find("Versions")
        firmware = versions.find("FW") if versions is not None else None
        current = firmware.get("current", "") if firmware is not None else ""
        if not _VERSION.match(current):
            status = (device.findtext("Status") or "").strip()
            if part in context.dpu_pci and status == _LOCKED:
                continue  # a DPU in restricted mode; its own BMC tells its versions
            yield fault(part, Severity.POWER_CYCLE, "the card gives no firmware version", status)
            continue
        assert versions is not None
        for line in versions:
            if _RUNNING.match(line.tag) and line.get("current") != current:
                yield fault(
                    part,
                    Severity.CONFIG,
                    "firmware is burned but does not run",
                    line.get("current", ""),
                    current,
                )
        approved = _approved(device.get("type", ""), part, context)
        if approved and current not in approved:
            yield fault(
                part,
                Severity.CONFIG,
                "the firmware is not the pinned one",
                current,
                " or ".join(approved),
            )


def _approved(device_type: str, part: str, context: CheckContext) -> tuple[str, ...]:
    """Pinned versions for a card; a BlueField in NIC mode is a SuperNIC, with pins of its own."""
    if device_type == "ConnectX7":
        return context.pins.get("nic.cx7", ())
    if device_type != "BlueField3":
        return ()
    dpu = context.pins.get("bluefield.nic", ())
    return dpu if part in context.dpu_pci else context.pins.get("supernic.nic", dpu)


def _devices(text: str) -> list[ElementTree.Element]:
    begin = text.find("<Devices")
    # no document type: entities are how a short text becomes a gigabyte
    if begin < 0 or "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise Unreadable("mlxfwmanager: no device list in it")
    try:
        root = ElementTree.fromstring(text[begin:].strip())  # noqa: S314 (no DTD, size bounded)
    except (ElementTree.ParseError, ValueError):
        raise Unreadable("mlxfwmanager: not XML, or cut short") from None
    found = root.findall("Device")
    if root.tag != "Devices" or not found:
        raise Unreadable("mlxfwmanager: no device in it")
    return found


CHECK = Check("nic_inventory", Gate.A, (NICS,), _findings)
