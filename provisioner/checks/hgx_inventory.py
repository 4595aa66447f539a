"""I9: every part of the HGX baseboard runs the pinned firmware, and its background copy is done.

Read from the BMC: the firmware inventory, and the chassis of the roots of trust, which tell of the
copies into the golden slots (a power cycle before they end leaves an old golden image). A report of
`nvfwupd show_version` is read too; its column "Up-To-Date" is not: it says "No" beside equal
versions in NVIDIA's own example, and for everything that the package at hand does not hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.bmc_reading import Resources, resources_of
from provisioner.checks.readers.reading import json_of, lines_of, mapping, sequence, text_of, word
from provisioner.model.health import Evidence, Finding, Gate, Severity
from provisioner.model.versions import equal

BMC_FIRMWARE = Command(name="bmc_firmware", line="firmware of /redfish/v1", limit_s=900.0, bmc=True)

_PREFIX = re.compile(r"^HGX_(?:FW_)?")
# how the rest of an item's Id begins -> its kind (components/hgx.py has the slots too)
_KINDS = {
    "BMC": "hgx.bmc",
    "ERoT": "hgx.erot",
    "GPU": "hgx.gpu",
    "NVSwitch": "hgx.nvswitch",
    "FPGA": "hgx.fpga",
    "PCIeSwitch": "hgx.pcieswitch",
    "PCIeRetimer": "hgx.retimer",
    "CPLD": "hgx.cpld",
    "Cpld": "hgx.cpld",
    "CPU": "hgx.cpu",
    "InfoROM": "hgx.inforom",
}
_ONE_VERSION = frozenset({"hgx.gpu", "hgx.nvswitch", "hgx.retimer"})  # the same on every part
_ROW = re.compile(r"^(\S{1,80})\s+(\S{1,80})\s+(\S{1,80})\s+(Yes|No)$")
_DONE = "Completed"


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    text = text_of(evidence, BMC_FIRMWARE)
    resources = resources_of(text) if '"resources"' in text[:200] else None
    versions = _of_nvfwupd(text) if resources is None else _of_redfish(resources)
    kinds: dict[str, dict[str, str]] = {}
    for name, version in versions.items():
        kind = _kind(name)
        if kind is not None:
            kinds.setdefault(kind, {})[name] = version
    if not kinds:
        raise Unreadable("no firmware of an HGX baseboard in it")
    for kind, parts in sorted(kinds.items()):
        yield from _pinned(kind, parts, context)
        seen = sorted(set(parts.values()))
        if kind in _ONE_VERSION and len(seen) > 1:
            words = f"parts of one kind run different firmware ({kind})"
            yield fault("HGX", Severity.CONFIG, words, ", ".join(seen), "one")
    if resources is not None:
        yield from _copies(resources)


def _kind(name: str) -> str | None:
    prefix = _PREFIX.match(name)
    rest = name[prefix.end() :] if prefix else ""
    return next((kind for begin, kind in _KINDS.items() if rest.startswith(begin)), None)


def _pinned(kind: str, parts: Mapping[str, str], context: CheckContext) -> Iterator[Finding]:
    approved = context.pins.get(kind) or context.bundled.get(kind, ())
    grammar = context.grammars.get(kind, "opaque")
    for name, version in sorted(parts.items()):
        if not version:
            yield fault(name, Severity.POWER_CYCLE, "the part gives no firmware version")
        elif approved and not any(equal(grammar, version, pin) for pin in approved):
            words = "the firmware is not the pinned one"
            yield fault(name, Severity.CONFIG, words, version, " or ".join(approved))


def _of_redfish(resources: Resources) -> dict[str, str]:
    """Id -> version of every item of the firmware inventory."""
    found = {}
    for path, body in resources.items():
        if "/FirmwareInventory/" in path:
            version = body.get("Version")
            found[str(body.get("Id", ""))[:80]] = version if isinstance(version, str) else ""
    return found


def _copies(resources: Resources) -> Iterator[Finding]:
    told = 0
    for path, body in sorted(resources.items()):
        if "/Chassis/" not in path:
            continue
        oem = body.get("Oem")
        nvidia = oem.get("Nvidia") if isinstance(oem, dict) else None
        state = nvidia.get("BackgroundCopyStatus") if isinstance(nvidia, dict) else None
        if state is None:
            continue
        told += 1
        if state != _DONE:
            name = path.rpartition("/")[2]
            words = "the copy into its golden slot is not done"
            yield fault(name, Severity.CONFIG, words, state, _DONE)
    if not told:
        raise Unreadable("no root of trust tells of its background copy")


def _of_nvfwupd(text: str) -> dict[str, str]:
    """AP name -> system version, of the JSON and of the table."""
    if "{" not in text.partition("Firmware Devices")[0]:
        return _of_table(text)
    document = mapping(json_of(text, "nvfwupd"), "nvfwupd")
    if document.get("Error Code") != 0 or document.get("Connection Status") != "Successful":
        raise Unreadable(f"nvfwupd: {str(document.get('Connection Status'))[:40]}")
    found: dict[str, str] = {}
    for listed in sequence(document.get("Firmware Devices"), "Firmware Devices"):
        device: Mapping[str, Any] = mapping(listed, "device")
        name = word(device.get("AP Name"), "AP Name")
        if name in found:
            raise Unreadable(f"nvfwupd: {name[:40]} is listed twice")
        version = word(device.get("Sys Version"), "Sys Version")
        found[name] = "" if version == "N/A" else version
    return found


def _of_table(text: str) -> dict[str, str]:
    head, mark, table = text.partition("Firmware Devices:")
    if not mark or not head.lstrip().startswith("System Model"):
        raise Unreadable("nvfwupd: no list of firmware in it")
    found: dict[str, str] = {}
    for line in lines_of(table):
        match = _ROW.match(line.strip())
        if match is None and not line.startswith(("AP Name", "---")):
            raise Unreadable(f"nvfwupd: cannot read {line[:60]!r}")
        if match is not None:
            found[match[1]] = "" if match[2] == "N/A" else match[2]
    return found


CHECK = Check("hgx_inventory", Gate.A, (BMC_FIRMWARE,), _findings)
