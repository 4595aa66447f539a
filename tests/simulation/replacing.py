"""Nodes that serve, spares beside them, and faults: the whole site and daemon in virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import virtual_time
from rig import World
from test_returns import want

from provisioner.control.context import Context
from provisioner.control.repairs.case_service import CaseService
from provisioner.daemon.daemon import Daemon
from provisioner.model.case import Case, Origin, Service, Stage
from provisioner.model.node import NodeKind, State

STEP_S = 5.0
LIMIT_S = 12 * 3600.0


@dataclass
class Outcome:
    """What became of the faults. Times: virtual seconds from the report."""

    served_s: list[float] = field(default_factory=list)  # until the spare was proved to serve
    cpu_s: float = 0.0  # of this process until all spares served, the simulated site included
    failed: set[str] = field(default_factory=set)
    free: set[str] = field(default_factory=set)  # certified without a tenant at the end
    proofs: set[str] = field(default_factory=set)  # spares with a proof of their release
    wrong: list[str] = field(default_factory=list)  # what must never be


async def _start(world: World) -> None:
    """A daemon that repairs, on the parts of the rig's."""
    if world.daemon is not None:
        await world.daemon.stop()
    await world.start()
    assert world.daemon is not None
    await world.daemon.stop()
    world.daemon = Daemon(dataclasses.replace(world.daemon.parts, cases=world.store.cases))
    await world.daemon.start()


async def _until_serving(world: World, count: int) -> None:
    end = world.clock.now() + LIMIT_S
    while world.clock.now() < end:
        nodes = [n for n in await world.store.nodes.list() if n.kind is NodeKind.HOST]
        states = [n.state for n in nodes]
        if states.count(State.RELEASED) == count and states.count(State.CERTIFIED) == (
            len(states) - count
        ):
            return
        await world.clock.sleep(20.0)
    raise AssertionError([(n.id, n.state, n.blockers) for n in nodes])


async def _fail(world: World, names: list[str]) -> list[Case]:
    case_service = CaseService(
        Context(world.store, world.clock, world.settings), world.store.cases, None
    )
    opened = []
    for name in names:
        node = await world.store.nodes.get(name)
        assert node is not None
        case = await case_service.open(
            node, Origin.OPERATOR, "a GPU is gone", "somebody", service=Service.CUT_OFF
        )
        assert isinstance(case, Case), case
        opened.append(case)
    return opened


async def _until_replaced(world: World, opened: list[Case], outcome: Outcome) -> None:
    """Let time pass until every spare serves."""
    waiting = {c.id for c in opened}
    end = world.clock.now() + LIMIT_S
    while waiting and world.clock.now() < end:
        await world.clock.sleep(STEP_S)
        for name in sorted(waiting):
            case = await world.store.cases.get(name)
            assert case is not None
            if case.stood_in_at:
                waiting.discard(name)
                outcome.served_s.append(case.stood_in_at - case.opened_at)
                proof = await world.store.evidence.get_proof(case.stand_in)
                if proof is not None and proof.tenant == case.tenant and proof.gate:
                    outcome.proofs.add(case.stand_in)
    assert not waiting, waiting


async def _until_repaired(world: World, opened: list[Case], outcome: Outcome) -> None:
    """Let time pass until every replaced node is certified, or waits for people."""
    end = world.clock.now() + LIMIT_S
    for case in opened:
        while world.clock.now() < end:
            now = await world.store.cases.get(case.id)
            assert now is not None
            if now.stage in (Stage.CLOSED, Stage.HARDWARE):
                break
            await world.clock.sleep(60.0)
    for node in await world.store.nodes.list():
        if node.state is State.CERTIFIED and not node.tenant and node.kind is NodeKind.HOST:
            outcome.free.add(node.id)


def replace_nodes(
    directory: Path,
    *,
    nodes: int,
    faults: int,
    kills: Sequence[float] = (),
    measure: AbstractContextManager[object] | None = None,
) -> Outcome:
    """Half of the nodes serve, half are spares; some fail at once, and are replaced and repaired.

    kills: seconds after which the daemon is killed and started again, one after the other.
    measure: entered while the spares take their places.
    """

    async def play() -> Outcome:
        serving = nodes // 2
        world = World(directory, nodes=nodes, seed=5, spares_per_unit=nodes - serving)
        await world.take_in()
        await want(world, serving)
        await _start(world)
        await _until_serving(world, serving)
        hosts = [
            n for n in await world.store.nodes.list() if n.state is State.RELEASED and n.tenant
        ]
        outcome = Outcome(failed={n.id for n in hosts[:faults]})
        opened = await _fail(world, sorted(outcome.failed))

        async def kill() -> None:
            for gap_s in kills:
                await world.clock.sleep(gap_s)
                await _start(world)

        killing = asyncio.create_task(kill())
        began = time.process_time()
        with measure or nullcontext():
            await _until_replaced(world, opened, outcome)
        outcome.cpu_s = time.process_time() - began
        await killing
        await _until_repaired(world, opened, outcome)
        outcome.wrong = [*outcome.wrong, *await world.violations()]
        assert world.daemon is not None
        await world.daemon.stop()
        return outcome

    return virtual_time.run(play())
