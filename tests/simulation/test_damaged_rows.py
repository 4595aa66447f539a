"""A row that rots while the daemon runs parks its node; the other nodes go on to their tenants."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import virtual_time
from rig import World
from sqlalchemy import Connection, text

from provisioner.model.node import Node, State

HOUR_S = 3600.0
WELL = "su0-n01"
DAMAGE = {
    "su0-n00": "UPDATE nodes SET body = '{', changed = 1000000 WHERE id = :node",
    "su0-n02": "UPDATE operations SET epoch = 'x' WHERE node = :node AND number = "
    "(SELECT max(number) FROM operations WHERE node = :node)",
    "su0-n03": "UPDATE ledger SET before = '[' WHERE node = :node",
    "su0-n04": "UPDATE inventories SET body = 'null' WHERE node = :node",
}
TENANT = "UPDATE tenants SET body = '{' WHERE vrf = 'RED'"
GUEST = "su0-n05"  # of the tenant whose row is damaged


def damage(connection: Connection) -> list[int]:
    """Spoil a row of each node; how many rows each statement reached."""
    done = [connection.execute(text(what), {"node": node}) for node, what in DAMAGE.items()]
    return [result.rowcount for result in done]


async def give_to_damaged_tenant(world: World) -> None:
    """Damage a tenant's row, and let a node be for that tenant."""
    await world.store.write(lambda c: c.execute(text(TENANT)))
    red = next(t.name for t in await world.store.tenants.list() if t.is_damaged)
    guest = await world.store.nodes.get(GUEST)
    assert guest is not None
    await world.store.nodes.save(guest.model_copy(update={"tenant": red}))


@dataclass(frozen=True)
class Told:
    """What became of the site."""

    reached: list[int]  # rows, by statement
    nodes: dict[str, Node | None]
    parked: set[str]
    ended: list[str]  # loops that should tick
    moved: bool  # a port of the guest


@pytest.mark.slow
def test_each_damaged_row_costs_its_nodes_and_no_other(tmp_path: Path) -> None:
    async def main() -> Told:
        world = World(tmp_path, nodes=6, seed=11)
        await world.take_in()
        await give_to_damaged_tenant(world)
        await world.start()
        assert world.daemon is not None
        await world.clock.sleep(0.5 * HOUR_S)
        reached = await world.store.write(damage)
        failed = world.daemon.engine.failed()
        end = world.clock.now() + 12 * HOUR_S
        while world.clock.now() < end:
            await world.clock.sleep(600.0)
            node = await world.store.nodes.get(WELL)
            if node is not None and node.state in (State.CERTIFIED, State.RELEASED):
                break
        nodes = {name: await world.store.nodes.get(name) for name in (WELL, GUEST, *DAMAGE)}
        rows = await world.store.journal.list(0, 10_000)
        parked = {str(r["node"]) for r in rows if r["kind"] == "parked"}
        failed.close()  # type: ignore[attr-defined]
        ended = [t.get_name() for t in world.daemon._ticking if t.done()]
        moved = any("swp" in str(e) for e in await world.store.operations.list_entries(GUEST))
        await world.crash()
        return Told(reached, nodes, parked, ended, moved)

    told = virtual_time.run(main())

    assert min(told.reached) > 0
    assert told.ended == []
    well, guest = told.nodes.pop(WELL), told.nodes.pop(GUEST)
    assert well is not None
    assert well.state in (State.CERTIFIED, State.RELEASED)
    assert guest is not None
    assert (guest.state, guest.is_parked) == (State.DISCOVERED, True)
    assert [b.subject.partition(",")[0] for b in guest.blockers] == ["tenants"]
    assert not told.moved
    assert all(node is not None and node.is_parked for node in told.nodes.values())
    assert set(DAMAGE) <= told.parked <= {*DAMAGE, GUEST}
