"""Reads one BMC of a rack: GETs alone, bounded in time, requests and bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.parsing import link, text
from provisioner.adapters.redfish.parts import host_system, of_type, power_of, read_health, read_id
from provisioner.adapters.redfish.walk import Allowance, Resource, Walk
from provisioner.integrations.racks.identity import (
    Kind,
    Marks,
    Place,
    Supply,
    classify,
    find_shelves,
    judge_shelf,
    read_cartridge,
    read_gpu_place,
    read_supply,
    read_switch_place,
)
from provisioner.integrations.racks.membership import UnitReading
from provisioner.model.outcome import Gap, Reason
from provisioner.ports import (
    BmcAddress,
    BmcTransport,
    Call,
    PortError,
    SwitchAddress,
    SwitchTransport,
)

LIMIT_S = 180.0  # a tray lists some 60 chassis; HMC and NVOS answer in up to a second each
REQUESTS_MAX = 4096
BYTES_MAX = 32 * 2**20
_LOCATION = "/nvue_v1/platform/chassis-location"
_LOCATION_S = 30.0


async def read_unit(
    transport: BmcTransport, address: BmcAddress, limit_s: float = LIMIT_S
) -> UnitReading:
    """Return what a BMC says of itself. Raises no `PortError`: why it says nothing is in it."""
    allowance = Allowance(limit_s, REQUESTS_MAX, BYTES_MAX)
    walk = Walk(transport, address, quirks.UNKNOWN, allowance=allowance)
    try:
        root = await walk.read_root()
        if not root:
            detail = walk.gaps[-1].detail if walk.gaps else "this is no Redfish service"
            return UnitReading(None, unread=detail)
        return await _Unit(walk, transport, address, allowance).read(root)
    except PortError as error:
        return UnitReading(None, unread=f"{error.reason}: {error}")


class _Unit:
    """One reading of one unit."""

    def __init__(
        self, walk: Walk, transport: BmcTransport, address: BmcAddress, allowance: Allowance
    ) -> None:
        self._walk = walk
        self._transport = transport
        self._address = address
        self._allowance = allowance

    async def read(self, root: Any) -> UnitReading:
        walk = self._walk
        chassis = [c for c in await walk.read_members(link(root, "Chassis")) if c.data]
        linked = link(root, "Systems")
        systems = [s for s in await walk.read_members(linked) if s.data]
        gpus = await self._read_gpus(systems)
        found = [(read_id(g), read_gpu_place(g.data, read_id(g))) for g in gpus]
        places = list(dict.fromkeys(place for _, place in found if place is not None))
        marks = Marks(
            vendor=text(root.get("Vendor")) or "",
            product=text(root.get("Product")) or "",
            systems=None if linked is None else tuple(read_id(s) for s in systems),
            chassis=tuple(read_id(c) for c in chassis),
            chassis_models=_texts(chassis, "Model"),
            chassis_makers=_texts(chassis, "Manufacturer"),
            power_equipment=link(root, "PowerEquipment") is not None,
            gpu_topologies=len({place.witness for place in places}),
        )
        told = classify(marks)
        cartridges = [c for c in chassis if read_id(c).startswith("CBC_")]
        places += [p for c in cartridges if (p := read_cartridge(c.data, read_id(c))) is not None]
        system = host_system(systems)
        reading = UnitReading(
            told.kind,
            told.evidence,
            model=_first_text(system, chassis, "Model"),
            serial=_first_text(system, chassis, "SerialNumber"),
            power=power_of(system).value,
            places=tuple(places),
            gpus=len({read_id(g) for g in gpus}),
            cartridges=_texts(cartridges, "SerialNumber"),
        )
        if told.kind is Kind.POWER_SHELF:
            reading = await self._read_shelf(reading, chassis)
        else:
            client = Redfish(
                self._transport,
                self._address,
                quirks.identify(root),
                allowance=self._allowance,
            )
            reading = await self._read_water(client, reading)
        # what is listed and answers 404 is not read either
        return replace(reading, gaps=tuple(walk.gaps))

    async def _read_water(self, client: Redfish, reading: UnitReading) -> UnitReading:
        try:
            return replace(reading, leaks=await client.read_leak_detectors())
        except PortError as error:
            gap = Gap(reason=error.reason, source="LeakDetectors", detail=str(error))
            self._walk.gaps.append(gap)
            return reading

    async def _read_gpus(self, systems: Sequence[Resource]) -> list[Resource]:
        """Return the GPUs behind this BMC; some trees list each below two systems."""
        listed = [await self._walk.read_linked(s.data, "Processors") for s in systems]
        return [p for each in listed for p in each if text(p.data.get("ProcessorType")) == "GPU"]

    async def _read_shelf(self, reading: UnitReading, chassis: Sequence[Resource]) -> UnitReading:
        """Add a shelf's supplies, each once; of two shelves behind one PMC no power is told."""
        shelves = find_shelves([(c.path, c.data) for c in of_type(chassis, "Chassis")])
        if len(shelves) != 1:
            return replace(reading, power="Unknown")
        body = shelves[0][0][1]
        members: list[Resource] = []
        gaps_before = len(self._walk.gaps)
        for path, alias in shelves[0]:
            subsystem = await self._walk.read_child(Resource(path, alias), "PowerSubsystem")
            listed = link(subsystem.data, "PowerSupplies") if subsystem is not None else None
            if listed is None:  # DMTF's own shelf links to its sensors by that name
                direct = await self._walk.read_child(Resource(path), "PowerSubsystem")
                listed = link(direct.data, "PowerSupplies") if direct is not None else None
            members = await self._walk.read_members(listed)
            if members:
                del self._walk.gaps[gaps_before:]  # the other name leads nowhere
                break
        supplies = tuple(read_supply(member.data) for member in members)
        state = judge_shelf(supplies)
        return replace(
            reading,
            model=text(body.get("Model")) or reading.model,
            serial=text(body.get("SerialNumber")) or "",
            power={Supply.ON: "On", Supply.OFF: "Off"}.get(state, "Unknown"),
            supplies=supplies,
            supplies_ill=tuple(read_id(m) for m in members if read_health(m.data) != "OK"),
        )


def _texts(resources: Sequence[Resource], name: str) -> tuple[str, ...]:
    return tuple(value for one in resources if (value := text(one.data.get(name))) is not None)


def _first_text(system: Resource | None, chassis: Sequence[Resource], name: str) -> str:
    ranked = ([system] if system is not None else []) + list(chassis)
    return next(iter(_texts(ranked, name)), "")


async def read_switch_location(transport: SwitchTransport, nvos: SwitchAddress) -> Place | Gap:
    """Return where NVOS says that an NVLink switch sits, or why it did not say it."""
    try:
        reply = await transport.request(nvos, Call("GET", _LOCATION, timeout_s=_LOCATION_S))
    except PortError as error:
        return Gap(reason=error.reason, source=_LOCATION, detail=str(error))
    if reply.status != 200:
        detail = f"HTTP status {reply.status}"
        return Gap(reason=Reason.NOT_OFFERED, source=_LOCATION, detail=detail)
    try:
        place = read_switch_place(json.loads(reply.body))
    except (ValueError, RecursionError):
        return Gap(reason=Reason.MALFORMED, source=_LOCATION, detail="the answer is no JSON")
    if place is None:
        detail = "it states no rack (serial N/A, or topology Loopback)"
        return Gap(reason=Reason.NOT_OFFERED, source=_LOCATION, detail=detail)
    return place
