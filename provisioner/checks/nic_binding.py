"""N2: every card of a rail has one RDMA device and one network interface, both its own, up.

By PCI address, which stays where names move: a card whose driver bound another way, or that came up
under a second name, is seen here (the verdicts of facebookresearch/gcm: MISBIND, LINK_OPERSTATE,
FIRMWARE_MISMATCH; the last one is the running firmware, as the kernel has it).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from provisioner.checks.check import Check, CheckContext, Command, Unreadable, fault
from provisioner.checks.readers.reading import END, pci, text_of
from provisioner.checks.readers.sysfs import Files, files_of, matching
from provisioner.model.health import Evidence, Finding, Gate, Severity
from provisioner.model.versions import equal

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
    files = files_of(text_of(evidence, NIC_BINDING, any_exit=True))
    devices = _slots(files)
    interfaces: dict[str, list[tuple[str, str]]] = {}
    for (device, name), state in matching(files, _STATE).items():
        interfaces.setdefault(device, []).append((name, state))
    firmware = {groups[0]: line for groups, line in matching(files, _FIRMWARE).items()}
    if len(devices) < context.rails:
        yield fault("host", Severity.ISOLATE, "RDMA devices", len(devices), context.rails)
    by_slot: dict[str, list[str]] = {}
    for device, slot in devices.items():
        by_slot.setdefault(slot, []).append(device)
    for slot in context.rail_pci:
        bound = sorted(by_slot.get(slot, ()))
        if len(bound) != 1:
            words = "RDMA devices of this card"
            yield fault(slot, Severity.CONFIG, words, ", ".join(bound) or "none", "one")
            continue
        listed = interfaces.get(bound[0], [])
        if len(listed) != 1:
            words = "network interfaces of this card"
            yield fault(slot, Severity.CONFIG, words, len(listed), 1)
        for name, state in listed:
            if state != "up":
                words = f"{name} is not operational"
                yield fault(slot, Severity.ISOLATE, words, state, "up")
        yield from _running(slot, firmware.get(bound[0]), context)


def _slots(files: Files) -> dict[str, str]:
    """RDMA device -> PCI address."""
    found = {}
    for path, lines in files.items():
        if match := _SLOT.fullmatch(path):
            slots = [line.removeprefix(_KEY) for line in lines if line.startswith(_KEY)]
            if len(slots) != 1:
                raise Unreadable(f"sysfs: {match[1]} does not say its PCI address")
            found[match[1]] = pci(slots[0])
    if not found:
        raise Unreadable("sysfs: no RDMA device in it")
    return found


def _running(slot: str, version: str | None, context: CheckContext) -> Iterator[Finding]:
    if version is None:
        raise Unreadable(f"sysfs: {slot} does not say its firmware")
    for kind in ("supernic.nic", "bluefield.nic"):
        approved = context.pins.get(kind, ())
        if approved:
            grammar = context.grammars.get(kind, "dotted")
            if not any(equal(grammar, version, pin) for pin in approved):
                words = "the firmware that runs is not the pinned one"
                yield fault(slot, Severity.CONFIG, words, version, " or ".join(approved))
            return


CHECK = Check("nic_binding", Gate.A, (NIC_BINDING,), _findings)
