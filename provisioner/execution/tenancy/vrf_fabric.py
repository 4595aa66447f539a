"""Tenants' VRFs on all leaves: `Isolation` on Ethernet.

Rule: every leaf concerned is read before any is changed, and one that does not answer blocks. Of
one scalable unit, leaves are changed one after the other and the first obstacle ends it: a
mistake meets one rail, and never both leaves of a pair.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from provisioner.execution.actions.reach import Reach, SwitchSource, turn
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import MAINTENANCE_VRF, Phase, Tenant
from provisioner.model.tenant_network import NetworkState, TenantFilters
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.vrf_difference import (
    LeafChange,
    find_missing_change,
    find_unproved,
    list_filtered_ports,
    list_occupied,
    plan_leaf_change,
)
from provisioner.planning.tenancy.vrf_plan import (
    FabricPlan,
    LeafPlan,
    describe_change,
    plan_fabric,
    plan_networks,
    plan_shutdown,
)
from provisioner.ports import (
    Clock,
    FabricDelta,
    FabricStep,
    Member,
    PortError,
    Switch,
    SwitchAddress,
    SwitchRefused,
)
from provisioner.settings import Settings
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# One leaf's configuration of tenants: looked at, changed by one revision, proved and saved.
#
# Rule: a try begins with a look, and only the missing part is sent, so that a lost answer or a
# crash is repaired by trying again. Ports are `execution/tenancy/leaf.py`'s; this makes and removes
# VRFs.


TRIES_MAX = 3  # a lost answer, then a change that raced with another writer's


class LeafConfig:
    """One switch. Methods raise nothing that the world does."""

    def __init__(self, source: SwitchSource, clock: Clock, limits: Settings) -> None:
        self.name = source.name
        self._source = source
        self._clock = clock
        self._limits = limits

    async def look(self, vrfs: Collection[str] = ()) -> NetworkState | Blocker:
        """Return its configuration, VRFs, the VRF of each port, and the VNIs of `vrfs`."""
        try:
            return await (await self._source.open()).read_networks(vrfs)
        except PortError as problem:
            return self._source.describe(problem)

    async def bring(self, change: LeafChange) -> tuple[Blocker, ...]:
        """Carry a change out; () if the switch does it, and will after its next start."""
        if self._limits.outside_drain_s:
            async with turn(self.name):
                drained = await self._try(change, self._shut_down)
            if isinstance(drained, tuple):
                return drained
            if drained:  # outside of the turn: a fence of this leaf does not wait for it
                await self._clock.sleep(self._limits.outside_drain_s)
        async with turn(self.name):
            outcome = await self._try(change, self._carry_out)
        assert isinstance(outcome, tuple)
        return outcome

    async def _try(
        self,
        change: LeafChange,
        act: Callable[[Switch, LeafChange], Awaitable[tuple[Blocker, ...] | bool]],
    ) -> tuple[Blocker, ...] | bool:
        problem: Blocker | None = None
        for attempt in range(TRIES_MAX):
            if attempt:
                await self._clock.sleep(self._limits.switch_poll_s * 2**attempt)
            try:
                return await act(await self._source.open(), change)
            except SwitchRefused as refused:
                return (self._source.describe(refused),)
            except PortError as error:
                problem = self._source.describe(error)
        assert problem is not None
        return (problem,)

    async def _carry_out(self, switch: Switch, change: LeafChange) -> tuple[Blocker, ...]:
        state = await switch.read_networks(())
        if inside := tuple(list_occupied(state, change.absent)):
            return inside
        missing = find_missing_change(change.wanted, state)
        if not missing.empty:
            await switch.apply_networks(missing)
        if not await switch.is_saved():
            await switch.save_configuration()
        return await self._prove(switch, change)

    async def _shut_down(self, switch: Switch, change: LeafChange) -> tuple[Blocker, ...] | bool:
        """Have routers outside go around what the change ends; False: it ends no session."""
        state = await switch.read_networks(())
        if inside := tuple(list_occupied(state, change.absent)):
            return inside
        shutdown = plan_shutdown(find_missing_change(change.wanted, state), state)
        if shutdown.empty:
            return False
        missing = find_missing_change(shutdown, state)
        if not missing.empty:
            await switch.apply_networks(missing)

            async def holds() -> bool:
                return find_missing_change(shutdown, await switch.read_networks(())).empty

            if not await self._until(holds):
                detail = "it does not ask the routers outside to go around it"
                return (self._no(Reason.ISOLATION, detail),)
        return True

    async def _prove(self, switch: Switch, change: LeafChange) -> tuple[Blocker, ...]:
        """Return the first difference that stays for `switch_apply_limit_s`; () if none does."""
        unproved: tuple[Blocker, ...] = ()

        async def holds() -> bool:
            nonlocal unproved
            state = await switch.read_networks(change.present)
            unproved = find_unproved(change, state)
            if not unproved and not find_missing_change(change.wanted, state).empty:
                unproved = (self._no(Reason.ISOLATION, "the applied change is not in force"),)
            return not unproved

        return () if await self._until(holds) else unproved[:1]

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> bool:
        until = self._clock.now() + self._limits.switch_apply_limit_s
        while not await holds():
            if self._clock.now() >= until:
                return False
            await self._clock.sleep(self._limits.switch_poll_s)
        return True

    def _no(self, reason: Reason, detail: str) -> Blocker:
        return Blocker(
            reason=reason,
            subject=self.name,
            detail=detail,
            unblock="Look at the switch's revisions and log, then ask again.",
        )


LEAVES_AT_ONCE = 16  # of different scalable units; a leaf takes seconds, a site has hundreds


class VrfIsolation:
    """The leaves among the store's nodes.

    `reach` gives a switch's address and login. `ports` moves ports: without it, this makes and
    removes networks only, and `where` and `place` are not to be called.
    """

    def __init__(
        self,
        store: SqlStore,
        plan: AddressPlan,
        reach: Reach,
        clock: Clock,
        settings: Settings,
        ports: Tenancy | None = None,
    ) -> None:
        self._store = store
        self._plan = plan
        self._reach = reach
        self._clock = clock
        self._settings = settings
        self._ports = ports

    async def fabric(self) -> FabricPlan:
        """Return the leaves of the present nodes, with the limits of their systems."""
        nodes = await self._store.nodes.list()
        limits = {}
        for node in (n for n in nodes if n.kind is NodeKind.SWITCH):
            facts = self._reach.switches.get_facts(node.os, node.address)
            if facts is not None:
                limits[node.id] = facts.networks
        planned = plan_fabric(self._plan, nodes, limits)
        partitions = self._settings.isolation == "infiniband"
        limit = self._settings.outside_prefixes_max
        return planned.model_copy(update={"partitions": partitions, "prefixes_max": limit})

    async def delta(self, tenants: Sequence[Tenant], only: Collection[str] = ()) -> FabricDelta:
        """Apply one revision to each leaf that differs from its desired configuration."""
        plan = await self.fabric()
        if self._settings.fabric_overlay != "l3_evpn" and (plan.leaves or not plan.partitions):
            return FabricDelta(blockers=(_without_overlay(),))
        if plan.unknown:
            return FabricDelta(blockers=tuple(_unplanned(name) for name in plan.unknown))
        staying = [t for t in tenants if t.phase is not Phase.LEAVING]
        networks = plan_networks(staying, plan, await self._store.nodes.list())
        managed = [t.vrf for t in tenants if t.number is not None]
        leaves = [leaf for leaf in plan.leaves if leaf.switch in _asked(tenants, only, plan)]
        focus = [t.vrf for t in tenants if t.number is not None and (not only or t.name in only)]
        slots = asyncio.Semaphore(LEAVES_AT_ONCE)

        async def looked(leaf: LeafPlan) -> FabricStep | tuple[Blocker, ...] | None:
            async with slots:
                state = await self._leaf(leaf.switch).look(focus)
            change = plan_leaf_change(
                leaf, networks[leaf.switch], state, managed=managed, focus=focus
            )
            if not isinstance(change, LeafChange) or isinstance(state, Blocker):
                return change if isinstance(change, tuple) else ()
            # also without a request: the applied configuration may not be in force or saved yet
            is_done = change.empty and not find_unproved(change, state)
            lines = describe_change(change.networks, state)
            return None if is_done else FabricStep(leaf.switch, lines, change)

        outcomes = await asyncio.gather(*map(looked, leaves))
        return FabricDelta(
            steps=tuple(step for step in outcomes if isinstance(step, FabricStep)),
            blockers=tuple(
                b for outcome in outcomes if isinstance(outcome, tuple) for b in outcome
            ),
        )

    async def read_filters(self, tenant: Tenant) -> TenantFilters:
        """Return the filters of security groups on the ports in a tenant's VRF, read now."""
        leaves = (await self.fabric()).select_leaves(tenant)
        slots = asyncio.Semaphore(LEAVES_AT_ONCE)

        async def looked(leaf: LeafPlan) -> NetworkState | Blocker:
            async with slots:
                return await self._leaf(leaf.switch).look()

        states = await asyncio.gather(*map(looked, leaves))
        ports = {
            (port.switch, port.interface): (node, port)
            for node in await self._store.nodes.list()
            for port in node.ports
        }
        rows = [
            s
            for state in states
            if isinstance(state, NetworkState)
            for s in list_filtered_ports(tenant, state, ports)
        ]
        return TenantFilters(
            ports=tuple(rows), blockers=tuple(s for s in states if isinstance(s, Blocker))
        )

    async def bring(self, delta: FabricDelta) -> tuple[Blocker, ...]:
        """Change the leaves, each proved before the next one of its unit."""
        assert not delta.blockers
        units = {leaf.switch: (leaf.pod, leaf.unit) for leaf in (await self.fabric()).leaves}
        by_unit: dict[tuple[int, int] | None, list[LeafChange]] = {}
        for step in delta.steps:
            assert isinstance(step.order, LeafChange)
            by_unit.setdefault(units.get(step.device), []).append(step.order)
        blockers: list[Blocker] = []
        slots = asyncio.Semaphore(LEAVES_AT_ONCE)

        async def unit(changes: Sequence[LeafChange]) -> None:
            async with slots:
                for change in changes:
                    if blockers:
                        return
                    blockers.extend(await self._leaf(change.switch).bring(change))

        await asyncio.gather(*(unit(changes) for changes in by_unit.values()))
        return tuple(blockers)

    async def where(
        self, members: Sequence[Member], tenants: Sequence[Tenant]
    ) -> Mapping[Member, frozenset[str]] | Blocker:
        """Return the VRF of each port, from its leaf's operational state."""
        assert self._ports is not None
        read = await self._ports.read([_port(m) for m in members])
        if isinstance(read, Blocker):
            return read
        vrfs = {(p.switch, p.interface): p.vrf for p in read}
        nowhere = ("", "default")
        return {
            m: frozenset({vrf} if (vrf := vrfs[m.device, m.name]) not in nowhere else ())
            for m in members
        }

    async def place(
        self, members: Sequence[Member], vrf: str, tenants: Sequence[Tenant]
    ) -> tuple[Blocker, ...]:
        """Move the ports. A port is in one VRF at a time by nature."""
        assert self._ports is not None
        if vrf != MAINTENANCE_VRF and vrf not in {t.vrf for t in tenants}:
            return (_unknown(vrf),)
        if not members:
            return (_unknown("no ports"),)
        outcome = await self._ports.move([_port(m) for m in members], vrf)
        return outcome.blockers

    async def close(self) -> None:
        if self._ports is not None:
            await self._ports.close()

    def _leaf(self, name: str) -> LeafConfig:
        async def lookup() -> SwitchAddress | Blocker:
            node: Node | None = await self._store.nodes.get(name)
            return _unknown(name) if node is None else await self._reach.switch(node)

        source = SwitchSource(name, lookup, self._reach.switches, self._clock, self._settings)
        return LeafConfig(source, self._clock, self._settings)


def _asked(tenants: Sequence[Tenant], only: Collection[str], plan: FabricPlan) -> set[str]:
    """The leaves to be read. A tenant that was changed or leaves may have remains anywhere."""
    chosen = [t for t in tenants if t.number is not None and (not only or t.name in only)]
    if not only or any(t.phase is Phase.LEAVING or t.generation for t in chosen):
        return {leaf.switch for leaf in plan.leaves}
    return {leaf.switch for t in chosen for leaf in plan.select_leaves(t)}


def _port(member: Member) -> Port:
    return Port(
        switch=member.device, interface=member.name, rail=-1, nic_slot="", address=member.address
    )


def _unknown(what: str) -> Blocker:
    return Blocker(
        reason=Reason.NOT_EXPECTED,
        subject=what,
        detail="nothing of this name is known here",
        unblock="Create the tenant, or take the switch in, first.",
    )


def _unplanned(switch: str) -> Blocker:
    return Blocker(
        reason=Reason.NOT_EXPECTED,
        subject=switch,
        detail="nodes are cabled to it, and it is no leaf of the address plan",
        unblock="Name the site's address plan with --plan, or correct the node's ports.",
    )


def _without_overlay() -> Blocker:
    return Blocker(
        reason=Reason.PRECONDITION,
        subject="fabric_overlay",
        detail="the setting says pure_l3: the NICs' inter-packet gap is not that of an overlay",
        unblock="Set fabric_overlay to l3_evpn, and validate every node again.",
    )
