"""Releases on real FRRouting: what the REST API is told changes what packets reach."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from frr_boxes import why_not
from frr_plants import PLANTS, Plant
from frr_probes import connects, listening, pings
from frr_site import BMC, EDGE_HOST, LEAF_OOB, STORAGE_HOST, UNLISTED, FrrSite, frr_site
from frr_world import World, opened

from provisioner.execution.tenancy.release_sequence import Releases
from provisioner.model.node import Placement
from provisioner.model.recovery import RowVerdict
from provisioner.planning.tenancy.tenants import Request

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

RED, BLUE, MAINT = "red", "blue", ""
BLUE_VRF = "BLUE"
A, B, C, D = range(4)  # nodes
RAILS = (0, 1)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrrSite]:
    """Two leaves, two spines, four nodes; made once, in some ten seconds."""
    with frr_site(tmp_path_factory.mktemp("frr") / "site") as made:
        yield made


def play(site: FrrSite, scenario: Callable[[World], Awaitable[Any]], **settings: Any) -> Any:
    """A scenario on nodes in maintenance, and two tenants; red has storage and an outside."""

    async def main() -> Any:
        async with opened(site, **settings) as world:
            fenced = await asyncio.gather(*(world.fence(n) for n in (A, B, C, D)))
            assert list(fenced) == [()] * 4, fenced
            await world.tenant(RED, storage=("STORAGE",), outside=site.outside())
            await world.tenant(BLUE)
            return await scenario(world)

    return asyncio.run(main())


def reaches(site: FrrSite, where: dict[int, str]) -> tuple[dict[Any, bool], dict[Any, bool]]:
    """What packets did, and what they should: from each rail of each node to everything."""
    probes, wanted = {}, {}
    for n, own in where.items():
        for rail in RAILS:
            box, source = site.boxes[site.nodes[n]], site.address(n, rail)
            targets = {site.address(m, r): own == where[m] for m in where if m != n for r in RAILS}
            targets[STORAGE_HOST] = own == RED
            targets |= dict.fromkeys(EDGE_HOST.values(), own == RED)
            targets |= dict.fromkeys((UNLISTED, BMC, *LEAF_OOB), False)
            for target, answered in targets.items():
                probes[n, rail, target] = (box, source, target)
                wanted[n, rail, target] = answered
    return dict(zip(probes, pings(probes.values()), strict=True)), wanted


def vrfs(site: FrrSite, node: int) -> list[str]:
    """The VRFs that the kernel has a node's ports in."""
    ports = [site.ports.name_leaf_port(site.end(node, r).other) for r in RAILS]
    return [site.leaf(r).interfaces()[ports[r]][0] for r in RAILS]


@pytest.mark.slow
def test_packets_reach_what_was_released_together_and_nothing_else(site: FrrSite) -> None:
    async def scenario(world: World) -> Any:
        before = [api.count("POST", "/revision") for api in site.leaf_apis()]
        released = await asyncio.gather(
            world.release(A, RED), world.release(B, RED), world.release(C, BLUE)
        )
        assert list(released) == [(), (), ()]
        revisions = [api.count("POST", "/revision") for api in site.leaf_apis()]
        proof = await world.proof(A)
        first = reaches(site, {A: RED, B: RED, C: BLUE, D: MAINT})
        again = [await world.fence(A), await world.release(A, BLUE)]
        second = reaches(site, {A: BLUE, B: RED, C: BLUE, D: MAINT})
        made = [after - was for after, was in zip(revisions, before, strict=True)]
        return made, proof, first, again, second

    made, proof, first, again, second = play(site, scenario)

    assert made == [1, 1]  # three nodes at once: one revision on each leaf
    assert {row.verdict for row in proof.gate} <= {RowVerdict.PASS, RowVerdict.NONE}
    assert first[0] == first[1]
    assert again == [(), ()]
    assert second[0] == second[1]
    for api in site.leaf_apis():
        assert api.startup == api.applied


def test_connections_stay_within_the_tenant_and_a_later_leak_is_seen(site: FrrSite) -> None:
    async def scenario(world: World) -> Any:
        assert list(await asyncio.gather(world.release(A, RED), world.release(B, RED))) == [(), ()]
        box = site.boxes
        mine = [(box[site.nodes[A]], site.address(A, r), site.address(B, q)) for r, q in CROSSED]
        others = [(box[site.nodes[A]], site.address(A), site.address(D)), to_a_bmc(site)]
        inward = [(box[site.nodes[D]], site.address(D), site.address(A))]
        with listening([*(box[n] for n in site.nodes), box["oob"]]):
            connected = connects([*mine, *others, *inward])
        sized = pings(mine, size=8972), pings(mine, size=8974, patience_s=0.3)
        releases = Releases(world.effects, world.store, world.tenancy)
        node, after = await world.node(A), (await world.proof(A)).after
        well = await releases.judge_standing(node, "RED", after)
        with PLANTS[0].planted(site):  # after the release: the watch sees it
            leaking = await releases.judge_standing(node, "RED", after)
        return connected, *sized, well, leaking

    connected, whole, larger, well, leaking = play(site, scenario)

    assert connected == [True] * 4 + [False] * 3
    assert whole == [True] * 4
    assert larger == [False] * 4
    assert [row for row in well if row.bad] == []
    assert PLANTS[0].check in {row.check.value for row in leaking if row.bad}


def test_a_node_that_a_tenant_gives_back_reaches_it_no_more_and_a_deleted_vrf_is_gone(
    site: FrrSite,
) -> None:
    async def scenario(world: World) -> Any:
        keeper, a, b = world.keeper, site.nodes[A], site.nodes[B]
        assert (await keeper.change(Request(name=BLUE, nodes=2))).blockers == ()
        assert list(await asyncio.gather(world.release(A, BLUE), world.release(B, BLUE))) == [
            (),
            (),
        ]
        together = reaches(site, {A: BLUE, B: BLUE, C: MAINT})
        early = await keeper.delete(BLUE)
        shrunk = await keeper.shrink(BLUE, 1, [a])
        taken = await world.fence(A)
        # others in maintenance are reached a moment later: a fence does not wait for their routes
        apart = reaches(site, {A: MAINT, B: BLUE})
        last = await keeper.shrink(BLUE, 0)
        told = (early, shrunk, last, taken, await world.fence(B))
        assert [n.id for n in last.nodes] == [b]
        there = [BLUE_VRF in site.leaf(r).vrfs() for r in RAILS]
        deleted = await keeper.delete(BLUE)
        left = [BLUE_VRF in (*site.leaf(r).vrfs(), *api.startup["vrf"]) for r, api in leaves(site)]
        return told, together, apart, there, deleted, left, await world.store.tenants.list()

    told, together, apart, there, deleted, left, tenants = play(site, scenario)

    early, shrunk, last, *taken = told
    assert [b.subject for b in early.blockers] == [BLUE]  # it has nodes yet
    assert shrunk.blockers == last.blockers == deleted.blockers == ()
    assert taken == [(), ()]
    assert together[0] == together[1]
    assert apart[0] == apart[1]
    assert (there, left) == ([True, True], [False, False])
    assert [t.name for t in tenants] == [RED]


def leaves(site: FrrSite) -> Any:
    """The rail of each leaf, and its API."""
    return enumerate(site.leaf_apis())


CROSSED = [(0, 0), (0, 1), (1, 0), (1, 1)]  # also from one leaf to the other: through the overlay


def to_a_bmc(site: FrrSite) -> Any:
    return site.boxes[site.nodes[A]], site.address(A), BMC


def marks(plant: Plant) -> Any:
    """The gate's own tests have each of these faults; here are those that packets show best."""
    return () if plant.check in ("foreign_targets", "shut_out", "mtu") else pytest.mark.long


@pytest.mark.parametrize("plant", [pytest.param(p, marks=marks(p), id=p.name) for p in PLANTS])
def test_what_somebody_did_behind_the_api_keeps_a_node_from_its_tenant(
    site: FrrSite, plant: Plant
) -> None:
    async def scenario(world: World) -> Any:
        with plant.planted(site):
            refused = await world.release(A, RED)
            left = vrfs(site, A)
        return refused, left, await world.fence(A), await world.node(A)

    refused, left, fenced, node = play(
        site, scenario, release_settle_s=3.0, switch_apply_limit_s=4.0
    )

    assert any(plant.check in b.detail for b in refused), refused
    assert left == ["MAINT", "MAINT"]
    assert fenced == ()
    assert node.placement is Placement.MAINTENANCE
