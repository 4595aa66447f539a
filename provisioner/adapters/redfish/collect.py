"""One BMC's inventory: which resources are read, and how they become one record."""

from __future__ import annotations

import re

from provisioner.adapters.redfish.firmware import Firmware
from provisioner.adapters.redfish.host_parts import read_host_parts, read_port_macs
from provisioner.adapters.redfish.obstacles import read_obstacles
from provisioner.adapters.redfish.parsing import Json, link, mac, mac_of_guid, name_of, text
from provisioner.adapters.redfish.parts import (
    Parts,
    boot_state_of,
    host_manager,
    host_system,
    is_dpu,
    of_type,
    power_of,
)
from provisioner.adapters.redfish.upkeep.leaks import find_places, read_places
from provisioner.adapters.redfish.walk import ROOT, Resource, Walk
from provisioner.components.bluefield import IDENTITY
from provisioner.model.inventory import Component, Device, DeviceKind, Inventory
from provisioner.model.outcome import Gap, Reason
from provisioner.quirks import UNKNOWN, Quirk

_EROT = re.compile(r"erot", re.IGNORECASE)
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
    components = (
        *firmware.build_components(chassis),
        *_unlisted(firmware, systems, managers),
    )
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
    gaps = (*_root_gaps(root, quirk, systems), *walk.gaps, *firmware.gaps, *parts.gaps)
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
    erots = await walk.read_several([p for p in paths if _EROT.search(p.rsplit("/", 1)[-1])])
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
        gaps=_once((*_root_gaps(root, quirk, systems), *walk.gaps, *firmware.gaps)),
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
        gaps=_once((*_root_gaps(root, quirk, systems), *walk.gaps, *parts.gaps)),
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
    (DGX: Manager 23.11.20 beside HostBMC_0 23.11.21, facts V7).
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


def _root_gaps(root: Json, quirk: Quirk, systems: list[Resource]) -> list[Gap]:
    gaps = []
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


def _missing(source: str, detail: str) -> Gap:
    return Gap(reason=Reason.NOT_OFFERED, source=source, detail=detail)


def _once(gaps: tuple[Gap, ...]) -> tuple[Gap, ...]:
    return tuple(dict.fromkeys(gaps))
