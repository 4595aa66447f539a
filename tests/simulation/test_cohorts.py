"""The fleet's comparison: read and judged once for all that ask, anew when somebody measured."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import virtual_time
from rig import World

from provisioner.control.fabric.fabric_standing import Cohorts
from provisioner.model.cohort import Sample
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind
from provisioner.planning.certification.cohort import version_set

NODES = 12
NOTHING = Inventory(node="", vendor="")


class CountedSamples:
    """A repository that counts the reads of a cohort, and the reads that run at one time."""

    def __init__(self, inner: object) -> None:
        self.inner, self.reads, self.now, self.most = inner, 0, 0, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    async def list_samples(self, *asked: object) -> Sequence[Sample]:
        self.reads, self.now = self.reads + 1, self.now + 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(1.0)
        inner: Any = self.inner
        samples: Sequence[Sample] = await inner.list_samples(*asked)
        self.now -= 1
        return samples


def taken(node: Node, level: float, at: float) -> Sample:
    return Sample(
        node=node.id,
        rack="r",
        profile=node.profile,
        versions=version_set(NOTHING),
        measured={"busbw_gb_s/host": level},
        sound=True,
        taken_at=at,
    )


async def scenario(directory: Path) -> None:
    world = World(directory, nodes=NODES, seed=3)
    await world.take_in()
    samples = CountedSamples(world.store.cohorts)
    world.store.cohorts = samples  # type: ignore[assignment]
    cohorts = Cohorts(world.store, world.clock)
    nodes = [n for n in await world.store.nodes.list() if n.kind is NodeKind.HOST]
    for node in nodes:
        await world.store.cohorts.put_sample(taken(node, 400.0, 1.0))

    async def unlike() -> dict[str, int]:
        found = await asyncio.gather(*(cohorts.find_differences(n, NOTHING) for n in nodes))
        return {n.id: len(worst) for n, worst in zip(nodes, found, strict=True) if worst}

    assert await unlike() == {}
    assert await unlike() == {}
    assert samples.reads == 1

    slow = nodes[3]
    await world.store.cohorts.put_sample(taken(slow, 300.0, 2.0))
    assert await unlike() == {slow.id: 1}
    assert samples.reads == 2

    await asyncio.gather(*(cohorts.held_against(taken(n, 400.0, 3.0)) for n in nodes))
    await cohorts.keep(taken(slow, 399.0, 3.0))
    assert await unlike() == {}

    other = nodes[5]  # judged by a daemon whose clock goes behind
    await world.store.cohorts.put_sample(taken(other, 300.0, 2.0))
    assert await unlike() == {other.id: 1}
    assert samples.most == 1  # 512 samples are 50 MB, however many nodes ask


def test_a_cohort_is_judged_once_until_somebody_measured_again(tmp_path: Path) -> None:
    virtual_time.run(scenario(tmp_path))
