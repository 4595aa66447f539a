"""Where a node stands with tests among nodes: what its driver sees of sessions and outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from provisioner.checks.threshold_data import THRESHOLDS
from provisioner.control.context import Context
from provisioner.control.fabric.fabric import policy_of
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.execution.actions.work import Site
from provisioner.execution.tenancy.memberships import Memberships
from provisioner.execution.tenancy.partition_tenancy import PartitionTenancy
from provisioner.execution.tenancy.release_recheck import TenantSessions
from provisioner.execution.tenancy.spaces import TenantSpaces
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.execution.tenancy.vrf_fabric import VrfIsolation
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import Baseline, HealthReport, Sample
from provisioner.model.fabric_session import FabricOutcome
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.planning.certification import cohort
from provisioner.planning.fault_location import fabric_session
from provisioner.planning.lifecycle.decide import View
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import Clock, Isolation, Partitions
from provisioner.ports.isolation import Membership
from provisioner.ports.storage import Spaces
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# The fleet's comparison with its cohorts: read the nodes' measurements, and judge all of them at
# once.
#
# A node has some 1,700 figures, and 512 nodes make a cohort: half a second and 50 MB. So a cohort
# is read by one caller at a time, and judged anew only after a new measurement: otherwise 256 nodes
# that wait for a tenant would each do all of that at every look.


KEPT_MAX = 16  # cohorts whose verdicts are kept: a fleet in the middle of a campaign has a few
_POLICY = cohort.Policy()
_LEARNING = cohort.LearningPolicy()
_Mark = tuple[int, float]


class Cohorts:
    def __init__(self, store: SqlStore, clock: Clock) -> None:
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
                cohort.learn_baseline(
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
    """Whether some GPU model has no floor of it; `thresholds.find` prefers a published one."""
    row = THRESHOLDS.get(metric)
    return row is not None and any(limit.value is None for limit in row.values.values())


# ------------------------------------------------------------------------------
# Puts together how tenants are kept apart: who moves ports, and who makes tenants' networks.


@dataclass(frozen=True)
class Fabrics:
    """A site's fabrics. `partitions`: UFM's, on InfiniBand; the caller that opened it closes it."""

    plan: AddressPlan
    partitions: Partitions | None = None
    spaces: Spaces | None = None  # of the site's shared storage; closed by the same caller
    memberships: Sequence[Membership] = ()  # of systems that integrations bring; likewise


def tenancy_of(site: Site, store: SqlStore, fabrics: Fabrics | None) -> Tenancy:
    """The mover of a node's ports: the leaves, or with `isolation: infiniband` UFM beside them."""
    if fabrics is None:
        assert site.settings.isolation != "infiniband"
        return Tenancy(site, store)
    spaces = None
    if fabrics.spaces is not None:
        spaces = TenantSpaces(fabrics.spaces, store, site.clock, site.settings)
    beside = Memberships(fabrics.memberships, store)
    if site.settings.isolation == "infiniband":
        assert fabrics.partitions is not None
        leaves = Tenancy(site, store, fabrics.plan)
        return PartitionTenancy(leaves, fabrics.partitions, store, spaces, beside)
    return Tenancy(site, store, fabrics.plan, spaces, beside)


def keeper_of(site: Site, store: SqlStore, fabrics: Fabrics | None) -> TenantKeeper | None:
    """Return the keeper of tenants' networks; None without the site's address plan."""
    if fabrics is None:
        return None
    vrfs = VrfIsolation(store, fabrics.plan, site.reach, site.clock, site.settings)
    sessions = TenantSessions(store, site.reach, site.clock, site.settings)
    isolations: list[Isolation] = [vrfs]
    if fabrics.partitions is not None:
        isolations.append(fabrics.partitions)
    spaces = None
    if fabrics.spaces is not None:
        spaces = TenantSpaces(fabrics.spaces, store, site.clock, site.settings)
        isolations.append(spaces)
    return TenantKeeper(
        *(store, site.clock, isolations, vrfs.fabric, sessions.missing, fabrics.partitions),
        spaces=spaces,
    )


class FabricStanding:
    """Reads rows only."""

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._clock = context.clock
        self._policy = policy_of(context.settings)

    async def find_waiting(self, node: Node, report: HealthReport | None) -> View | None:
        """Return the view of a node that waits for its outcome; None: it does not wait.

        Nothing else is asked of it meanwhile: it may be under test, and is looked at afterwards.
        """
        if not fabric_session.needs_session(
            node, report, await self._store.fabric.get_outcome(node.id)
        ):
            return None
        assert report is not None
        if (reason := await self._session(node)) is not None:
            return View(fabric_wait=reason, in_session=True)
        partners = fabric_session.count_partners(node, await self._store.nodes.list())
        late = fabric_session.find_overdue_wait(
            node, report, partners, self._policy, self._clock.now()
        )
        reason = fabric_session.describe_wait(partners, self._policy.partners_min)
        return View(fabric_wait=reason, fabric_late=() if late is None else (late,))

    async def in_session(self, node: Node) -> bool:
        return await self._session(node) is not None

    async def find_outcome(self, node: Node, report: HealthReport | None) -> FabricOutcome | None:
        if report is None:
            return None
        outcome = await self._store.fabric.get_outcome(node.id)
        return outcome if fabric_session.is_current_outcome(outcome, report) else None

    async def find_accusations(
        self, node: Node, certificate: Certificate | None
    ) -> tuple[Blocker, ...]:
        """Return the faults proved after its certificate, as a partner or as a leaf."""
        outcome = await self._store.fabric.get_outcome(node.id)
        if outcome is None or certificate is None or outcome.ended_at < certificate.issued_at:
            return ()
        return outcome.blockers

    async def _session(self, node: Node) -> str | None:
        for session in await self._store.fabric.list_sessions():
            if any(m.node == node.id for m in session.present):
                rounds = len({r.round_number for r in session.runs})
                count = len(session.present)
                return f"gate C is tested: round {rounds + 1} with {count} nodes"
        return None
