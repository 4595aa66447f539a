"""Translation of part names in tools (GPU 3, a UUID, a PCI address, a port) to slots. Pure.

Tools inside the host number GPUs, drivers name PCI addresses, leaves name ports; a technician needs
the slot that is printed on the chassis. Serials join them, because `nvidia-smi` and Redfish report
the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from provisioner.checks.check import Unreadable
from provisioner.checks.commands import GPUS
from provisioner.checks.rdma_links import RDMA_LINKS
from provisioner.checks.readers.smi_query import read_table
from provisioner.checks.readers.sysfs import pci_of_interface
from provisioner.model.case import Fault
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.names import find_pci
from provisioner.model.node import Node
from provisioner.planning.certification.regression import Parts, Raw, parse_outputs

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{4,80}")
_GPU = re.compile(r"\bGPU (\d{1,3})\b")
_COUNT = re.compile(r"\b(\d{1,2}) of (\d{1,2}) GPUs\b")  # in the words of the check `gpu_inventory`
_NUMBERED = re.compile(r"(.*?)(\d{1,3})")
_RDMA_DEVICE = re.compile(r"/sys/class/infiniband/([\w.-]{1,64})/device/net/([\w.-]{1,32})/")
SERIAL_MIN = 6  # a shorter one may be any number

Names = Mapping[str, str]


def names_of(node: Node, inventory: Inventory | None, stored: Iterable[str] = ()) -> Names:
    """Return alias -> slot. `stored`: evidence of `gpu_inventory` and `rdma_links`, the newest
    last.
    """
    aliases: dict[str, str] = {}
    for port in node.ports:
        aliases[f"{port.switch}/{port.interface}"] = port.nic_slot
    if inventory is None:
        return aliases
    serials = {}
    for device in inventory.devices:
        if device.pci and (pci := find_pci(device.pci)):
            aliases[pci] = device.slot
        if device.serial and len(device.serial) >= SERIAL_MIN:
            aliases[device.serial] = device.slot
            if device.kind is DeviceKind.GPU:
                serials[device.serial] = device.slot
    for text in stored:
        outputs = parse_outputs(text) or {}
        for name, interface in _list_rdma_devices(outputs):
            if (slot := aliases.get(pci_of_interface(interface))) is not None:
                aliases[name] = slot
        for row in _rows(outputs):
            slot = serials.get(row["serial"])
            if slot is None:
                continue
            aliases[f"GPU {row['index']}"] = slot
            aliases[row["uuid"]] = slot
            if pci := find_pci(row.get("pci.bus_id", "")):
                aliases[pci] = slot
    return aliases


def gone_of(before: Parts, inventory: Inventory | None) -> Parts:
    """Return the parts that a node had when its case was opened, and does not report now."""
    if inventory is None:
        return ()
    present = {(d.kind.value, d.slot) for d in inventory.devices}
    return tuple(part for part in before if part[:2] not in present)


def of_missing(node: str, gone: Parts) -> Names:
    """Return alias -> slot of missing parts.

    "su0-n03/gpu", which names only a kind, is an alias where exactly one part of that kind is
    missing.
    """
    aliases = {serial: slot for _, slot, serial, _ in gone if len(serial) >= SERIAL_MIN}
    for kind in {kind for kind, *_ in gone}:
        slots = [slot for k, slot, *_ in gone if k == kind]
        if len(slots) == 1:
            aliases[f"{node}/{kind}"] = slots[0]
    return aliases


def at_missing(
    faults: Iterable[Fault], gone: Parts, inventory: Inventory | None
) -> tuple[Fault, ...]:
    """Move a fault that only counts GPUs ("7 of 8 GPUs", at the host) to each missing GPU's slot.

    A fault may name the missing serials. Otherwise the slots that became empty since the case was
    opened are used, or else the gap in the numbers of the slots. Where none of them has exactly as
    many as are missing, the fault stays at the host: a slot is never guessed.
    """
    lost = [slot for kind, slot, *_ in gone if kind == DeviceKind.GPU.value]
    devices = inventory.devices if inventory else ()
    serials = {serial: slot for _, slot, serial, _ in gone if serial}
    serials |= {d.serial: d.slot for d in devices if d.serial}
    moved: list[Fault] = []
    faults = tuple(faults)
    named_slots = [
        serials[word]
        for fault in faults
        if _COUNT.search(fault.detail)
        for word in _WORD.findall(fault.detail)
        if word in serials
    ]
    for fault in faults:
        count = _COUNT.search(fault.detail)
        if count is None or fault.source != "check" or fault.part not in ("", "host"):
            moved.append(fault)
            continue
        total = int(count[2])
        missing = max(1, total - int(count[1]))
        ways = (list(dict.fromkeys(named_slots)), lost, _gaps(inventory, total), [fault.part])
        slots = next((way for way in ways if len(way) == missing), ways[-1])
        moved += [fault.model_copy(update={"part": slot}) for slot in slots]
    return tuple(moved)


def _gaps(inventory: Inventory | None, wanted: int) -> list[str]:
    """Return empty GPU slots between the first and the last number; none if that is ambiguous."""
    slots = [d.slot for d in inventory.devices if d.kind is DeviceKind.GPU] if inventory else []
    parsed = [match for slot in slots if (match := _NUMBERED.fullmatch(slot))]
    if not parsed or len(parsed) != len(slots) or len({m[1] for m in parsed}) != 1:
        return []
    numbers = {int(m[2]) for m in parsed}
    first = 0 if 0 in numbers else 1
    if max(numbers) - first > wanted - 1 or (first == 1 and wanted not in numbers):
        return []  # slots may be numbered from 0 or from 1: the gap may be at either end
    return [f"{parsed[0][1]}{n}" for n in range(first, first + wanted) if n not in numbers]


def _list_rdma_devices(outputs: Raw) -> list[tuple[str, str]]:
    """Return (RDMA device, its network interface): ("mlx5_1", "enp64s0np0")."""
    links = outputs.get(RDMA_LINKS.name)
    return _RDMA_DEVICE.findall(links.text) if links is not None else []


def _rows(outputs: Raw) -> list[dict[str, str]]:
    if GPUS.name not in outputs:
        return []
    try:
        return [dict(row) for row in read_table(outputs, GPUS, "index", "uuid", "serial")]
    except Unreadable:
        return []


def locate_fault(fault: Fault, names: Names) -> Fault:
    """Return the fault at its slot, if its text has an alias of one; otherwise unchanged."""
    for text in (fault.part, fault.detail):
        slot = slot_in(text, names)
        if slot:
            return fault.model_copy(update={"part": slot})
    return fault


def slot_in(text: str, names: Names) -> str:
    """Return the slot that a text names; "" if it has no alias of one."""
    if (pci := find_pci(text)) in names and pci:
        return names[pci]
    if (pci := pci_of_interface(text)) in names and pci:
        return names[pci]
    if (match := _GPU.search(text)) and match[0] in names:
        return names[match[0]]
    for word in _WORD.findall(text):
        if word in names:
            return names[word]
    return ""
