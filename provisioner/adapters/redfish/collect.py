"""One BMC's inventory: which resources are read, and how they become one record."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from provisioner.adapters.redfish.obstacles import read_obstacles
from provisioner.adapters.redfish.parsing import (
    Json,
    at,
    link,
    mac,
    mac_of_guid,
    name_of,
    objects,
    path_of,
    text,
    truth,
)
from provisioner.adapters.redfish.parts import (
    Parts,
    boot_state_of,
    host_manager,
    host_system,
    is_dpu,
    of_type,
    power_of,
    read_health,
)
from provisioner.adapters.redfish.upkeep.leaks import find_places, read_places
from provisioner.adapters.redfish.walk import ROOT, Resource, Walk
from provisioner.components import Item, classify
from provisioner.components.kind import CURRENT, IDENTITY, STAGED
from provisioner.model.inventory import BackgroundCopy, Component, Device, DeviceKind, Inventory
from provisioner.model.outcome import Gap, Reason
from provisioner.quirks import UNKNOWN, Quirk

# ------------------------------------------------------------------------------
# Parts of the host that have collections of their own: memory, drives, power supplies, NIC ports.
#
# They are listed only with a serial number: a slot without one proves nothing, and most services
# list empty slots too. A resource that the service answers with an error is noted as a gap and left
# out; a drive or a list of drives that does not answer leaves the whole inventory incomplete,
# because drives are compared with the record of the last erasure.


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


# ------------------------------------------------------------------------------
# Firmware and software inventories as components. Pure: resources in, components and gaps out.
#
# Every member comes out exactly once. A value that is no version (a PSID, a GUID, "Not Present")
# and an image that does not run now (previous, backup, golden, staged) have kinds of their own and
# are never shown as running.


_EROT = re.compile(r"ERoT", re.IGNORECASE)


class Firmware:
    """Collects components of one BMC; `bmc` is its name within the node."""

    def __init__(self, bmc: str, *, dpu: bool) -> None:
        self.bmc = bmc
        self._dpu = dpu
        self._found: dict[str, Component] = {}  # by Id
        self._copies: list[tuple[str, str, str]] = []  # kind, expression for the Id, version
        self._paths: dict[str, tuple[str, ...]] = {}  # Id -> related items
        self.gaps: list[Gap] = []

    def add(self, members: Sequence[Resource], *, software: bool = False) -> None:
        for member in members:
            self._one(member, software=software)

    def build_components(self, chassis: Sequence[Resource]) -> tuple[Component, ...]:
        """All components, with what roots of trust and copies say about them, slots unique."""
        self._staged()
        self._background(chassis)
        taken: set[tuple[str, str]] = set()
        unique = []
        for component in self._found.values():
            slot = component.slot
            n = 2
            while (component.kind, slot) in taken:
                slot = f"{component.slot}#{n}"
                n += 1
            taken.add((component.kind, slot))
            unique.append(component.model_copy(update={"slot": slot}))
        return tuple(unique)

    def _one(self, member: Resource, *, software: bool) -> None:
        data = member.data
        ident = text(data.get("Id")) or name_of(member.path)
        related = tuple(
            p for p in (path_of(r) for r in objects(data.get("RelatedItem"))) if p is not None
        )
        version = text(data.get("Version"))
        item = Item(
            id=ident,
            name=text(data.get("Name")) or "",
            software_id=text(data.get("SoftwareId")) or "",
            version=version or "",
            related=" ".join(related),
            software=software,
            dpu=self._dpu,
        )
        kind, slot, of = classify(item, self.bmc)
        part = None
        if kind == IDENTITY:
            part = version
            version = None
            detail = f"{ident} is an identity, not a version"
            self._gap(Reason.NOT_OFFERED, member.path, detail)
        elif version is None and data:
            self._gap(Reason.VERSION_MISSING, member.path, f"{ident}: {_said(data)}")
        elif version is None:
            self._gap(Reason.VERSION_MISSING, member.path, f"{ident} could not be read")
        component = Component(
            kind=kind,
            slot=slot,
            version=version,
            updateable=truth(data.get("Updateable")),
            source=member.path,
            bmc=self.bmc,
            serial=text(data.get("SerialNumber")),
            part=part,
        )
        key = ident if ident not in self._found else member.path
        self._found[key] = component
        self._paths[key] = related
        if of and version is not None:
            self._copies.append((kind, of, version))

    def _staged(self) -> None:
        """A staging slot that differs from what runs is staged; a second listing must not differ.

        A second listing without a first one is the component itself.
        """
        for kind, expression, version in self._copies:
            bases = [i for i in self._found if re.fullmatch(expression, i)]
            for ident in bases:
                base = self._found[ident]
                if version == base.version:
                    continue
                if kind == STAGED:
                    self._found[ident] = base.model_copy(update={"staged": version})
                elif kind == CURRENT:
                    detail = f"installed is {base.version}, but {version} is listed as current"
                    self._gap(Reason.MALFORMED, base.source, detail)
        for ident, component in list(self._found.items()):
            if component.kind == CURRENT and not self._installed(ident):
                item = Item(id=ident.replace("Current-", "Installed-", 1))
                kind, slot, _ = classify(item, self.bmc)
                self._found[ident] = component.model_copy(update={"kind": kind, "slot": slot})

    def _installed(self, ident: str) -> bool:
        device = ident.rsplit("__", 1)[-1]
        return any(i.startswith("Installed-") and i.endswith(f"__{device}") for i in self._found)

    def _background(self, chassis: Sequence[Resource]) -> None:
        """`Oem.Nvidia.BackgroundCopyStatus` of a root of trust, onto its component."""
        for resource in chassis:
            reported = at(resource.data, "Oem", "Nvidia", "BackgroundCopyStatus")
            if reported is None:
                continue
            status = _copy_status(reported)
            if status is None:
                detail = f"background copy status {text(reported)!r} is not known"
                self._gap(Reason.MALFORMED, resource.path, detail)
                status = BackgroundCopy.IN_PROGRESS  # an unknown state counts as not done
            owners = [i for i in self._found if self._belongs(i, resource)]
            for ident in owners:
                changed = self._found[ident].model_copy(update={"background_copy": status})
                self._found[ident] = changed
            if not owners and status is not BackgroundCopy.COMPLETED:
                detail = "a background copy is not complete, and no listed component owns it"
                self._gap(Reason.BUSY, resource.path, detail)

    def _belongs(self, ident: str, chassis: Resource) -> bool:
        """Whether the root of trust's firmware item is this one: by its link, else by name."""
        if not _EROT.search(ident):
            return False
        name = text(chassis.data.get("Id")) or name_of(chassis.path)
        return chassis.path in self._paths[ident] or ident.replace("FW_", "") == name

    def _gap(self, reason: Reason, source: str, detail: str) -> None:
        self.gaps.append(Gap(reason=reason, source=source, detail=detail[:200]))


def _copy_status(reported: object) -> BackgroundCopy | None:
    try:
        return BackgroundCopy(str(reported))
    except ValueError:
        return None


def _said(data: object) -> str:
    version = at(data, "Version")
    if version is None:
        return "no version is given"
    if not isinstance(version, str):
        return "its version is not text"
    return f"{version!r:.80} is no version"


_COLLECT_EROT = re.compile(r"erot", re.IGNORECASE)
_OWN = {"FirmwareVersion": "host.bmc", "BiosVersion": "host.bios"}
_GPU_PATH = re.compile(r"/(GPU|Video\.Slot)[^/]*$", re.IGNORECASE)


async def read_everything(walk: Walk, quirk: Quirk, node: str, bmc: str) -> Inventory:
    """Versions and parts. Without a name, the BMC is called "host" or "DPU_0"."""
    root = await walk.read_root()
    systems = of_type(await walk.read_linked(root, "Systems"), "ComputerSystem")
    chassis = of_type(await walk.read_linked(root, "Chassis"), "Chassis")
    managers = of_type(await walk.read_linked(root, "Managers"), "Manager")
    dpu = is_dpu(systems)
    bmc = bmc or ("DPU_0" if dpu else "host")
    parts = Parts(bmc)
    parts.read_systems(systems)
    parts.read_managers(managers)
    firmware = await _firmware(walk, root, bmc, dpu=dpu)
    components = (*firmware.build_components(chassis), *_unlisted(firmware, systems, managers))
    if dpu:
        image = next((c for c in components if c.kind == IDENTITY and "SYS_IMAGE" in c.slot), None)
        base_mac = mac_of_guid(image.part) if image is not None else None
        parts.read_card(systems[0], chassis, base_mac or await _base_mac(walk, systems[0]))
    else:
        await _host_parts(walk, parts, systems, chassis)
    manager = host_manager(managers, host_system(systems))
    obstacles = await read_obstacles(walk, quirk, manager.data if manager else {}, bmc)
    leaks = () if dpu else await read_places(walk, await find_places(walk, chassis))
    devices = parts.devices
    gaps = (*_system_gaps(root, quirk, systems), *walk.gaps, *firmware.gaps, *parts.gaps)
    host = None if dpu else host_system(systems)
    return Inventory(
        node=node,
        vendor=quirk.name,
        system_serial=text(host.data.get("SerialNumber")) if host is not None else None,
        system_uuid=text(host.data.get("UUID")) if host is not None else None,
        model=_model(systems, devices),
        power=power_of(host_system(systems)),
        boot_state=boot_state_of(host_system(systems)),
        components=components,
        devices=devices,
        leaks=leaks,
        obstacles=obstacles,
        gaps=_once(gaps),
    )


async def read_versions(walk: Walk, quirk: Quirk, node: str, bmc: str) -> Inventory:
    """Versions, background copies and power only: what changes between two collections."""
    root = await walk.read_root()
    systems = of_type(await walk.read_linked(root, "Systems"), "ComputerSystem")
    paths = await walk.read_links(link(root, "Chassis"))
    erots = await walk.read_several(
        [p for p in paths if _COLLECT_EROT.search(p.rsplit("/", 1)[-1])]
    )
    firmware = await _firmware(walk, root, bmc, dpu=is_dpu(systems))
    listed = firmware.build_components(erots)
    managers: list[Resource] = []
    if not is_dpu(systems) and not any(c.kind in _OWN.values() for c in listed):
        managers = of_type(await walk.read_linked(root, "Managers"), "Manager")
    components = (*listed, *_unlisted(firmware, systems, managers))
    return Inventory(
        node=node,
        vendor=quirk.name,
        power=power_of(host_system(systems)),
        boot_state=boot_state_of(host_system(systems)),
        components=components,
        gaps=_once((*_system_gaps(root, quirk, systems), *walk.gaps, *firmware.gaps)),
    )


async def read_identity(walk: Walk, quirk: Quirk) -> Inventory:
    """Who this is: serial, UUID, model; of a BlueField, the card. No versions."""
    root = await walk.read_root()
    systems = of_type(await walk.read_linked(root, "Systems"), "ComputerSystem")
    dpu = is_dpu(systems)
    parts = Parts("")
    parts.read_systems(systems)
    if dpu:
        # a system without a serial number is identified by its chassis
        has_serial = text(systems[0].data.get("SerialNumber")) is not None
        chassis = [] if has_serial else of_type(await walk.read_linked(root, "Chassis"), "Chassis")
        parts.read_card(systems[0], chassis, await _base_mac(walk, systems[0]))
    host = None if dpu else host_system(systems)
    devices = parts.devices
    return Inventory(
        node="",
        vendor=quirk.name,
        system_serial=text(host.data.get("SerialNumber")) if host is not None else None,
        system_uuid=text(host.data.get("UUID")) if host is not None else None,
        model=_model(systems, devices),
        power=power_of(host_system(systems)),
        devices=devices,
        gaps=_once((*_system_gaps(root, quirk, systems), *walk.gaps, *parts.gaps)),
    )


async def _firmware(walk: Walk, root: Json, bmc: str, *, dpu: bool) -> Firmware:
    firmware = Firmware(bmc, dpu=dpu)
    path = link(root, "UpdateService")
    service = (await walk.read(path)).data if path is not None else {}
    if path is None:
        firmware.gaps.append(_missing(ROOT, "no UpdateService"))
    elif service and link(service, "FirmwareInventory") is None:
        firmware.gaps.append(_missing(path, "no FirmwareInventory"))
    firmware.add(await walk.read_linked(service, "FirmwareInventory"))
    # a BlueField's is empty: all that it has is in the other one
    software = None if dpu else link(service, "SoftwareInventory")
    if software is not None and software != link(service, "FirmwareInventory"):
        gaps_before = len(walk.gaps)
        members = await walk.read_members(software)
        if not members:
            del walk.gaps[gaps_before:]  # services link to it whether they have it or not (Dell)
        listed = {c.source for c in firmware.build_components(())}
        firmware.add([m for m in members if m.path not in listed], software=True)
    return firmware


def _unlisted(
    firmware: Firmware, systems: list[Resource], managers: list[Resource]
) -> list[Component]:
    """BMC and BIOS of a service without a firmware inventory, from their own resources.

    Only where the inventory has neither: one thing must not be listed twice, under two versions
    (DGX: Manager 23.11.20 beside HostBMC_0 23.11.21, docs/sources/hardware.md#manager-version).
    """
    if is_dpu(systems) or any(c.kind in _OWN.values() for c in firmware.build_components(())):
        return []
    host = host_system(systems)
    manager = host_manager(managers, host)  # a baseboard's own is no host BMC
    sources = [("FirmwareVersion", manager), ("BiosVersion", host)]
    return [
        Component(
            kind=_OWN[field],
            slot=name_of(resource.path),
            version=version,
            source=resource.path,
            bmc=firmware.bmc,
        )
        for field, resource in sources
        if resource is not None and (version := text(resource.data.get(field))) is not None
    ]


async def _host_parts(
    walk: Walk, parts: Parts, systems: list[Resource], chassis: list[Resource]
) -> None:
    """Processors, network cards and baseboard, each from where this service has it."""
    for system in systems:
        listed = of_type(await walk.read_linked(system.data, "Processors"), "Processor")
        parts.read_processors(system, listed)
    parts.read_chassis(chassis)
    for resource in chassis:
        adapters = of_type(
            await walk.read_linked(resource.data, "NetworkAdapters"), "NetworkAdapter"
        )
        parts.read_adapters(adapters)
        for adapter in adapters:
            parts.set_macs(adapter.path, await read_port_macs(walk, adapter))
    parts.collect_parts(await read_host_parts(walk, host_system(systems), chassis))
    if any(d.kind is DeviceKind.GPU for d in parts.devices):
        return
    for resource in chassis:
        paths = await walk.read_links(link(resource.data, "PCIeDevices"))
        parts.pcie_gpus(await walk.read_several([p for p in paths if _GPU_PATH.search(p)]))


async def _base_mac(walk: Walk, system: Resource) -> str | None:
    """From NVIDIA's part of a BlueField's system, which hangs in NIC mode on old BMCs."""
    path = link(system.data, "Oem", "Nvidia")
    return mac((await walk.read(path)).data.get("BaseMAC")) if path is not None else None


def _model(systems: list[Resource], devices: tuple[Device, ...]) -> str | None:
    """The host's model; the baseboard's where the host names none (GB200)."""
    host = host_system(systems)
    own = text(host.data.get("Model")) if host is not None else None
    boards = [d.model for d in devices if d.kind is DeviceKind.BASEBOARD]
    return own or next((m for m in boards if m), None)


def _system_gaps(root: Json, quirk: Quirk, systems: list[Resource]) -> list[Gap]:
    gaps = [
        Gap(reason=Reason.POWER, source=one.path, detail=_PAUSED)
        for one in systems
        if text(one.data.get("PowerState")) == "Paused"
    ]
    if quirk.name == UNKNOWN.name:
        detail = f"no vendor declaration fits {text(root.get('Vendor')) or 'an unnamed vendor'}"
        gaps.append(Gap(reason=Reason.UNKNOWN_VENDOR, source=ROOT, detail=detail))
    gaps += [
        _missing(ROOT, f"no {name}")
        for name in ("Systems", "Chassis", "Managers")
        if link(root, name) is None
    ]
    if link(root, "Systems") is not None and not systems:
        gaps.append(_missing(link(root, "Systems") or ROOT, "no system is listed"))
    return gaps


# of a BlueField whose cores are down, or wait in UEFI's shell: "On" is taken, and starts nothing
# (docs/sources/hardware.md#bluefield4)
_PAUSED = "PowerState is Paused: it neither runs nor is off, and nothing here restarts it"


def _missing(source: str, detail: str) -> Gap:
    return Gap(reason=Reason.NOT_OFFERED, source=source, detail=detail)


def _once(gaps: tuple[Gap, ...]) -> tuple[Gap, ...]:
    return tuple(dict.fromkeys(gaps))
