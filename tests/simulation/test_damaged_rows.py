"""A row that rots while the daemon runs parks its node; the other nodes go on to their tenants."""

from __future__ import annotations

from pathlib import Path

import pytest
import virtual_time
from rig import World
from sqlalchemy import text

from provisioner.model.node import Node, State

HOUR_S = 3600.0
HURT, WELL = "su0-n00", "su0-n01"
DAMAGE = {
    "a node": f"UPDATE nodes SET body = '{{', changed = 1000000 WHERE id = '{HURT}'",
    "an operation": f"UPDATE operations SET epoch = 'x' WHERE node = '{HURT}' AND number = "
    f"(SELECT max(number) FROM operations WHERE node = '{HURT}')",
    "an intent": f"UPDATE ledger SET before = '[' WHERE node = '{HURT}'",
    "an inventory": f"UPDATE inventories SET body = 'null' WHERE node = '{HURT}'",
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


@pytest.mark.parametrize("what", DAMAGE)
def test_one_damaged_row_costs_one_node(tmp_path: Path, what: str) -> None:
    async def main() -> tuple[Node | None, Node | None, set[str], list[str]]:
        world = World(tmp_path, nodes=2, seed=11)
        await world.take_in()
        await world.start()
        assert world.daemon is not None
        await world.clock.sleep(0.5 * HOUR_S)
        await world.store.write(lambda c: c.execute(text(DAMAGE[what])))
        failed = world.daemon.engine.failed()
        end = world.clock.now() + 12 * HOUR_S
        while world.clock.now() < end:
            await world.clock.sleep(600.0)
            node = await world.store.nodes.get(WELL)
            if node is not None and node.state in (State.CERTIFIED, State.RELEASED):
                break
        hurt, well = await world.store.nodes.get(HURT), await world.store.nodes.get(WELL)
        rows = await world.store.journal.list(0, 10_000)
        parked = {str(r["node"]) for r in rows if r["kind"] == "parked"}
        failed.close()  # type: ignore[attr-defined]
        ticking = [t.get_name() for t in world.daemon._ticking if t.done()]
        await world.crash()
        return hurt, well, parked, ticking

    hurt, well, parked, ended = virtual_time.run(main())

    assert ended == []
    assert well is not None
    assert well.state in (State.CERTIFIED, State.RELEASED)
    assert hurt is not None
    assert hurt.is_parked
    assert parked == {HURT}
