"""Another host in the same place, and another card in the same slot: from the case to certified.

The simulated technician puts in hardware that nobody has seen: other serials, factory passwords,
the firmware that it was delivered with.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from exchanged import ANOTHER, another_card, another_gpu, connect, delivered, exchanges
from repairing import HOST, HOUR_S, Shop, lived

from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.outputs.host import HostView
from provisioner.model.case import Case, Ending, Stage
from provisioner.model.inventory import DeviceKind
from provisioner.model.node import Node, State
from provisioner.model.outcome import Reason

pytestmark = pytest.mark.long


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
    connect(shop.world, machine, *machine.bmcs)


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
        told = await exchanges(shop.world, shop.book).replace(case, "ada", "the host is sent back")
        assert isinstance(told, Case), told
        after = await certified(shop)
        revoked = await shop.world.store.evidence.is_revoked(before.certificate)
        inventory = await shop.world.store.evidence.get_inventory(HOST)
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
        world = shop.world
        shop.broken("dead_gpu")
        await shop.report("a GPU is gone")
        _, case = await shop.ended()
        another_gpu(world, "GPU_SXM_5")  # `dead_gpu` takes the fifth
        serial = another_card(world, "DPU_0")
        told = await exchanges(shop.world, shop.book).record_return(
            case, "ada", "DPU_0 replaced", ["DPU_0"]
        )
        assert isinstance(told, Case), told
        node = await certified(shop)
        inventory = await world.store.evidence.get_inventory(HOST)
        assert inventory is not None
        cards = {d.serial or "" for d in inventory.devices_of(DeviceKind.DPU)}
        return node, await shop.newest(), cards & {serial}

    (node, case, seen), wrong = lived(tmp_path, story, wanted=0)

    assert node.state is State.CERTIFIED, node.blockers
    assert not case.open
    assert seen
    assert wrong == []


def test_a_card_that_the_matrix_has_no_way_from_waits_for_people_and_not_for_remedies(
    tmp_path: Path,
) -> None:
    async def story(shop: Shop) -> tuple[Node, Case, Node, Case, str]:
        world = shop.world
        shop.broken("dead_gpu")
        await shop.report("a GPU is gone")
        _, case = await shop.ended()
        another_gpu(world, "GPU_SXM_5")
        another_card(world, "DPU_0")
        too_new = "bf-bundle-9.9.0-1_30.01_ubuntu-22.04_prod"
        world.site.machines[HOST].firmware["DPU_0", "DPU_OS"].running = too_new
        people = exchanges(world, shop.book)
        told = await people.record_return(case, "ada", "DPU_0 replaced", ["DPU_0"])
        assert isinstance(told, Case), told
        await certified(shop)
        await world.clock.sleep(6 * HOUR_S)
        waits, waiting = await shop.node(), await shop.newest()
        serial = another_card(world, "DPU_0", seed=98)
        told = await people.record_return(
            waiting, "ada", "DPU_0 replaced by an older one", ["DPU_0"]
        )
        assert isinstance(told, Case), told
        after = await certified(shop)
        await world.clock.sleep(120.0)  # the loop that closes cases comes after the certificate
        return waits, waiting, after, await shop.newest(), serial

    (waits, waiting, after, case, serial), wrong = lived(tmp_path, story, wanted=0)

    assert waits.state is State.QUARANTINED
    assert {b.reason for b in waits.blockers} == {Reason.DOWNGRADE}
    assert waiting.stage is Stage.RETURNING
    assert waiting.note == str(waits.blockers[0])
    assert len(waiting.tries) == len(case.tries)  # no remedy: only people can change it
    assert after.state is State.CERTIFIED, after.blockers
    assert case.ending is Ending.REPAIRED
    assert case.difference is not None
    assert serial in {c.after for c in case.difference.changes}  # of what came back last
    assert wrong == []
