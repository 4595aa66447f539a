"""Reads what the switches of one NVLink domain say of their links and their controller now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from provisioner.integrations.racks.fabric.link_gate import (
    REVISIONS,
    SwitchView,
    list_switches,
    read_links,
)
from provisioner.integrations.racks.identity import Place
from provisioner.integrations.racks.nvue import NvosClient, read_controller
from provisioner.integrations.racks.plan import PlannedRack, PlannedUnit, RackPlan
from provisioner.integrations.racks.reading import read_switch_location
from provisioner.ports import PortError, Secret, SwitchAddress, SwitchTransport

Login = Callable[[PlannedUnit], SwitchAddress | None]
OURS = "PROVISIONER_NVOS_PASSWORD"
NVOS_USER = "PROVISIONER_NVOS_USER"  # of the daemon at a handover; without: admin


def build_login(user: str, password: str) -> Login:
    """Return what gives each switch's NVOS this login; without both, none has any."""
    known = bool(user and password)
    secret = Secret(password)
    return lambda unit: SwitchAddress(unit.nvos, user, secret) if unit.nvos and known else None


def log_in(plan: RackPlan, user: str, password: str) -> Mapping[str, SwitchAddress]:
    """Return this login at NVOS of each switch of a plan, by name."""
    login = build_login(user, password)
    told = {unit.name: login(unit) for rack in plan.racks for unit in rack.units}
    return {name: address for name, address in told.items() if address is not None}


async def look_at_switches(
    plan: RackPlan, domain: str, transport: SwitchTransport, login: Login
) -> Mapping[str, SwitchView]:
    """Return by name what each planned switch of a domain says; nothing is raised."""

    async def one(rack: PlannedRack, unit: PlannedUnit) -> SwitchView:
        address = login(unit)
        if address is None:
            return SwitchView(unread=f"no address of its NVOS in the plan, or no {OURS}")
        try:
            return await _look(rack, unit, transport, address)
        except (PortError, ValueError) as error:
            return SwitchView(unread=str(error)[:200])

    switches = list_switches(plan, domain)
    views = await asyncio.gather(*(one(rack, unit) for rack, unit in switches))
    return {unit.name: view for (_, unit), view in zip(switches, views, strict=True)}


async def _look(
    rack: PlannedRack, unit: PlannedUnit, transport: SwitchTransport, address: SwitchAddress
) -> SwitchView:
    place = await read_switch_location(transport, address)
    if not isinstance(place, Place):
        return SwitchView(unread=f"its place: {place.detail}"[:200])
    if (place.chassis_serial, place.slot) != (rack.chassis_serial, unit.slot):
        told = f"slot {place.slot} of chassis {place.chassis_serial}"
        return SwitchView(unread=f"another switch answers at its address, {told}"[:200])
    nvos = NvosClient(transport, address, None)
    links = {one: read_links(await nvos.read_interfaces(one)) for one in REVISIONS}
    controller = read_controller(unit.name, unit.tray_index or 0, await nvos.read_apps())
    return SwitchView(links, controller)
