"""Every card of a rail has exactly one RDMA device and one network interface, and both are up.

The check identifies cards by PCI address, which does not change when names do. It finds a card
whose driver bound in another way, or that came up under a second name (the verdicts of
facebookresearch/gcm: MISBIND, LINK_OPERSTATE, FIRMWARE_MISMATCH; the last compares the running
firmware that the kernel reports). Interfaces of InfiniBand ports (IPoIB) are not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.sysfs import INFINIBAND, Files, match_files, parse_files
from provisioner.checks.readers.tool_output import END, read_output
from provisioner.model.cohort import Evidence, Finding, Gate, Severity
from provisioner.model.names import normalize_pci
from provisioner.model.versions import is_same_version

_CLASS = "/sys/class/infiniband/*/"
NIC_BINDING = Command(
    name="nic_binding",
    line=f"grep -H . {_CLASS}fw_ver {_CLASS}device/net/*/operstate;"
    f" grep -H PCI_SLOT_NAME {_CLASS}device/uevent; {END}",
    limit_s=30.0,
)

_NAME = r"([\w.-]{1,64})"
_SLOT = re.compile(rf"/sys/class/infiniband/{_NAME}/device/uevent")
_STATE = re.compile(rf"/sys/class/infiniband/{_NAME}/device/net/{_NAME}/operstate")
_FIRMWARE = re.compile(rf"/sys/class/infiniband/{_NAME}/fw_ver")
_KEY = "PCI_SLOT_NAME="


def _findings(evidence: Mapping[str, Evidence], context: CheckContext) -> Iterator[Finding]:
    files = parse_files(read_output(evidence, NIC_BINDING, any_exit=True))
    devices = _read_slots(files)
    interfaces: dict[str, list[tuple[str, str]]] = {}
    for (device, name), state in match_files(files, _STATE).items():
        interfaces.setdefault(device, []).append((name, state))
    firmware = {groups[0]: line for groups, line in match_files(files, _FIRMWARE).items()}
    if len(devices) < context.rails:
        yield fault("host", Severity.ISOLATE, "RDMA devices", len(devices), context.rails)
    by_slot: dict[str, list[str]] = {}
    for device, slot in devices.items():
        by_slot.setdefault(slot, []).append(device)
    for slot in context.rail_pci:
        bound = sorted(by_slot.get(slot, ()))
        if len(bound) != 1:
            detail = "RDMA devices of this card"
            yield fault(slot, Severity.CONFIG, detail, ", ".join(bound) or "none", "one")
            continue
        listed = interfaces.get(bound[0], [])
        if context.link_layer == INFINIBAND:
            listed = []  # no test uses IPoIB: a host may have none; `rdma_links` judges the port
        elif len(listed) != 1:
            detail = "network interfaces of this card"
            yield fault(slot, Severity.CONFIG, detail, len(listed), 1)
        for name, state in listed:
            if state != "up":
                detail = f"{name} is not operational"
                yield fault(slot, Severity.ISOLATE, detail, state, "up")
        yield from _judge_firmware(slot, firmware.get(bound[0]), context)


def _read_slots(files: Files) -> dict[str, str]:
    """Return RDMA device -> PCI address."""
    slot_of = {}
    for path, lines in files.items():
        if match := _SLOT.fullmatch(path):
            slots = [line.removeprefix(_KEY) for line in lines if line.startswith(_KEY)]
            if len(slots) != 1:
                raise Unreadable(f"sysfs: {match[1]} does not report its PCI address")
            slot_of[match[1]] = normalize_pci(slots[0])
    if not slot_of:
        raise Unreadable("sysfs: no RDMA device in it")
    return slot_of


def _judge_firmware(slot: str, version: str | None, context: CheckContext) -> Iterator[Finding]:
    if version is None:
        raise Unreadable(f"sysfs: {slot} does not report its firmware")
    for kind in ("supernic.nic", "bluefield.nic"):
        approved = context.pins.get(kind, ())
        if approved:
            grammar = context.grammars.get(kind, "dotted")
            if not any(is_same_version(grammar, version, pin) for pin in approved):
                detail = "the running firmware differs from its pin"
                yield fault(slot, Severity.CONFIG, detail, version, " or ".join(approved))
            return


CHECK = Check("nic_binding", Gate.A, (NIC_BINDING,), _findings)
