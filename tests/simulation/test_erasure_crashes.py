"""The daemon dies at random moments of boot, erasure and image write; its successors end it.

Judged by the simulator's own log of what truly happened to disks and power, apart from the
executor: nothing on a wrong disk, nothing written or erased that the ledger does not account for,
no power cut into a write.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from returned import HOST, SECRET, came_back, give_back, holds, node_of
from rig import World

from provisioner.integrations.sim.hardware.parts import Event
from provisioner.model.node import Node, Placement
from provisioner.model.operation import ActionStatus, LedgerEntry

DEATHS = 9  # of one run: eight seeds make up to 72 moments, and never fewer than 50
ALIVE_S = (2.0, 110.0)  # a daemon lives this long; a stay lasts some 900 s without deaths
DOWN_S = (0.0, 60.0)
LIMIT_S = 24 * 3600.0


class Reaper:
    """Ends a daemon's life after some seconds, or at the n-th write about what it does."""

    def __init__(self, world: World, rng: random.Random, *, by_writes: bool) -> None:
        self.world, self.rng, self.by_writes = world, rng, by_writes
        self.left, self.now = 0, asyncio.Event()
        for name in ("intend", "settle", "record"):
            self._count(world.store.operations, name)
        self._count(world.store.agents, "put_session")

    def _count(self, repository: object, name: str) -> None:
        setattr(repository, name, self._counted(getattr(repository, name)))

    def _counted(self, write: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: Any, **more: Any) -> Any:
            await self._meet()  # what is done is not written
            told = await write(*args, **more)
            await self._meet()  # what is written is not gone on with
            return told

        return counted

    async def _meet(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.now.set()
            await asyncio.Event().wait()

    async def life(self) -> None:
        """One daemon, from its start to its death."""
        self.now.clear()
        self.left = self.rng.randint(1, 14) if self.by_writes else 0
        await self.world.start()
        limit_s = LIMIT_S if self.by_writes else self.rng.uniform(*ALIVE_S)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.now.wait(), limit_s)
        await self.world.crash()


async def stormy(world: World, rng: random.Random, *, by_writes: bool) -> tuple[Node, int]:
    """Lives and deaths, then a life as long as it needs; the node, and how many died on it."""
    deaths, reaper = 0, Reaper(world, rng, by_writes=by_writes)
    while deaths < DEATHS and not came_back(node := await node_of(world)):
        await reaper.life()
        deaths += 1
        await world.clock.sleep(rng.uniform(*DOWN_S))
    reaper.left = 0
    await world.start()
    until = world.clock.now() + LIMIT_S
    while world.clock.now() < until and not came_back(node := await node_of(world)):
        await world.clock.sleep(10.0)
    await world.crash()
    return node, deaths


def wrongs(log: Sequence[Event], rows: Sequence[LedgerEntry]) -> list[str]:
    """What must not have happened to this host's disks and power."""
    found = []
    images = [e for e in log if e.kind == "image_start"]
    slots = {e.subject for e in images}
    if len(slots) > 1:
        found.append(f"images were written to {sorted(slots)}")
    sent = [
        r for r in rows if r.action.startswith("host.os") and r.status is not ActionStatus.ABSENT
    ]
    if len(images) > len(sent):
        found.append(f"{len(images)} images were written, the ledger accounts for {len(sent)}")
    boots = sum(e.kind == "boot" for e in log)
    done = Counter((e.subject, e.detail) for e in log if e.kind == "erase")
    found += [f"{k} was erased {n} times in {boots} boots" for k, n in done.items() if n > boots]
    writing = ""
    for event in log:
        if event.kind == "image_start":
            writing = event.subject
            if ("erase", event.subject) not in {
                (e.kind, e.subject) for e in log if e.time < event.time
            }:
                found.append(f"{event.subject} was written before it was erased")
        elif event.kind == "image":
            writing = ""
        elif event.kind == "power" and event.detail == "ForceOff" and writing:
            found.append(f"power was cut while {writing} was written")
    confirmed = [
        r for r in rows if r.action.startswith("erase") and r.status is ActionStatus.CONFIRMED
    ]
    again = Counter(r.action for r in confirmed)
    return found + [f"{a} is confirmed {n} times" for a, n in again.items() if n > 1]


@pytest.mark.parametrize(
    "seed", [pytest.param(s, marks=pytest.mark.long if s > 1 else ()) for s in range(8)]
)
def test_a_node_is_clean_and_has_its_system_however_often_the_daemon_dies(
    tmp_path: Path, seed: int
) -> None:
    resets_bios = seed % 4 == 1

    async def main() -> tuple[Node, int, dict[str, str], list[str], bool]:
        required = "disk host_memory gpu_memory" + " bios" * resets_bios
        world = World(tmp_path, nodes=1, seed=seed, lost=0.0, erase_required=required)
        await give_back(world)
        bios = world.site.machines[HOST].host.bios
        bios.running[next(iter(bios.running))] = "planted"
        started = world.clock.now()
        node, deaths = await stormy(world, random.Random(f"deaths/{seed}"), by_writes=seed % 2 == 1)
        rows = [
            r for r in await world.store.operations.list_entries(HOST) if r.intended_at >= started
        ]
        log = [e for e in world.site.machines[HOST].log if e.time >= started]
        wrong = wrongs(log, rows) + await world.violations()
        left = any(SECRET in d.content for d in world.site.machines[HOST].disks.values())
        left = left or (resets_bios and "planted" in bios.running.values())
        return node, deaths, holds(world), wrong, left

    node, deaths, disks, wrong, left = virtual_time.run(main())

    assert came_back(node), (node.state, node.note, node.boots)
    assert node.placement is Placement.MAINTENANCE
    assert sorted(disks.values()) == ["erased", "erased", "erased", "image"]
    assert not left
    assert wrong == []
    assert deaths >= 7, "too few moments were tried"
