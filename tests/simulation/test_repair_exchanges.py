"""Another host in the same place, and another card in the same slot: from the case to certified.

The simulated technician puts in hardware that nobody has seen: other serials, factory passwords,
the firmware that it was delivered with.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from repairing import HOST, HOUR_S, Shop, lived

from provisioner.control.case_exchange import Exchanges
from provisioner.model.case import Case, Ending
from provisioner.model.inventory import DeviceKind
from provisioner.model.node import Node, State
from provisioner.ports import Secret
from provisioner.sim.bmc import from_files, make_service
from provisioner.sim.build import build_machine
from provisioner.sim.host import HostView
from provisioner.sim.machine import Machine
from provisioner.sim.site import HOST_FACTORY_PASSWORD, Site

pytestmark = pytest.mark.long

ANOTHER = 99  # the seed of what nobody has seen before


def delivered(site: Site) -> Machine:
    """A host as it comes from the factory."""
    machine = build_machine(HOST, site.schedule, ANOTHER)
    machine.bmcs["host"].password = HOST_FACTORY_PASSWORD
    return machine


def connect(shop: Shop, machine: Machine, *names: str) -> None:
    """These BMCs answer at their cables from now on, with their factory accounts."""
    from provisioner.demo_site import ARTIFACTS

    world = shop.world
    for name in names:
        url = world.site.urls[f"{HOST}/{name}"]
        fetch = from_files(dict(ARTIFACTS))
        world.services[url] = make_service(machine, name, world.clock, fetch)


def _carries(machine: Machine, slot: str) -> bool:
    card = machine.devices.get(slot)
    return card is not None and card.present and machine.host.power == "On"


def rack(shop: Shop, machine: Machine) -> None:
    """It stands where the old one stood, on the same cables."""
    site = shop.world.site
    old = site.hosts[HOST]
    site.machines[HOST] = machine
    new = HostView(machine, old.cables, f"{ANOTHER}/{HOST}/inband")
    new.peers = old.peers
    for place, (view, rail) in list(new.peers.items()):
        if view is old:
            new.peers[place] = (new, rail)  # type: ignore[index]  # one dictionary of the site
    site.hosts[HOST] = new
    for cable in old.cables:
        card = machine.devices[cable.nic_slot]
        seen = cable.switch.neighbours[cable.interface]
        up = partial(_carries, machine, cable.nic_slot)
        cable.switch.neighbours[cable.interface] = replace(seen, mac=card.mac, up=up)
    connect(shop, machine, *machine.bmcs)


def exchanges(shop: Shop) -> Exchanges:
    """As the command line makes them, with the factory logins of the list."""
    world = shop.world
    known = world.site.expected()["factory_credentials"]

    async def factory(vendor: str) -> tuple[str, Secret] | None:
        login = known.get(vendor)
        return None if login is None else (login["username"], Secret(login["password"]))

    return Exchanges(world.store, shop.desk, world.vault, world.clock, factory)


async def certified(shop: Shop, limit_s: float = 48 * HOUR_S) -> Node:
    """The host once it is certified and rests, or as it is when time is over."""
    end = shop.world.clock.now() + limit_s
    while shop.world.clock.now() < end:
        await shop.world.clock.sleep(60.0)
        node = await shop.node()
        if node.state in (State.CERTIFIED, State.QUARANTINED):
            return node
    return await shop.node()


def test_another_host_keeps_the_place_and_nothing_else(tmp_path: Path) -> None:
    async def story(shop: Shop) -> tuple[Node, Node, Case, bool, str]:
        before = await shop.node()
        shop.broken("dead_gpu")
        await shop.report("a GPU is gone")
        _, case = await shop.ended()
        machine = delivered(shop.world.site)
        rack(shop, machine)
        told = await exchanges(shop).replace(case, "ada", "the host is sent back")
        assert isinstance(told, Case), told
        after = await certified(shop)
        revoked = await shop.world.store.revoked(before.certificate)
        inventory = await shop.world.store.inventory(HOST)
        assert inventory is not None
        assert inventory.system_serial == machine.host.serial
        return before, after, told, bool(revoked), machine.host.serial

    (before, after, case, revoked, _), wrong = lived(tmp_path, story, wanted=0)

    assert after.state is State.CERTIFIED, after.blockers
    assert case.ending is Ending.REPLACED
    assert (after.location, after.ports, after.address) == (
        before.location,
        before.ports,
        before.address,
    )
    assert revoked
    assert after.certificate != before.certificate
    assert wrong == []


def test_another_card_is_taken_over_and_proved(tmp_path: Path) -> None:
    async def story(shop: Shop) -> tuple[Node, Case, set[str]]:
        world, site = shop.world, shop.world.site
        shop.broken("dead_gpu")
        await shop.report("a GPU is gone")
        _, case = await shop.ended()
        machine, spare = site.machines[HOST], delivered(site)
        for slot in ("DPU_0", "GPU_SXM_5"):  # `dead_gpu` takes the fifth
            machine.devices[slot].serial = spare.devices[slot].serial
        for device in machine.devices.values():
            device.present = True
        machine.bmcs["DPU_0"].serial = spare.bmcs["DPU_0"].serial
        connect(shop, machine, "DPU_0")
        machine.power_cycle(world.clock.now())
        told = await exchanges(shop).returned(case, "ada", "DPU_0 replaced", ["DPU_0"])
        assert isinstance(told, Case), told
        node = await certified(shop)
        inventory = await world.store.inventory(HOST)
        assert inventory is not None
        cards = {d.serial or "" for d in inventory.devices_of(DeviceKind.DPU)}
        return node, await shop.newest(), cards & {spare.devices["DPU_0"].serial}

    (node, case, seen), wrong = lived(tmp_path, story, wanted=0)

    assert node.state is State.CERTIFIED, node.blockers
    assert not case.open
    assert seen
    assert wrong == []
