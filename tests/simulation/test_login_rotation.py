"""Passwords of a site's BMCs are changed by its daemon, which is killed again and again."""

from __future__ import annotations

from pathlib import Path

import pytest
from rig import World
from virtual_time import run

from provisioner.model.credential import RotationCause
from provisioner.model.node import Node, State
from provisioner.model.tenant import Tenant
from provisioner.planning.lifecycle.credential_rotation import WANT, list_logins
from provisioner.planning.lifecycle.operator_requests import reclaim_node

DAY_S = 86_400.0


async def passwords(world: World) -> dict[str, str]:
    """The password in force of each BMC that ours opens; "" where none that is stored does."""
    stored = {}
    for node in await world.store.nodes.list():
        for bmc in list_logins(node):
            name = f"{node.id}/{bmc.name}"
            (account,) = world.services[world.site.urls[name]].accounts.accounts.values()
            logins = (await world.vault.current(name), await world.vault.pending(name))
            known = {login[1].reveal() for login in logins if login is not None}
            stored[name] = account.password if account.password in known else ""
    return stored


async def journeys(world: World) -> dict[str, State]:
    return {n.id: n.state for n in await world.store.nodes.list()}


async def rested(world: World) -> None:
    """Wait until the hosts have tenants, and every login has its row."""
    for _ in range(1500):
        await world.clock.sleep(60.0)
        nodes = await world.store.nodes.list()
        if {n.state for n in nodes} <= {State.RELEASED, State.QUARANTINED}:
            break
    await world.clock.sleep(60.0)


@pytest.mark.long
def test_all_passwords_change_at_once_under_a_daemon_that_is_killed_without_a_loss(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        world = World(tmp_path, 1, 5)
        await world.take_in()
        await world.start()
        await rested(world)
        before = await passwords(world)
        states = await journeys(world)
        assert "" not in before.values()
        book = world.store.credential_standings
        assert (await book.summarize(world.clock.now())).count == len(before) > 2

        world.wire.lost = 0.02
        assert await book.demand(RotationCause.EMERGENCY, world.clock.now()) == len(before)
        for pause_s in (20.3, 0.7, 1.1, 2.3, 3.1, 5.9, 9.7):
            await world.clock.sleep(pause_s)
            await world.crash()
            assert "" not in (await passwords(world)).values()
            await world.start()
        world.wire.lost = 0.0
        for _ in range(24):
            await world.clock.sleep(300.0)
            if not (await book.summarize(world.clock.now())).due:
                break
        after = await passwords(world)
        assert "" not in after.values()
        assert {name for name in after if after[name] == before[name]} == set()
        assert len(set(after.values())) == len(after)
        assert await journeys(world) == states
        rows = await world.store.journal.list(limit=100_000)
        changed = [r for r in rows if r["kind"] == "credential" and r["detail"].get("cause")]
        assert {r["detail"]["cause"] for r in changed} == {"emergency"}
        assert await world.violations() == []
        await world.crash()

    run(story())


@pytest.mark.long
def test_passwords_change_by_their_age_and_when_a_tenant_gives_its_host_back(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        world = World(tmp_path, 1, 5, credential_days=100.0, credential_after_tenant=True)
        await world.take_in()
        await world.store.tenants.put(Tenant(name="red", vrf="RED", nodes_wanted=1))
        await world.start()
        await rested(world)
        (node,) = await hosts(world)
        assert node.state is State.RELEASED
        first = await passwords(world)

        await world.store.tenants.put(Tenant(name="red", vrf="RED", nodes_wanted=0))
        (node,) = await hosts(world)
        back = reclaim_node(node, world.clock.now())
        assert isinstance(back, Node)
        await world.store.nodes.save(back)
        for _ in range(600):
            await world.clock.sleep(60.0)
            (node,) = await hosts(world)
            if not node.served:
                break
        assert not node.served, node.note
        second = await passwords(world)
        assert all(second.values())
        assert {name for name in second if second[name] == first[name]} == set()

        changed_at = {s.name: s.changed_at for s in await standings(world)}
        await world.store.credential_standings.remove(list(changed_at))  # as of an old database
        await world.store.credential_standings.enroll(
            dict.fromkeys(changed_at, node.id), world.clock.now() - 101 * DAY_S
        )
        for _ in range(300):  # the host is validated first
            await world.clock.sleep(60.0)
            rows = await standings(world)
            if all(row.changed_at > world.clock.now() - DAY_S for row in rows):
                break
        third = await passwords(world)
        assert all(third.values())
        assert {name for name in third if third[name] == second[name]} == set()
        assert not [o for o in await world.store.operations.list_active() if o.want == WANT]
        assert await world.violations() == []
        await world.crash()

    async def hosts(world: World) -> list[Node]:
        return [n for n in await world.store.nodes.list() if n.kind == "host"]

    async def standings(world: World) -> list:  # type: ignore[type-arg]
        return list(await world.store.credential_standings.list_page("", 100))

    run(story())
