"""The daemon dies at the worst moments of one journey; its successor ends it without repeating.

A run dies once at every action of the host (and of one leaf and one spine): at the same moment of
each, so that one run tries a moment on every method there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from acts import repeated
from branches import branch, certified_host
from rig import World
from test_returns import want

from provisioner.model.node import State
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.ports import Call, Reply

HOUR_S = 3600.0
HOST = "su0-n00"
WATCHED = (HOST, "leaf-su0-r0", "spine-0")  # all leaves are alike, and so are all spines
FATES_MAX = 60  # a run that dies oftener than this goes in circles


class Fate:
    """Stops the daemon where it stands, the first time that each of some moments comes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.met: list[str] = []
        self.now = asyncio.Event()

    async def meet(self, moment: str) -> None:
        """Whoever comes here for the first time gets no further."""
        if moment in self.met:
            return
        self.met.append(moment)
        self.now.set()
        await asyncio.Event().wait()

    async def play(self, limit_s: float, down_s: float) -> None:
        """Start the daemon, and again after every death, until the journey has ended."""
        world = self.world
        until = world.clock.now() + limit_s
        while world.clock.now() < until and len(self.met) < FATES_MAX:
            await world.start()
            dying = asyncio.create_task(self.now.wait())
            ending = asyncio.create_task(world.settle(until - world.clock.now()))
            await asyncio.wait((dying, ending), return_when=asyncio.FIRST_COMPLETED)
            ended = ending.done()
            for task in (dying, ending):
                task.cancel()
            await world.crash()
            if ended:
                return
            self.now.clear()
            await world.clock.sleep(down_s)


Watch = Callable[[World, Fate], None]


def after_the_intent(world: World, fate: Fate) -> None:
    """The intent is on disk, nothing was sent."""
    intend = world.store.operations.intend

    async def stopping(operation: Any, action: str, *rest: Any) -> Any:
        told = await intend(operation, action, *rest)
        if operation.node in WATCHED:
            await fate.meet(f"{operation.node}: {action}")
        return told

    world.store.operations.intend = stopping


def before(status: ActionStatus) -> Watch:
    """The device has done it, the ledger does not know yet."""
    return lambda world, fate: _at_settling(world, fate, status, late=False)


def after(status: ActionStatus) -> Watch:
    """The ledger knows it; nothing that follows was done."""
    return lambda world, fate: _at_settling(world, fate, status, late=True)


def _at_settling(world: World, fate: Fate, at: ActionStatus, *, late: bool) -> None:
    settle = world.store.operations.settle

    async def stopping(
        operation: Any, entry: LedgerEntry, status: ActionStatus, **rest: Any
    ) -> Any:
        moment = f"{entry.node}: {entry.action}"
        watched = status is at and entry.node in WATCHED
        if watched and not late:
            await fate.meet(moment)
        told = await settle(operation, entry, status, **rest)
        if watched and late:
            await fate.meet(moment)
        return told

    world.store.operations.settle = stopping


def after_each_power_act(world: World, fate: Fate) -> None:
    """Between ForceOff and the AC cycle, and after the AC cycle: the host is off then."""
    _after_request(world, fate, lambda call: call.method == "POST" and "Reset" in call.path)


def during_an_installation(world: World, fate: Fate) -> None:
    """A BFB is transferred and being installed: the card tells how far it is."""
    looks = 0

    def installing(call: Call) -> bool:
        nonlocal looks
        busy = any(c.installing for c in world.site.machines[HOST].bluefields.values())
        looks += busy
        return busy and looks > 5

    _after_request(world, fate, installing, moment="installing")


def in_the_middle_of_a_release(world: World, fate: Fate) -> None:
    """Some leaves have moved the host's port to its tenant, others have not."""
    request = world.switches.request
    leaves = sorted(n for n in world.site.switches if n.startswith("leaf"))

    async def stopping(switch: Any, call: Call) -> Reply:
        told = await request(switch, call)
        in_red = [
            leaf
            for leaf in leaves
            if any(world.site.switches[leaf].get_vrf(p) == "BLUE" for p in _ports(world, leaf))
        ]
        if len(in_red) in (1, 4, 7):
            await fate.meet(f"{len(in_red)} leaves moved")
        return told

    world.switches.request = stopping


def _ports(world: World, leaf: str) -> list[str]:
    return [world.site.places[HOST].interface] if leaf in world.site.switches else []


def _after_request(
    world: World, fate: Fate, chosen: Callable[[Call], bool], moment: str = ""
) -> None:
    request: Callable[..., Awaitable[Reply]] = world.transport.request

    async def stopping(bmc: Any, call: Call) -> Reply:
        told = await request(bmc, call)
        if chosen(call):
            await fate.meet(moment or f"{call.path} {call.body}")
        return told

    world.transport.request = stopping


MOMENTS: dict[str, tuple[Watch, float]] = {
    "after the intent, before it was sent": (after_the_intent, 0.0),
    "after it was sent, before that was written": (before(ActionStatus.SENT), 0.0),
    "after it was written that it was sent": (after(ActionStatus.SENT), 0.0),
    "after its end, before that was written": (before(ActionStatus.CONFIRMED), 0.0),
    "between off and on, and after on": (after_each_power_act, 0.0),
    "while a card is installed, for five hours": (during_an_installation, 5 * HOUR_S),
    "in the middle of a release": (in_the_middle_of_a_release, 60.0),
}


IN_CI = ("in the middle of a release",)  # tests/crash tries the others too


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [pytest.param(m, marks=() if m in IN_CI else pytest.mark.long) for m in MOMENTS],
)
def test_a_daemon_that_dies(tmp_path: Path, moment: str) -> None:
    watch, down_s = MOMENTS[moment]

    async def from_its_certificate(world: World) -> tuple[list[str], list[str]]:
        await world.crash()
        await want(world, 1)
        return await die(world)

    async def from_its_cable() -> tuple[list[str], list[str]]:
        world = World(tmp_path, nodes=1, seed=7)
        await world.take_in()
        return await die(world)

    async def die(world: World) -> tuple[list[str], list[str]]:
        fate = Fate(world)
        watch(world, fate)
        await fate.play(200 * HOUR_S, down_s)
        wrong = await world.violations()
        for node in await world.store.nodes.list():
            wrong += repeated(
                world.site, node.id, await world.store.operations.list_entries(node.id)
            )
            if node.state is not State.RELEASED:
                wrong.append(f"{node.id} ended {node.state}: {node.note}")
        return fate.met, wrong

    if moment in IN_CI:
        met, wrong = branch(certified_host, from_its_certificate)
    else:
        met, wrong = virtual_time.run(from_its_cable())

    assert met, "the moment never came"
    assert wrong == [], f"died at {met}"
