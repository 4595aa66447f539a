"""Upgrades on real FRRouting: packets go around a switch before it reboots, and come back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from frr_boxes import why_not
from frr_nvue import IMAGES
from frr_probes import Stream
from frr_site import EDGE_HOST, FrrSite, frr_site
from frr_world import World, opened

from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.work import Work, do_work
from provisioner.execution.steps.methods_switch import boot_image
from provisioner.model.inventory import Activation
from provisioner.model.outcome import Reason
from provisioner.model.plan import Disruption, Step, StepKind

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())

A, B = 0, 1
ECHOES = 100
ECHO_BYTES = 4 * 1400  # at a switch, of one echo: there and back, in and out; sessions are less
BOOTS_AFTER_S = 8.0  # at most, while somebody looks who carries
STEP = Step(
    kind=StepKind.ACTIVATE,
    activation=Activation.IMAGE_REBOOT,
    activates=(("switch.os/switch", IMAGES["2"]),),
    disruption=Disruption.SWITCH,
    duration_s=600,
    expected=(),
    reason="test",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrrSite]:
    with frr_site(tmp_path_factory.mktemp("frr") / "site") as made:
        yield made


async def upgraded(world: World, switch: str) -> Any:
    """Drain, reboot into the other image, see that all is well, and back into service."""
    node = await world.store.nodes.get(switch)
    work = await boot_image(world.effects, node, STEP)
    assert isinstance(work, Work)
    operation = await world.store.operations.open(switch, "journey", world.clock.now())
    hold = Hold(world.store, world.clock, await world.store.operations.take(operation.id))
    return await do_work(world.effects, hold, work, None)


async def carrying(site: FrrSite, tier: str, stream: Stream) -> dict[str, bool]:
    """Which switches of a tier carry the stream, by the kernel's own counters.

    Counted while so many echoes come back, however long that takes: no clock decides.
    """

    def counted() -> dict[str, int]:
        return {
            name: sum(sum(link.bytes) for _, link in api.switch.interfaces().values())
            for name, api in site.nvue.items()
            if name.startswith(tier)
        }

    before = counted()
    assert await asyncio.to_thread(stream.answered, ECHOES)
    after = counted()
    return {name: after[name] - before[name] > ECHOES * ECHO_BYTES / 4 for name in after}


async def story(world: World, tier: str, stream: Stream) -> Any:
    """The busy switch of a tier is upgraded under traffic; and who carried that meanwhile."""
    site = world.site
    busy = ""
    while not busy:  # routes take a moment; the whole scenario has its limit
        now = await carrying(site, tier, stream)
        busy = next((name for name, much in now.items() if much), "")
    loop, booting, looked = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def meet(method: str, path: str) -> None:
        if method == "POST" and path.endswith("/system/image"):  # drained: boot-next comes now
            loop.call_soon_threadsafe(booting.set)
            looked.wait(BOOTS_AFTER_S)

    async def watch() -> dict[str, bool]:
        await booting.wait()
        try:
            return await carrying(site, tier, stream)
        finally:
            looked.set()

    stream.forget()
    site.nvue[busy].meet = meet
    watching = asyncio.create_task(watch())
    problem = await upgraded(world, busy)
    assert booting.is_set(), problem
    during = await watching
    drained = site.nvue[busy].applied["router"]["bgp"].get("graceful-shutdown")
    return busy, during, problem, drained, await asyncio.to_thread(stream.fate)


def judge(told: Any) -> None:
    busy, during, problem, drained, (sent, lost) = told
    assert problem is None
    assert not during[busy]  # nothing went through it
    assert sum(during.values()) == 1  # and all of it through the other one
    assert drained == "off"
    assert lost <= sent // 50, (sent, lost)  # a busy machine drops some; a blackhole takes half


def test_packets_between_leaves_go_around_a_spine_that_reboots(site: FrrSite) -> None:
    async def main() -> Any:
        async with opened(site) as world:
            assert [await world.fence(n) for n in (A, B)] == [(), ()]
            box = site.boxes[site.nodes[A]]
            with Stream(box, site.address(A, 0), site.address(B, 1)) as stream:
                return await story(world, "spine", stream)

    judge(asyncio.run(main()))


def test_packets_of_routers_on_both_leaves_go_around_a_leaf_that_reboots(site: FrrSite) -> None:
    async def main() -> Any:
        async with opened(site) as world:
            await world.tenant("red", storage=("STORAGE",), outside=site.outside())
            one, other = EDGE_HOST.values()
            with Stream(site.boxes["edge-a"], one, other) as stream:
                return await story(world, "leaf", stream)

    judge(asyncio.run(main()))


def test_a_leaf_that_is_the_only_way_for_a_node_is_not_rebooted(site: FrrSite) -> None:
    async def main() -> Any:
        async with opened(site, switch_drain_limit_s=1.5) as world:
            assert [await world.fence(n) for n in (A, B)] == [(), ()]
            leaf = site.leaf_apis()[0]
            boots = dict(leaf.images)
            box = site.boxes[site.nodes[A]]
            with Stream(box, site.address(A, 0), site.address(B, 0)):
                problem = await upgraded(world, leaf.switch.name)
            return problem, leaf.images == boots, leaf.applied["router"]["bgp"]

    problem, untouched, bgp = asyncio.run(main())

    assert problem is not None
    assert problem.reason is Reason.BUSY
    assert untouched
    assert bgp["graceful-shutdown"] == "off"
