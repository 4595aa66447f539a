"""The fleet's comparison with its cohorts: read the nodes' measurements, and judge all of them at
once.

A node has some 1,700 figures, and 512 nodes make a cohort: half a second and 50 MB. So a cohort is
read by one caller at a time, and judged anew only after a new measurement: otherwise 256 nodes that
wait for a tenant would each do all of that at every look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from provisioner.checks.threshold_data import THRESHOLDS
from provisioner.model.cohort import Baseline, Sample
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.planning.certification import baseline, cohort
from provisioner.ports import Clock, Store

KEPT_MAX = 16  # cohorts whose verdicts are kept: a fleet in the middle of a campaign has a few
_POLICY = cohort.Policy()
_LEARNING = baseline.LearningPolicy()
_Mark = tuple[int, float]


class Cohorts:
    """One per process."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._turn = asyncio.Lock()
        self._judged: dict[tuple[str, str], tuple[_Mark, Mapping[str, tuple[Blocker, ...]]]] = {}

    async def find_differences(self, node: Node, inventory: Inventory) -> tuple[Blocker, ...]:
        """Return why a node that was judged is unlike its fleet, which may have grown since."""
        key = node.profile, cohort.version_set(inventory)
        judged = self._judged.get(key)
        if judged is None or judged[0] != await self._store.cohorts.get_samples_mark(*key):
            async with self._turn:
                judged = await self._judge(key)
        return judged[1].get(node.id, ())

    async def held_against(self, sample: Sample) -> tuple[cohort.Outlier, ...]:
        """Return the outliers among new figures of a node."""
        async with self._turn:
            members = await self._members(sample.profile, sample.versions)
            return cohort.judge_node(sample, members, _POLICY)

    async def keep(self, sample: Sample) -> None:
        """Store new figures, and learn floors for those without a published one."""
        await self._store.cohorts.put_sample(sample)
        previous = {b.metric: b for b in await self._store.cohorts.list_baselines(sample.profile)}
        groups = sorted({cohort.group_of(name) for name in sample.measured})
        async with self._turn:
            members = await self._members(sample.profile, sample.versions)
            learned_now = [
                baseline.learn_baseline(
                    metric,
                    members,
                    previous=previous.get(metric),
                    published=None,
                    policy=_LEARNING,
                    now=self._clock.now(),
                )
                for metric in groups
                if _unpublished(metric)
            ]
        for learned in learned_now:
            if isinstance(learned, Baseline):
                await self._store.cohorts.put_baseline(learned)

    async def _judge(self, key: tuple[str, str]) -> tuple[_Mark, Mapping[str, tuple[Blocker, ...]]]:
        """Judge a cohort as it is now; an earlier holder of the turn may have done so already.

        The mark is older than the reading: a measurement in between is judged at the next look.
        """
        mark = await self._store.cohorts.get_samples_mark(*key)
        judged = self._judged.pop(key, None)
        if judged is None or judged[0] != mark:
            outliers = cohort.judge_cohort(await self._members(*key), _POLICY)
            judged = (
                mark,
                {n: tuple(map(cohort.block_outlier, worst[:3])) for n, worst in outliers.items()},
            )
        self._judged[key] = judged
        if len(self._judged) > KEPT_MAX:
            del self._judged[next(iter(self._judged))]
        return judged

    async def _members(self, profile: str, versions: str) -> tuple[Sample, ...]:
        return tuple(await self._store.cohorts.list_samples(profile, versions, cohort.MEMBERS_MAX))


def _unpublished(metric: str) -> bool:
    """Return whether some GPU model has no floor of it; `thresholds.find` prefers a published
    one.
    """
    row = THRESHOLDS.get(metric)
    return row is not None and any(limit.value is None for limit in row.values.values())
