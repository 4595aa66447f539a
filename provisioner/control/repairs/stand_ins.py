"""Give a tenant a certified spare for a node with a fault, and take the node's place from it.

Rows only, each step written before the next, so that a successor continues anywhere: in one
transaction the case names the spare (with the notice to the tenant), the spare's row gets the
tenant, and an operation is opened that releases it through the gate like every node. Once it is
proved to serve, the case records that, and the faulty node's row gives up the tenant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from provisioner.control.context import Context, FleetChanges
from provisioner.model.case import Case, TenantNotice
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.repair import case_policy
from provisioner.planning.repair.repair_report import RepairReport, make_report
from provisioner.planning.tenancy import spares
from provisioner.planning.tenancy.spares import Unit, find_unit
from provisioner.planning.watch import alerts as alert_rules
from provisioner.ports import StaleWrite
from provisioner.store.repositories.alerts import SqlAlertRepository
from provisioner.store.repositories.cases import SqlCaseRepository

# ------------------------------------------------------------------------------
# Which hosts share a unit, so that a fault at one of them reads few rows and not the fleet's.
#
# Only names are kept, from one tick to the next: whether a host is free is read when a spare is
# chosen. A host that was cabled elsewhere or entered since then is missed until the next tick, and
# every answer is compared with the present rows, which name its rails themselves.


NAMES_MAX = 512  # without leaves and scalable units all hosts are one unit: no index helps there


class UnitIndex:
    """The hosts of each unit by name."""

    def __init__(self) -> None:
        self._units: dict[str, Unit] = {}  # of each host
        self._names: dict[Unit, set[str]] = {}
        self._changes = FleetChanges()

    def take(self, nodes: Sequence[Node]) -> None:
        changes = self._changes.take(nodes)
        for node in changes.changed:
            if node.kind is NodeKind.HOST:
                self._put(node)
            else:
                self._drop(node.id)
        for name in changes.gone:
            self._drop(name)

    def list_names(self, faulty: Node) -> Collection[str] | None:
        """Return the hosts of its unit; None if that is to be found among all nodes."""
        names = self._names.get(find_unit(faulty), ())
        return names if faulty.id in names and len(names) <= NAMES_MAX else None

    def _put(self, node: Node) -> None:
        unit = find_unit(node)
        if self._units.get(node.id) != unit:
            self._drop(node.id)
            self._units[node.id] = unit
            self._names.setdefault(unit, set()).add(node.id)

    def _drop(self, name: str) -> None:
        unit = self._units.pop(name, None)
        if unit is None:
            return
        names = self._names[unit]
        names.discard(name)
        if not names:
            del self._names[unit]


# ------------------------------------------------------------------------------
# Read the sources of the repair figures: cases, and the journal's rows of tenants' service.
#
# They are not stored: each request is read page by page.


PAGE = 1000  # rows of the journal at a time
CASES_MAX = 100_000


async def compute_figures(book: SqlCaseRepository, since: float, until: float) -> RepairReport:
    """Return the report of cases opened between two times, and of tenants' service meanwhile."""
    rows: list[Mapping[str, Any]] = []
    after = 0
    while page := await book.list_tenancy(after, PAGE):
        rows += page
        after = int(page[-1]["seq"])
    return make_report(await book.list(limit=CASES_MAX), rows, since, until)


NONE_FREE = "no certified spare is free on its leaves: one takes its place once there is one"


class StandIns:
    """`submit` hands an operation to the engine."""

    def __init__(
        self,
        context: Context,
        book: SqlCaseRepository,
        alerts: SqlAlertRepository | None,
        submit: Callable[[str], Awaitable[None]],
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._book = book
        self._alerts = alerts
        self._submit = submit
        self._units = UnitIndex()
        self._promised: dict[str, str] | None = None  # spare -> case; None: not read yet

    def take_nodes(self, nodes: Sequence[Node]) -> None:
        """Learn from the present fleet which hosts share a unit."""
        self._units.take(nodes)

    def take_cases(self, cases: Iterable[Case]) -> None:
        """Learn from the open cases which spares are promised."""
        self._promised = {}
        for case in sorted(cases, key=lambda c: c.id):
            if case.stand_in and not case.stood_in_at:
                self._promised.setdefault(case.stand_in, case.id)

    async def provide(self, case: Case, node: Node) -> Case:
        """Advance the replacement of a node as far as it can go now; return the case as stored."""
        if spares.may_leave(case, node):
            await self._store.nodes.save(node.model_copy(update={"tenant": ""}))
            return case
        if self._settings.spares_per_unit == 0 or not spares.needs_stand_in(case, node):
            return case
        promised = await self._read_promised()
        if case.stand_in:
            spare = await self._store.nodes.get(case.stand_in)
            doubly = promised.get(case.stand_in, case.id) != case.id
            if doubly or spares.has_failed(case, spare):
                case = await self._give_up(case, None if doubly else spare)
        if not case.stand_in and spares.needs_stand_in(case, node):
            return await self._choose(case, node, promised)
        return await self._place(case) if case.stand_in else case

    async def withdraw(self, case: Case) -> None:
        """Take a spare back that is not needed any more, because the node itself returned."""
        if not case.stand_in or case.stood_in_at:
            return
        spare = await self._store.nodes.get(case.stand_in)
        if spare is not None and spares.may_withdraw(case, spare):
            await self._store.nodes.save(spare.model_copy(update={"tenant": ""}))

    async def _read_promised(self) -> dict[str, str]:
        if self._promised is None:
            self.take_cases(await self._book.list_open())
        assert self._promised is not None
        return self._promised

    async def _choose(self, case: Case, node: Node, promised: dict[str, str]) -> Case:
        """Return the case with a spare that is allocated, if one is free."""
        nodes = await self._list_unit(node)
        now = self._clock.now()
        barred: set[str] = set()
        while spare := spares.choose_spare(node, nodes, promised.keys() | barred):
            promised[spare.id] = case.id  # before anything is awaited: others take another one
            if not await self._is_held(spare):
                break
            del promised[spare.id]
            barred.add(spare.id)
        if spare is None:
            if case.note:
                return case
            return await self._book.save(case.model_copy(update={"note": NONE_FREE}), now=now)
        text = f"Node {spare.id} takes the place of {node.id}, once it is proved in your network."
        notice = case_policy.make_notice(case, "replacement", text, now, case.drain_at)
        note = "" if case.note == NONE_FREE else case.note
        changed = case.model_copy(update={"stand_in": spare.id, "note": note})
        try:
            return await self._allocate(changed, spare, [notice])
        except StaleWrite:
            del promised[spare.id]
            raise

    async def _allocate(self, case: Case, spare: Node, notices: Sequence[TenantNotice]) -> Case:
        """Store the spare's allocation with its case, and begin its release."""
        case, _, operation = await self._book.allocate_spare(
            case, spare, notices=notices, now=self._clock.now()
        )
        if operation is not None:
            await self._submit(operation.id)
        return case

    async def _list_unit(self, faulty: Node) -> Sequence[Node]:
        """Return the hosts that may take its place by their present rows, and perhaps others."""
        names = self._units.list_names(faulty)
        if names is None:
            nodes = await self._store.nodes.list()
            self._units.take(nodes)
            return nodes
        return await self._store.nodes.list_unassigned(names)

    async def _place(self, case: Case) -> Case:
        """Allocate the spare and have it released; record it once it serves."""
        spare = await self._store.nodes.get(case.stand_in)
        assert spare is not None, case.stand_in
        now = self._clock.now()
        if not spare.tenant:
            if not spares.is_free(spare):  # it was, when it was chosen
                return await self._give_up(case, spare)
            return await self._allocate(case, spare, ())  # as an older program left the rows
        if spare.state is not State.RELEASED:
            return case
        text = f"Node {spare.id} serves you in the place of {case.node}."
        notice = TenantNotice(
            id=f"{case.id}/stand-in/{spare.id}",
            tenant=case.tenant,
            node=spare.id,
            case=case.id,
            kind="returned",
            text=text,
            at=now,
        )
        changed = case.model_copy(update={"stood_in_at": now})
        return await self._book.save(changed, notices=[notice], now=now)

    async def _give_up(self, case: Case, spare: Node | None) -> Case:
        """Return the case without a spare that cannot take the place."""
        if spare is not None and spares.may_withdraw(case, spare):
            await self._store.nodes.save(spare.model_copy(update={"tenant": ""}))
        if self._promised is not None and self._promised.get(case.stand_in) == case.id:
            del self._promised[case.stand_in]
        changed = case.model_copy(update={"stand_in": ""})
        return await self._book.save(changed, now=self._clock.now())

    async def _is_held(self, spare: Node) -> bool:
        active = await self._store.operations.list_active()
        if any(o.node == spare.id and o.is_outside for o in active):
            return True
        if self._alerts is None:
            return False
        overrides, standing = await asyncio.gather(
            self._alerts.list_overrides(spare.id), self._alerts.list(spare.id)
        )
        return alert_rules.is_held(standing, overrides, self._clock.now())
