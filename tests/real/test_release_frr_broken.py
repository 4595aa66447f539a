"""What breaks in the middle of a release, on real FRRouting: answers, daemons, leaves, others."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from frr_boxes import why_not
from frr_site import FrrSite, frr_site
from frr_world import World, opened

from provisioner.model.node import Placement
from provisioner.model.tenant import PortPlacement

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

A, B = 0, 1  # nodes
SAVE = "/nvue_v1/revision/applied"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrrSite]:
    with frr_site(tmp_path_factory.mktemp("frr") / "site") as made:
        yield made


def play(site: FrrSite, scenario: Callable[[World], Awaitable[Any]]) -> Any:
    """A scenario on two nodes in maintenance and one tenant."""

    async def main() -> Any:
        async with opened(site) as world:
            assert [await world.fence(n) for n in (A, B)] == [(), ()]
            await world.tenant("blue")
            return await scenario(world)

    return asyncio.run(main())


def test_each_lost_answer_is_repaired_by_looking(site: FrrSite) -> None:
    """The first answer to each kind of write: it is served, and its connection dropped."""
    lost: list[str] = []

    def losing(*kinds: str) -> Callable[[str, str], bool]:
        left = list(kinds)

        def lose(method: str, path: str) -> bool:
            kind = f"{method} {path}".replace("/nvue_v1/", "").partition("/changeset")[0]
            if kind not in left:
                return False
            left.remove(kind)
            lost.append(kind)
            return True

        return lose

    async def scenario(world: World) -> Any:
        old = site.leaf_apis()[0].begin_revision({"interface": {"swp2s0": {"description": "x"}}})
        with (
            faulty(site, 0, lose=losing("POST revision", "PATCH revision/applied")),
            faulty(site, 1, lose=losing("PATCH ", "PATCH revision")),
        ):
            released = await world.release(A, "blue")
        # somebody's revision from before the release changes only what it names
        await asyncio.wrap_future(site.leaf_apis()[0].apply_revision(old))
        site.leaf_apis()[0].save()
        return released, await world.tenancy.read((await world.node(A)).ports)

    released, read = play(site, scenario)

    assert len(lost) == 4
    assert released == ()
    assert {p.vrf for p in read} == {"BLUE"}
    for api in site.leaf_apis():
        assert api.startup == api.applied


def test_a_daemon_that_dies_between_apply_and_save_leaves_a_port_that_is_found_again(
    site: FrrSite,
) -> None:
    async def scenario(world: World) -> Any:
        saving = asyncio.Event()
        loop = asyncio.get_running_loop()
        first = site.leaf_apis()[0]

        def told(method: str, path: str) -> None:
            if (method, path) == ("PATCH", SAVE):
                loop.call_soon_threadsafe(saving.set)
                raise ConnectionAbortedError  # the request never reaches the switch

        with faulty(site, 0, meet=told):
            release = asyncio.create_task(world.release(A, "blue"))
            await asyncio.wait_for(saving.wait(), 30)
            release.cancel()
            await asyncio.gather(release, return_exceptions=True)
        unsaved = first.startup != first.applied
        first.reboot()
        successor = World(world.site, world.store)
        node = await successor.node(A)
        read = await successor.tenancy.read(node.ports)
        fenced = await successor.fence(A)
        again = await successor.release(A, "blue")
        await successor.close()
        return unsaved, node, read, fenced, again

    unsaved, node, read, fenced, again = play(site, scenario)

    assert unsaved
    assert node.placement is Placement.MIXED  # what is written down claims nothing
    assert [p.vrf for p in read] == ["MAINT", "MAINT"]  # the leaf started with what was saved
    assert (fenced, again) == ((), ())


def test_a_revision_of_somebody_else_is_seen_while_it_is_on_its_way(site: FrrSite) -> None:
    async def scenario(world: World) -> Any:
        api = site.leaf_apis()[0]
        port = site.ports.name_leaf_port(site.end(A, 0).other)
        go_on = threading.Event()
        with faulty(site, 0, before_apply=lambda: go_on.wait(10.0)):
            name = api.begin_revision({"interface": {port: {"ip": IN_BLUE}}})
            applied = api.apply_revision(name)
            read = await world.tenancy.read((await world.node(A)).ports)
            go_on.set()
            await asyncio.wrap_future(applied)
        found = await world.tenancy.read((await world.node(A)).ports)
        return read, found, await world.fence(A), port

    read, found, fenced, port = play(site, scenario)

    assert {p.vrf for p in read if p.interface == port and "r0" in p.switch} == {"MAINT", "BLUE"}
    stolen = [p for p in found if p.vrf != "MAINT"]
    assert stolen == [PortPlacement(switch=site.leaves[0], interface=port, vrf="BLUE")]
    assert fenced == ()


IN_BLUE = {"vrf": "BLUE"}


@contextlib.contextmanager
def faulty(site: FrrSite, leaf: int, **faults: Any) -> Iterator[None]:
    """Faults of a leaf's API, for a while."""
    api = site.leaf_apis()[leaf]
    well = {name: getattr(api, name) for name in faults}
    for name, fault in faults.items():
        setattr(api, name, fault)
    try:
        yield
    finally:
        for name, was in well.items():
            setattr(api, name, was)
