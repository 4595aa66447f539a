"""Parts of the host that have collections of their own: memory, drives, power supplies, NIC ports.

They are listed only with a serial number: a slot without one proves nothing, and most services list
empty slots too. A resource that the service answers with an error is noted as a gap and left out; a
drive or a list of drives that does not answer leaves the whole inventory incomplete, because drives
are compared with the record of the last erasure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from provisioner.adapters.redfish.parsing import at, link, mac, name_of, objects, path_of, text
from provisioner.adapters.redfish.parts import read_health
from provisioner.adapters.redfish.walk import Resource, Walk
from provisioner.model.inventory import Device, DeviceKind
from provisioner.model.outcome import Gap, Reason

DRIVES_MAX = 128  # the largest chassis sold has 34 bays
SUPPLIES_MAX = 64
PORTS_MAX = 64  # network functions of one card that are read
# chassis that are parts of a baseboard: recorded trees give each an empty list of power supplies
_INNER = ("HGX_", "MGX_")


async def read_host_parts(
    walk: Walk, system: Resource | None, chassis: Sequence[Resource]
) -> tuple[Device, ...]:
    """Return the memory modules, drives and power supplies that have a serial number."""
    devices: list[Device] = []
    if system is not None:
        devices += await _read_memory(walk, system)
        devices += await _read_drives(walk, system)
    devices += await _read_power_supplies(walk, chassis)
    return tuple(devices)


async def read_port_macs(walk: Walk, adapter: Resource) -> tuple[str, ...]:
    """Return the permanent MAC addresses of a card's ports, sorted; () if it lists none."""
    gaps_before = len(walk.gaps)
    addresses = set()
    functions = (await walk.read_linked(adapter.data, "NetworkDeviceFunctions"))[:PORTS_MAX]
    for function in functions:
        ethernet = at(function.data, "Ethernet")
        for field in ("PermanentMACAddress", "MACAddress"):
            if (address := mac(at(ethernet, field))) is not None:
                addresses.add(address)
                break
    _excuse_errors(walk, gaps_before)
    return tuple(sorted(addresses))


async def _read_memory(walk: Walk, system: Resource) -> list[Device]:
    gaps_before = len(walk.gaps)
    modules = await walk.read_linked(system.data, "Memory")
    _excuse_errors(walk, gaps_before)
    return _with_serial(DeviceKind.MEMORY, [(_slot(m), m) for m in modules])


async def _read_drives(walk: Walk, system: Resource) -> list[Device]:
    listed: dict[str, str] = {}  # path of a drive -> Id of its storage
    for storage in await walk.read_linked(system.data, "Storage"):
        for drive in objects(at(storage.data, "Drives")):
            if (path := path_of(drive)) is not None and len(listed) < DRIVES_MAX:
                listed.setdefault(path, _slot(storage))
    drives = await walk.read_several(list(listed))
    slots = [_slot(d) for d in drives]
    twice = Counter(slots)  # two controllers may both have a drive "1"
    named = [
        (f"{listed[d.path]}.{slot}" if twice[slot] > 1 else slot, d)
        for slot, d in zip(slots, drives, strict=True)
    ]
    devices = _with_serial(DeviceKind.STORAGE, named)
    sources = {d.source for d in devices}
    walk.gaps += [
        Gap(reason=Reason.NOT_OFFERED, source=d.path, detail=f"drive {slot} has no serial number")
        for slot, d in named
        if d.data and d.path not in sources and not _is_absent(d)
    ]
    return devices


async def _read_power_supplies(walk: Walk, chassis: Sequence[Resource]) -> list[Device]:
    return _with_serial(DeviceKind.PSU, await list_power_supplies(walk, chassis))


async def list_power_supplies(
    walk: Walk, chassis: Sequence[Resource]
) -> list[tuple[str, Resource]]:
    """Return the slot and the resource of each power supply of the host's chassis.

    They are read from `PowerSubsystem`, or from the older `Power` where a chassis has no such
    subsystem.
    """
    gaps_before = len(walk.gaps)
    supplies = list[tuple[str, Resource]]()
    for resource in chassis:
        if _slot(resource).startswith(_INNER):
            continue
        if (path := link(resource.data, "PowerSubsystem")) is not None:
            subsystem = await walk.read(path)
            members = await walk.read_linked(subsystem.data, "PowerSupplies")
            supplies += [(_slot(m), m) for m in members]
        elif (path := link(resource.data, "Power")) is not None:
            power = (await walk.read(path)).data
            for number, shown in enumerate(objects(at(power, "PowerSupplies"))):
                slot = text(shown.get("MemberId")) or str(number)
                supplies.append((slot, Resource(f"{path}#/PowerSupplies/{number}", shown)))
    _excuse_errors(walk, gaps_before)
    return supplies[:SUPPLIES_MAX]


def _with_serial(kind: DeviceKind, parts: Sequence[tuple[str, Resource]]) -> list[Device]:
    return [
        Device(
            kind=kind,
            slot=slot,
            model=text(part.data.get("Model")),
            serial=serial,
            part=text(part.data.get("PartNumber")),
            health=read_health(part.data),
            source=part.path,
        )
        for slot, part in parts
        if (serial := text(part.data.get("SerialNumber"))) is not None and not _is_absent(part)
    ]


def _slot(resource: Resource) -> str:
    return text(resource.data.get("Id")) or name_of(resource.path)


def _is_absent(resource: Resource) -> bool:
    return text(at(resource.data, "Status", "State")) == "Absent"


def _excuse_errors(walk: Walk, gaps_before: int) -> None:
    """Turn error answers after `gaps_before` into gaps that leave the inventory complete.

    A service that answers each request for its power supplies with 500 is not silent. A request
    without an answer keeps its reason.
    """
    for number, gap in enumerate(walk.gaps[gaps_before:], gaps_before):
        if gap.reason is Reason.UNREACHABLE and gap.detail.startswith("HTTP status"):
            walk.gaps[number] = gap.model_copy(update={"reason": Reason.NOT_OFFERED})
