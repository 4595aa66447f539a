"""What comes after certification: reclaim, swapped parts, reboots, expiry, and what is watched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import virtual_time
from branches import branch, certified_host, restart
from rig import World

from provisioner.model.node import Node, Placement, State
from provisioner.model.outcome import Reason
from provisioner.model.tenant import Tenant
from provisioner.planning.lifecycle.operator_requests import reclaim_node

HOUR_S = 3600.0
HOST = "su0-n00"
Result = TypeVar("Result")
LATE = {"handover_login", "remedies_max"}  # without a part in how a node is certified first


def lived(
    directory: Path,
    story: Callable[[World], Awaitable[Result]],
    *,
    wanted: int = 1,
    **settings: Any,
) -> tuple[Result, list[str]]:
    """A node that has come to its rest, then the story; its result, and what must never be.

    The node is this process's certified one where its settings matter later only (`LATE`).
    """

    async def tell(world: World) -> tuple[Result, list[str]]:
        if wanted:
            await want(world, wanted)
            await state(world, State.RELEASED)
        told = await story(world)
        wrong = await world.violations()
        await world.crash()
        return told, wrong

    async def late(world: World) -> tuple[Result, list[str]]:
        if settings:
            await restart(world, **settings)
        return await tell(world)

    async def main() -> tuple[Result, list[str]]:
        world = World(directory, nodes=1, seed=3, **settings)
        await world.take_in()
        await want(world, 0)
        await world.start()
        await state(world, State.CERTIFIED)
        return await tell(world)

    if settings.keys() <= LATE:
        return branch(certified_host, late)
    return virtual_time.run(main())


async def want(world: World, nodes: int) -> None:
    """The only tenant wants this many nodes."""
    for tenant in await world.store.tenants.list():
        asked = nodes if tenant.name == "blue" else 0
        await world.store.tenants.put(Tenant(**{**tenant.model_dump(), "nodes_wanted": asked}))


async def state(world: World, wanted: State, limit_s: float = 24 * HOUR_S) -> Node:
    """The host, once it is in this state and nothing is done with it."""
    until = world.clock.now() + limit_s
    while world.clock.now() < until:
        await world.clock.sleep(20.0)
        node = await world.store.nodes.get(HOST)
        assert node is not None
        if node.state is wanted and not any(
            o.node == HOST for o in await world.store.operations.list_active()
        ):
            return node
    raise AssertionError(f"{HOST} is {node.state}, not {wanted}: {node.note}")


async def states(world: World) -> list[str]:
    """The states that the host has entered, in order."""
    rows = await world.store.journal.list(limit=100_000)
    return [str(r["detail"]["to"]) for r in rows if r["node"] == HOST and r["kind"] == "state"]


def swap_gpu(world: World) -> None:
    """Another GPU in the same slot: that takes the power away for a while."""
    machine = world.site.machines[HOST]
    machine.devices["GPU_SXM_3"].serial = "1650000000042"
    machine.power_cycle(world.clock.now())


def test_a_reclaimed_node_is_fenced_converged_and_certified_anew(tmp_path: Path) -> None:
    async def story(world: World) -> tuple[Node, Node, list[str]]:
        await want(world, 0)
        released = await world.store.nodes.get(HOST)
        assert released is not None
        back = reclaim_node(released, world.clock.now())
        assert isinstance(back, Node)
        await world.store.nodes.save(back)
        return released, await state(world, State.CERTIFIED), await states(world)

    (released, again, entered), wrong = lived(tmp_path, story)

    after = entered[entered.index("released") + 1 :]
    assert after == ["draining", "converging", "validating", "certified"]
    assert again.placement is Placement.MAINTENANCE
    assert again.certificate != released.certificate
    assert again.tenant == ""
    assert wrong == []


@pytest.mark.long
def test_a_daemon_that_dies_while_it_fences_a_reclaimed_node_fences_it(tmp_path: Path) -> None:
    async def story(world: World) -> Node:
        await want(world, 0)
        released = await world.store.nodes.get(HOST)
        assert released is not None
        back = reclaim_node(released, world.clock.now())
        assert isinstance(back, Node)
        await world.store.nodes.save(back)
        for pause_s in (21.0, 3.0, 5.0, 8.0):
            await world.clock.sleep(pause_s)
            await world.crash()
            await world.start()
        return await state(world, State.CERTIFIED)

    again, wrong = lived(tmp_path, story)

    assert again.placement is Placement.MAINTENANCE
    assert wrong == []


@pytest.mark.long
def test_a_part_swapped_after_certification_is_certified_before_it_is_released(
    tmp_path: Path,
) -> None:
    async def story(world: World) -> tuple[Node, Node, tuple[str, ...]]:
        first = await state(world, State.CERTIFIED)
        swap_gpu(world)
        await want(world, 1)
        released = await state(world, State.RELEASED)
        held = await world.store.evidence.get_certificate(released.certificate)
        assert held is not None
        return first, released, held.serials

    (first, released, serials), wrong = lived(tmp_path, story, wanted=0)

    assert released.certificate != first.certificate
    assert any(s.endswith("=1650000000042") for s in serials)
    assert wrong == []


@pytest.mark.long
def test_a_swapped_part_that_is_not_well_is_never_released(tmp_path: Path) -> None:
    async def story(world: World) -> Node:
        await state(world, State.CERTIFIED)
        swap_gpu(world)
        world.site.machines[HOST].devices["GPU_SXM_3"].link_gen = 4
        await want(world, 1)
        return await state(world, State.QUARANTINED)

    node, wrong = lived(tmp_path, story, wanted=0)

    assert node.blockers[0].reason is Reason.CHECK_FAILED
    assert wrong == []


@pytest.mark.long
def test_a_part_swapped_under_a_tenant_is_told_and_its_certificate_revoked(tmp_path: Path) -> None:
    async def story(world: World) -> tuple[Node, bool]:
        swap_gpu(world)
        await world.clock.sleep(2 * HOUR_S)
        node = await state(world, State.RELEASED)
        return node, await world.store.evidence.is_revoked(node.certificate)

    (node, revoked), _ = lived(tmp_path, story)  # the truth itself says that it drifted

    assert [b.reason for b in node.blockers] == [Reason.DRIFT] * 2
    assert "GPU_SXM_3" in node.note
    assert revoked


@pytest.mark.long
def test_a_tenant_may_boot_what_it_was_given(tmp_path: Path) -> None:
    async def story(world: World) -> tuple[Node, bool]:
        world.site.machines[HOST].power_cycle(world.clock.now())
        await world.clock.sleep(2 * HOUR_S)
        node = await state(world, State.RELEASED)
        return node, await world.store.evidence.is_revoked(node.certificate)

    (node, revoked), _ = lived(tmp_path, story)

    assert node.blockers == ()
    assert not revoked


@pytest.mark.long
def test_an_expired_certificate_leads_back_to_the_checks(tmp_path: Path) -> None:
    async def story(world: World) -> tuple[Node, Node, list[str]]:
        first = await state(world, State.CERTIFIED)
        await world.clock.sleep(5 * HOUR_S)
        return first, await state(world, State.CERTIFIED), await states(world)

    (first, again, entered), wrong = lived(tmp_path, story, wanted=0, certificate_days=0.15)

    assert again.certificate != first.certificate
    assert entered[-3:] == ["converging", "validating", "certified"]
    assert wrong == []
