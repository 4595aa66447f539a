"""Every part of the HGX baseboard runs the pinned firmware, and its background copy is done.

The BMC gives the firmware inventory and the chassis of the roots of trust, which report the copies
into the golden slots (a power cycle before they end leaves an old golden image). A report of
`nvfwupd show_version` is read too, except for its column "Up-To-Date": that is "No" beside equal
versions in NVIDIA's own example, and for every part that the package does not contain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.tool_output import (
    Resources,
    parse_json,
    read_output,
    read_resources,
    require_list,
    require_object,
    require_text,
    split_lines,
)
from provisioner.model.cohort import Evidence, Finding, Gate, Severity
from provisioner.model.versions import is_same_version

BMC_FIRMWARE = Command(name="bmc_firmware", line="firmware of /redfish/v1", limit_s=900.0, bmc=True)

_PREFIX = re.compile(r"^HGX_(?:FW_)?")
# how an item's Id begins after the prefix -> its kind (components/hgx.yaml also has the slots)
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
_ONE_VERSION = frozenset({"hgx.gpu", "hgx.nvswitch", "hgx.retimer"})  # equal on all parts
_ROW = re.compile(r"^(\S{1,80})\s+(\S{1,80})\s+(\S{1,80})\s+(Yes|No)$")
_DONE = "Completed"
# the chassis of a root of trust itself; a DGX H100's recorded tree has 15, which all report
_ROOT_OF_TRUST = re.compile(r"/Chassis/HGX_[EI]?RoT_\w{1,60}/?$")


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    text = read_output(evidence, BMC_FIRMWARE)
    resources = read_resources(text) if '"resources"' in text[:200] else None
    versions = _read_nvfwupd(text) if resources is None else _read_redfish(resources)
    kinds: dict[str, dict[str, str]] = {}
    for name, version in versions.items():
        kind = _classify_item(name)
        if kind is not None:
            kinds.setdefault(kind, {})[name] = version
    if not kinds:
        raise Unreadable("no firmware of an HGX baseboard in it")
    seen = kinds.get("hgx.gpu", {})
    if seen and len(seen) < context.gpus:
        detail = "GPUs whose firmware the baseboard lists"
        yield fault("HGX", Severity.ISOLATE, detail, len(seen), context.gpus)
    for kind, parts in sorted(kinds.items()):
        yield from _judge_versions(kind, parts, context)
        distinct = sorted(set(parts.values()))
        if kind in _ONE_VERSION and len(distinct) > 1:
            detail = f"parts of one kind run different firmware ({kind})"
            yield fault("HGX", Severity.CONFIG, detail, ", ".join(distinct), "one")
    if resources is not None:
        yield from _judge_copies(resources)


def _classify_item(name: str) -> str | None:
    prefix = _PREFIX.match(name)
    suffix = name[prefix.end() :] if prefix else ""
    return next((kind for begin, kind in _KINDS.items() if suffix.startswith(begin)), None)


def _judge_versions(
    kind: str, parts: Mapping[str, str], context: CheckContext
) -> Iterator[Finding]:
    approved = context.pins.get(kind) or context.bundled.get(kind, ())
    grammar = context.grammars.get(kind, "opaque")
    for name, version in sorted(parts.items()):
        if not version:
            yield fault(name, Severity.POWER_CYCLE, "the part reports no firmware version")
        elif approved and not any(is_same_version(grammar, version, pin) for pin in approved):
            detail = "the firmware differs from its pin"
            yield fault(name, Severity.CONFIG, detail, version, " or ".join(approved))


def _read_redfish(resources: Resources) -> dict[str, str]:
    """Return Id -> version of every item of the firmware inventory."""
    versions = {}
    for path, body in resources.items():
        if "/FirmwareInventory/" in path:
            version = body.get("Version")
            name = body.get("Id") or path.rstrip("/").rpartition("/")[2]
            versions[str(name)[:80]] = version if isinstance(version, str) else ""
    return versions


def _judge_copies(resources: Resources) -> Iterator[Finding]:
    reported = 0
    silent = []
    for path, body in sorted(resources.items()):
        if "/Chassis/" not in path:
            continue
        oem = body.get("Oem")
        nvidia = oem.get("Nvidia") if isinstance(oem, dict) else None
        state = nvidia.get("BackgroundCopyStatus") if isinstance(nvidia, dict) else None
        if state is None:
            silent += [path] if _ROOT_OF_TRUST.search(path) else []
            continue
        reported += 1
        if state != _DONE:
            name = path.rpartition("/")[2]
            detail = "the copy into its golden slot is not done"
            yield fault(name, Severity.CONFIG, detail, state, _DONE)
    if not reported:
        raise Unreadable("no root of trust reports its background copy")
    for path in silent:  # a part that has none: every other one reports it
        name = path.rpartition("/")[2]
        yield fault(name, Severity.CONFIG, "it does not report its background copy", "", _DONE)


def _read_nvfwupd(text: str) -> dict[str, str]:
    """Return AP name -> system version, from the JSON or from the table."""
    if "{" not in text.partition("Firmware Devices")[0]:
        return _read_table(text)
    document = require_object(parse_json(text, "nvfwupd"), "nvfwupd")
    if document.get("Error Code") != 0 or document.get("Connection Status") != "Successful":
        raise Unreadable(f"nvfwupd: {str(document.get('Connection Status'))[:40]}")
    versions: dict[str, str] = {}
    for listed in require_list(document.get("Firmware Devices"), "Firmware Devices"):
        device: Mapping[str, Any] = require_object(listed, "device")
        name = require_text(device.get("AP Name"), "AP Name")
        if name in versions:
            raise Unreadable(f"nvfwupd: {name[:40]} is listed twice")
        version = require_text(device.get("Sys Version"), "Sys Version")
        versions[name] = "" if version == "N/A" else version
    return versions


def _read_table(text: str) -> dict[str, str]:
    head, mark, table = text.partition("Firmware Devices:")
    if not mark or not head.lstrip().startswith("System Model"):
        raise Unreadable("nvfwupd: no list of firmware in it")
    versions: dict[str, str] = {}
    for line in split_lines(table):
        match = _ROW.match(line.strip())
        if match is None and not line.startswith(("AP Name", "---")):
            raise Unreadable(f"nvfwupd: cannot read {line[:60]!r}")
        if match is not None:
            versions[match[1]] = "" if match[2] == "N/A" else match[2]
    return versions


CHECK = Check("hgx_inventory", Gate.A, (BMC_FIRMWARE,), _findings)
