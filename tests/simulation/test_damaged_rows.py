"""A row that rots while the daemon runs parks its node; the other nodes go on to their tenants."""

from __future__ import annotations

from pathlib import Path

import virtual_time
from rig import World
from sqlalchemy import Connection, text

from provisioner.model.node import Node, State

HOUR_S = 3600.0
HURT, WELL = "su0-n00", "su0-n01"
DAMAGE = {
    "su0-n00": "UPDATE nodes SET body = '{', changed = 1000000 WHERE id = :node",
    "su0-n02": "UPDATE operations SET epoch = 'x' WHERE node = :node AND number = "
    "(SELECT max(number) FROM operations WHERE node = :node)",
    "su0-n03": "UPDATE ledger SET before = '[' WHERE node = :node",
    "su0-n04": "UPDATE inventories SET body = 'null' WHERE node = :node",
}


TENANT = "UPDATE tenants SET body = '{' WHERE vrf = 'RED'"


def test_a_damaged_tenant_costs_its_nodes_and_no_other(tmp_path: Path) -> None:
    async def main() -> tuple[Node | None, Node | None, list[str], bool]:
        world = World(tmp_path, nodes=2, seed=11)
        await world.take_in()
        await world.store.write(lambda c: c.execute(text(TENANT)))
        red = next(t.name for t in await world.store.tenants.list() if t.is_damaged)
        hurt = await world.store.nodes.get(HURT)
        assert hurt is not None
        await world.store.nodes.save(hurt.model_copy(update={"tenant": red}))
        await world.start()
        assert world.daemon is not None
        end = world.clock.now() + 12 * HOUR_S
        while world.clock.now() < end:
            await world.clock.sleep(600.0)
            well = await world.store.nodes.get(WELL)
            if well is not None and well.state in (State.CERTIFIED, State.RELEASED):
                break
        hurt, well = await world.store.nodes.get(HURT), await world.store.nodes.get(WELL)
        ticking = [t.get_name() for t in world.daemon._ticking if t.done()]
        moved = any("swp" in str(e) for e in await world.store.operations.list_entries(HURT))
        await world.crash()
        return hurt, well, ticking, moved

    hurt, well, ended, moved = virtual_time.run(main())

    assert ended == []
    assert well is not None
    assert well.state in (State.CERTIFIED, State.RELEASED)
    assert hurt is not None
    assert (hurt.state, hurt.is_parked) == (State.DISCOVERED, True)
    assert [b.subject.partition(",")[0] for b in hurt.blockers] == ["tenants"]
    assert not moved


def damage(connection: Connection) -> list[int]:
    """Spoil a row of each node; how many rows each statement reached."""
    done = [connection.execute(text(what), {"node": node}) for node, what in DAMAGE.items()]
    return [result.rowcount for result in done]


def test_each_damaged_row_costs_one_node(tmp_path: Path) -> None:
    async def main() -> tuple[list[int], dict[str, Node | None], set[str], list[str]]:
        world = World(tmp_path, nodes=5, seed=11)
        await world.take_in()
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
        nodes = {name: await world.store.nodes.get(name) for name in (WELL, *DAMAGE)}
        rows = await world.store.journal.list(0, 10_000)
        parked = {str(r["node"]) for r in rows if r["kind"] == "parked"}
        failed.close()  # type: ignore[attr-defined]
        ticking = [t.get_name() for t in world.daemon._ticking if t.done()]
        await world.crash()
        return reached, nodes, parked, ticking

    reached, nodes, parked, ended = virtual_time.run(main())

    assert min(reached) > 0
    assert ended == []
    well = nodes.pop(WELL)
    assert well is not None
    assert well.state in (State.CERTIFIED, State.RELEASED)
    assert all(node is not None and node.is_parked for node in nodes.values())
    assert parked == set(DAMAGE)
