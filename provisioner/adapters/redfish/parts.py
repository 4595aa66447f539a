"""Parts that can be swapped, out of systems, managers, chassis, processors and adapters. Pure.

A part without a serial number is listed all the same, with a Gap: a swap of it cannot be seen.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from provisioner.adapters.redfish.parsing import Json, at, name_of, objects, path_of, text
from provisioner.adapters.redfish.walk import Resource
from provisioner.model.inventory import Device, DeviceKind, Power
from provisioner.model.outcome import Gap, Reason

# ------------------------------------------------------------------------------
# Processors of several systems behind one BMC: which are one part, and which look alike. Pure.
#
# A baseboard that is a system of its own lists the host's CPUs again: GB200 under the same Ids,
# with the same serials; GH200 under other Ids ("HGX_CPU_0" beside "CPU_0"), without serials, at the
# same
# `Socket` (NVIDIA/libredfish, tests/mockups). Two hosts behind one BMC have a "CPU_0" each.


class Processor(NamedTuple):
    """A processor as one system lists it. `board`: the system is a baseboard."""

    device: Device
    system: str
    socket: str
    board: bool


def tell_apart(processors: Sequence[Processor]) -> tuple[Device, ...]:
    """Return each processor once, under the name that the host's own system gives it.

    Where two systems have different ones of the same name, the name begins with the system's.
    """
    unique: list[Processor] = []
    for one in sorted(processors, key=lambda p: p.board):  # stable: hosts' own first
        same = next((n for n, other in enumerate(unique) if _are_same(one, other)), None)
        if same is None:
            unique.append(one)
        else:
            unique[same] = unique[same]._replace(device=_fill(unique[same].device, one.device))
    names = Counter((p.device.kind, p.device.slot) for p in _by_system(unique))
    return tuple(
        p.device
        if names[p.device.kind, p.device.slot] == 1
        else p.device.model_copy(update={"slot": f"{p.system}/{p.device.slot}"})
        for p in unique
    )


def _by_system(processors: Iterable[Processor]) -> Iterable[Processor]:
    """Return one of each name per system; a name that a system lists twice stays one here."""
    return {(p.system, p.device.kind, p.device.slot): p for p in processors}.values()


def _are_same(one: Processor, other: Processor) -> bool:
    if one.device.kind is not other.device.kind or one.system == other.system:
        return False
    if one.device.serial and other.device.serial:
        return one.device.serial == other.device.serial
    if one.board == other.board:
        return False
    return one.device.slot == other.device.slot or (one.socket != "" and one.socket == other.socket)


def _fill(device: Device, more: Device) -> Device:
    """The device with what only the other listing knows."""
    update = {
        name: getattr(more, name)
        for name in ("model", "serial", "part")
        if getattr(device, name) is None
    }
    return device.model_copy(update=update)


_BASEBOARD_SYSTEM = re.compile(r"HGX|Baseboard", re.IGNORECASE)
_BASEBOARD_CHASSIS = re.compile(r"^(HGX_Chassis_\d+|UBB_\d+)$")
# GB200: each carries CPU and GPUs, and has FRU data of its own (docs/sources/hardware.md#modules)
_MODULE_CHASSIS = re.compile(r"^(?:HGX_|MGX_)?(ProcessorModule_\d+)$")
_NVSWITCH = re.compile(r"^(?:HGX_|MGX_)?(NVSwitch_\d+)$")
_GPU = re.compile(r"^(GPU|Video\.Slot)", re.IGNORECASE)
_DPU_SYSTEM = re.compile(r"bluefield", re.IGNORECASE)
# model names and part numbers of BlueField cards, as hosts list them (recorded trees)
_DPU_CARD = re.compile(r"BlueField|\bMBF\d|\b900-9D3", re.IGNORECASE)
_POWER = {"PoweringOn": Power.CHANGING, "PoweringOff": Power.CHANGING}
# parts whose swap must be seen, so that a missing serial number is worth a Gap
_SERIALS = frozenset(
    {DeviceKind.SYSTEM, DeviceKind.BASEBOARD, DeviceKind.GPU, DeviceKind.DPU, DeviceKind.NIC}
)


def read_id(resource: Resource) -> str:
    """A resource's Id, or the last segment of its path."""
    return text(resource.data.get("Id")) or name_of(resource.path)


def is_dpu(systems: Sequence[Resource]) -> bool:
    """Whether this BMC is a BlueField's own."""
    return any(_DPU_SYSTEM.search(read_id(s)) for s in systems)


def of_type(members: Iterable[Resource], schema: str) -> list[Resource]:
    """Members of this schema. Strangers in a collection are dropped (DGX lists some,
    docs/sources/bmc-faults.md#v4).
    """
    matching = []
    for member in members:
        odata_type = text(member.data.get("@odata.type")) or ""
        if (
            not member.data
            or not odata_type.startswith("#")
            or odata_type.startswith(f"#{schema}.")
        ):
            matching.append(member)
    return matching


def host_system(systems: Sequence[Resource]) -> Resource | None:
    """The system that customers use: not the HGX baseboard behind the same BMC."""
    hosts = [s for s in systems if not is_baseboard(s)]
    return next(iter(hosts or systems), None)


def is_baseboard(system: Resource) -> bool:
    return _BASEBOARD_SYSTEM.search(read_id(system)) is not None


def host_manager(managers: Sequence[Resource], system: Resource | None) -> Resource | None:
    """The BMC that this service runs on: the one that manages the host's system."""
    bmcs = [m for m in managers if m.data.get("ManagerType", "BMC") in ("BMC", None)]
    for manager in bmcs:
        served = objects(at(manager.data, "Links", "ManagerForServers"))
        if system is not None and system.path in [path_of(s) for s in served]:
            return manager
    own = [m for m in bmcs if not _BASEBOARD_SYSTEM.search(read_id(m))]
    return next(iter(own or bmcs or managers), None)


def power_of(system: Resource | None) -> Power:
    state = text(system.data.get("PowerState")) if system is not None else None
    if state in _POWER:
        return _POWER[state]
    return Power(state) if state in (Power.ON.value, Power.OFF.value) else Power.UNKNOWN


class Parts:
    """Collects devices of one BMC; `bmc` is its name within the node."""

    def __init__(self, bmc: str) -> None:
        self._bmc = bmc
        self._found: list[Device] = []
        self._processors: list[Processor] = []
        self._place = 0  # of the processors among the other devices
        self.gaps: list[Gap] = []

    @property
    def devices(self) -> tuple[Device, ...]:
        """Each part once."""
        unique: dict[tuple[str, str, str | None], Device] = {}
        before = self._found[: self._place]
        after = self._found[self._place :]
        for device in (*before, *tell_apart(self._processors), *after):
            unique.setdefault((device.kind, device.slot, device.serial), device)
        for device in unique.values():
            if device.serial is None and device.kind in _SERIALS:
                detail = f"{device.kind} {device.slot} has no serial number"
                gap = Gap(reason=Reason.NOT_OFFERED, source=device.source, detail=detail)
                if gap not in self.gaps:
                    self.gaps.append(gap)
        return tuple(unique.values())

    def read_systems(self, systems: Sequence[Resource]) -> None:
        """The host, and the baseboard where it is a system of its own."""
        for system in systems:
            board = _BASEBOARD_SYSTEM.search(read_id(system)) is not None
            self._add(DeviceKind.BASEBOARD if board else DeviceKind.SYSTEM, system)

    def read_managers(self, managers: Sequence[Resource]) -> None:
        """BMCs; services that merely present themselves as managers are none."""
        for manager in managers:
            if manager.data.get("ManagerType", "BMC") in ("BMC", "ManagementController", None):
                # DGX gives its HGX BMC the Id "bmc" beside the host's "BMC": the path is unique
                self._add(DeviceKind.BMC, manager, slot=name_of(manager.path))

    def read_chassis(self, chassis: Sequence[Resource]) -> None:
        """Baseboard (its FRU is in the chassis), NVSwitches, and a DPU's card."""
        for resource in chassis:
            name = read_id(resource)
            if _BASEBOARD_CHASSIS.match(name):
                self._baseboard(resource)
            elif match := _MODULE_CHASSIS.match(name):
                self._add(DeviceKind.BASEBOARD, resource, slot=match[1])
            elif match := _NVSWITCH.match(name):
                self._add(DeviceKind.NVSWITCH, resource, slot=match[1])

    def read_processors(self, system: Resource, processors: Sequence[Resource]) -> None:
        """CPUs and GPUs of one system that are present."""
        kinds = {"GPU": DeviceKind.GPU, "CPU": DeviceKind.CPU}
        board = _BASEBOARD_SYSTEM.search(read_id(system)) is not None
        self._place = len(self._found)
        for processor in processors:
            kind = kinds.get(text(processor.data.get("ProcessorType")) or "")
            if kind is not None and is_present(processor):
                device = _device(kind, processor, read_id(processor))
                socket = text(processor.data.get("Socket")) or ""
                self._processors.append(Processor(device, read_id(system), socket, board=board))

    def pcie_gpus(self, devices: Sequence[Resource]) -> None:
        """GPUs of a service that lists them as PCIe devices only (Supermicro)."""
        for device in devices:
            if _GPU.match(read_id(device)) and is_present(device):
                self._add(DeviceKind.GPU, device)

    def read_adapters(self, adapters: Sequence[Resource]) -> None:
        """Network cards as the host's BMC sees them; BlueField cards by model or part number."""
        for adapter in adapters:
            descriptions = (
                text(adapter.data.get(k)) or "" for k in ("Model", "PartNumber", "Name")
            )
            dpu = any(_DPU_CARD.search(s) for s in descriptions)
            self._add(DeviceKind.DPU if dpu else DeviceKind.NIC, adapter)

    def collect_parts(self, devices: Iterable[Device]) -> None:
        self._found += devices

    def set_macs(self, source: str, macs: tuple[str, ...]) -> None:
        """MAC addresses of the ports of the card that was read from `source`."""
        self._found = [
            d.model_copy(update={"macs": macs}) if d.source == source and macs else d
            for d in self._found
        ]

    def read_card(
        self, system: Resource, chassis: Sequence[Resource], base_mac: str | None
    ) -> None:
        """The BlueField whose own BMC this is. Its slot is the name of that BMC."""
        cards = [c for c in chassis if text(c.data.get("ChassisType")) == "Card"]
        best = (cards or [c for c in chassis if text(c.data.get("SerialNumber"))] or [system])[0]
        self._found.append(
            Device(
                kind=DeviceKind.DPU,
                slot=self._bmc,
                model=text(best.data.get("Model")) or text(system.data.get("Model")),
                serial=text(system.data.get("SerialNumber")) or text(best.data.get("SerialNumber")),
                part=text(best.data.get("PartNumber")),
                mac=base_mac,
                source=best.path,
            )
        )

    def _baseboard(self, chassis: Resource) -> None:
        """Its system has no FRU data on HGX; the chassis has."""
        data = chassis.data
        boards = [n for n, d in enumerate(self._found) if d.kind is DeviceKind.BASEBOARD]
        if not boards:
            self._add(DeviceKind.BASEBOARD, chassis)
            return
        board = self._found[boards[0]]
        self._found[boards[0]] = board.model_copy(
            update={
                "model": board.model or text(data.get("Model")),
                "serial": board.serial or text(data.get("SerialNumber")),
                "part": board.part or text(data.get("PartNumber")),
            }
        )

    def _add(self, kind: DeviceKind, resource: Resource, slot: str = "") -> None:
        self._found.append(_device(kind, resource, slot or read_id(resource)))


def _device(kind: DeviceKind, resource: Resource, slot: str) -> Device:
    data = resource.data
    return Device(
        kind=kind,
        slot=slot,
        model=text(data.get("Model")),
        serial=text(data.get("SerialNumber")),
        part=text(data.get("PartNumber")),
        uuid=text(data.get("UUID")) if kind is DeviceKind.GPU else None,
        health=read_health(data),
        source=resource.path,
    )


def read_health(data: Json) -> str | None:
    """Return the worst that a resource says of itself: its Health, or one of its Conditions.

    DSP0268, Status: a service may list a condition that its Health does not reflect yet.
    """
    said = [_spell(text(at(data, "Status", "Health")))]
    for condition in objects(at(data, "Status", "Conditions") or [], _CONDITIONS_MAX):
        severity = text(condition.get("Severity")) or text(condition.get("MessageSeverity"))
        said.append(one if (one := _spell(severity)) in _WORSE else None)
    return max(said, key=lambda one: _WORSE.index(one) if one in _WORSE else -1 if one else -2)


def _spell(word: str | None) -> str | None:
    """Return one of the schema's words as the schema spells it; some services do not."""
    if word is None:
        return None
    return next((w for w in _WORSE if w.casefold() == word.casefold()), word)


_WORSE = ("OK", "Warning", "Critical")
_CONDITIONS_MAX = 64  # of one resource


def boot_state_of(system: Resource | None) -> str | None:
    """Return how far the host has booted, as its service reports it."""
    return text(at(system.data, "BootProgress", "LastState")) if system is not None else None


def is_present(resource: Resource) -> bool:
    """False for a place without a part."""
    return text(at(resource.data, "Status", "State")) != "Absent"
