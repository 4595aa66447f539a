"""What is known of a node that could not be taken over: everything but what was silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig import World
from virtual_time import run

from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.node import Node, Placement, State
from provisioner.model.outcome import Reason

NODE = "su0-n00"


async def held(world: World) -> tuple[Node, Inventory | None]:
    """The node once it is in quarantine, and the inventory that is stored with it."""
    await world.start()
    for _ in range(1000):
        await world.clock.sleep(60.0)
        node = await world.store.nodes.get(NODE)
        assert node is not None
        if node.state is State.QUARANTINED:
            await world.crash()
            assert await world.violations() == []
            return node, await world.store.evidence.get_inventory(NODE)
    pytest.fail(f"{node.state}: {node.note}")


def change_password(world: World, bmc: str) -> None:
    """Somebody else did, after the node was stored."""
    service = world.services[world.site.urls[f"{NODE}/{bmc}"]]
    (account,) = service.accounts.accounts.values()
    account.password = "Somebody-Else-1"


def test_a_card_that_lets_nobody_in_hides_nothing_but_itself(tmp_path: Path) -> None:
    async def scenario() -> tuple[Node, Inventory | None]:
        world = World(tmp_path, nodes=1, seed=7)
        await world.take_in()
        change_password(world, "DPU_1")
        return await held(world)

    node, inventory = run(scenario())

    # a card that is silent is not a card that is missing: the host's BMC sees it
    assert [(b.reason, b.subject) for b in node.blockers] == [
        (Reason.LOGIN_REFUSED, f"{NODE}/DPU_1")
    ]
    assert inventory is not None
    assert len(inventory.devices_of(DeviceKind.GPU)) == 8
    assert len(inventory.devices_of(DeviceKind.DPU)) == 2
    assert inventory.find_component("host.driver", "host") is not None
    assert (Reason.LOGIN_REFUSED, f"{NODE}/DPU_1") in {(g.reason, g.source) for g in inventory.gaps}
    assert (node.profile, node.certificate, node.placement) == ("", "", Placement.NONE)


def test_a_host_that_lets_nobody_in_is_named_by_its_bmc(tmp_path: Path) -> None:
    async def scenario() -> tuple[Node, Inventory | None]:
        world = World(tmp_path, nodes=1, seed=7)
        await world.take_in()
        change_password(world, "host")
        return await held(world)

    node, inventory = run(scenario())

    assert [(b.reason, b.subject) for b in node.blockers] == [
        (Reason.LOGIN_REFUSED, f"{NODE}/host")
    ]
    assert inventory is None
