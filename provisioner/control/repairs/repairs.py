"""Open cases for observed faults, move nodes into repair and close cases that are solved.

A timer loop over rows: it may be run at any time, by any daemon, any number of times. It touches no
device: the node's own driver does (`repair_workflow.py`). The case is written before the node, so
that a successor finds the reason before its effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from provisioner.control.context import Context, StateIndex, find_node
from provisioner.control.repairs.case_service import CaseService, close_case
from provisioner.control.repairs.stand_ins import StandIns
from provisioner.model.adoption.capability import Capability
from provisioner.model.alert import Alert
from provisioner.model.case import Case, Ending, Origin, RemedyKind, RemedyOutcome, Service, Stage
from provisioner.model.events.case_events import CaseClosed, CaseNeedsHardware, PartsCompared
from provisioner.model.events.request_events import RequestCarriedOut
from provisioner.model.node import Node, NodeKind, State, TenantData
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification import regression
from provisioner.planning.lifecycle.journey import enter_state, may_enter
from provisioner.planning.lifecycle.operator_requests import reclaim_node
from provisioner.planning.release import entitlement
from provisioner.planning.repair import case_joining, case_policy, remedies
from provisioner.planning.watch import alerts as alert_rules
from provisioner.ports import DamagedRow, StaleWrite
from provisioner.store.repositories.alerts import SqlAlertRepository

log = logging.getLogger(__name__)
# a node with a case that is on its way to be proved
_UNDER_WAY = frozenset({State.DISCOVERED, State.INTAKE, State.CONVERGING, State.VALIDATING})
_BACK = frozenset({Stage.MEASURING, Stage.RETURNING})
PART = 256  # nodes that are looked at in one go: about a millisecond


class UrgentCalls:
    """Nodes whose alerts have just changed: who raises them calls, and repairs look at once."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._called = asyncio.Event()

    def call(self, node: str) -> None:
        """Have a node looked at now, and not at the next tick."""
        self._nodes.add(node)
        self._called.set()

    async def wait(self) -> None:
        """Wait until a node was called that was not taken yet."""
        await self._called.wait()

    def take(self) -> Sequence[str]:
        """Return the nodes that were called since the last time."""
        self._called.clear()
        names = sorted(self._nodes)
        self._nodes.clear()
        return names


class Repairs:
    """`submit` hands an operation to the engine."""

    def __init__(
        self,
        context: Context,
        case_service: CaseService,
        alerts: SqlAlertRepository | None,
        submit: Callable[[str], Awaitable[None]],
        calls: UrgentCalls | None = None,
    ) -> None:
        self.case_service = case_service
        self.calls = calls or UrgentCalls()
        self._context = context
        self._store = context.store
        self._alerts = alerts
        self._clock = context.clock
        self._settings = context.settings
        self._submit = submit
        self.stand_ins = StandIns(context, case_service.book, alerts, submit)
        self._in_quarantine = StateIndex(State.QUARANTINED)
        self._locks: dict[str, asyncio.Lock] = {}  # a tick and an urgent look open no case twice

    async def answer_calls(self) -> None:
        """Look for ever at nodes as soon as they are called; a slow look holds up no other."""
        async with asyncio.TaskGroup() as looks:
            while True:
                await self.calls.wait()
                for name in self.calls.take():
                    looks.create_task(self.look(name))

    async def look(self, name: str) -> None:
        try:
            # rows of three tables that are read at once cost one turn of the database
            node, standing, case = await asyncio.gather(
                self._store.nodes.get(name),
                self._list_standing(name),
                self.case_service.book.get_open(name),
            )
            if node is None or node.kind is not NodeKind.HOST:
                return
            if case is None:
                await self._open(node, standing)
            else:
                await self._advance(case, node, standing)
            if self._settings.spares_per_unit:
                await self._replace(name)
        except (StaleWrite, DamagedRow):
            return  # the next tick sees it

    async def run(self) -> None:
        """Tick for ever, at the pace of `poll_s`."""
        while True:
            await self.tick()
            await self._clock.sleep(self._settings.poll_s)

    async def tick(self) -> None:
        """Look at all nodes and cases once."""
        fleet = await self._store.nodes.list()
        if self._settings.spares_per_unit:
            self.stand_ins.take_nodes(fleet)
        quarantined = self._in_quarantine.take(fleet)
        cases = {c.node: c for c in await self.case_service.book.list_open()}
        self.stand_ins.take_cases(cases.values())
        standing = await self._standing()
        # nothing is reported of the others: almost the whole fleet
        for number, name in enumerate(sorted(cases.keys() | standing.keys() | quarantined)):
            if number % PART == 0:
                await asyncio.sleep(0)  # a call is not held up by all of them
            node = find_node(fleet, name)
            if node is None or node.kind is not NodeKind.HOST:
                continue
            case = cases.get(name)
            try:
                if case is None:
                    await self._open(node, standing.get(node.id, ()))
                else:
                    await self._advance(case, node, standing.get(node.id, ()))
                    if case.stand_in or self._settings.spares_per_unit:
                        await self._replace(node.id)
            except StaleWrite:
                continue  # another daemon was faster; the next tick sees it

    async def _standing(self) -> Mapping[str, Sequence[Alert]]:
        """Return alerts that have an effect, by node."""
        if self._alerts is None:
            return {}
        now = self._clock.now()
        overrides = await self._alerts.list_overrides()
        by_node: dict[str, list[Alert]] = {}
        for alert in alert_rules.list_effective(await self._alerts.list(), overrides, now):
            by_node.setdefault(alert.node, []).append(alert)
        return by_node

    async def _list_standing(self, name: str) -> Sequence[Alert]:
        if self._alerts is None:
            return ()
        overrides, present = await asyncio.gather(
            self._alerts.list_overrides(name), self._alerts.list(name)
        )
        return alert_rules.list_effective(present, overrides, self._clock.now())

    async def _replace(self, name: str) -> None:
        """Go on with the replacement of a node, by rows read again."""
        case, node = await asyncio.gather(
            self.case_service.book.get_open(name), self._store.nodes.get(name)
        )
        if case is not None and node is not None:
            await self.stand_ins.provide(case, node)

    async def _report(
        self,
        node: Node,
        origin: Origin,
        reason: str,
        by: str = "provisioner",
        *,
        service: Service | None = None,
        work: str = "",
    ) -> None:
        """Open a case, unless another look has opened one, or the node is adopted and no person
        granted that.
        """
        act = f"open a repair case: {reason}"[:200]
        if await self._context.refuse_act(node, Capability.TICKETS, act):
            return
        async with self._locks.setdefault(node.id, asyncio.Lock()):
            if await self.case_service.book.get_open(node.id) is None:
                await self.case_service.open(node, origin, reason, by, service=service, work=work)

    async def _open(self, node: Node, standing: Sequence[Alert]) -> None:
        if violations := entitlement.isolation_violations_of(node):
            # people find out whose hand it was; nothing is wrong with the node itself
            nobodys = node if node.tenant_data else node.model_copy(update={"tenant": ""})
            reason = str(violations[0])
            work = violations[0].unblock
            await self._report(nobodys, Origin.WORK, reason, service=Service.KEEP, work=work)
            return
        if node.state is State.QUARANTINED and case_policy.is_repairable(
            node, self._settings.remedies_max
        ):
            first = node.blockers[0]
            checked = first.reason in (Reason.CHECK_FAILED, Reason.CABLING, Reason.FABRIC)
            origin = Origin.CHECK if checked else Origin.WORK
            await self._report(node, origin, str(first))
            return
        if node.state not in (State.RELEASED, State.CERTIFIED):
            return
        drains = node.state is State.RELEASED and self._settings.certificate_lapsed == "drain"
        if drains and (lapsed := case_policy.lapsed_alerts(standing)):
            reason = f"{lapsed[0].message}; it is proved anew"
            drain = Service.DRAIN  # with its notice: a date never cuts a tenant off
            await self._report(node, Origin.WORK, reason, service=drain)
            return
        opening = case_policy.opening_alerts(standing)
        if opening:
            worst = opening[0]
            reason = f"{worst.id} at {worst.target or node.id}: {worst.message}"
            await self._report(node, Origin.EVENT, reason, worst.source)

    async def _advance(self, case: Case, node: Node, standing: Sequence[Alert]) -> None:
        match node.state:
            case State.RELEASED:
                await self._released(case, node, standing)
            case State.CERTIFIED:
                await self._certified(case, node)
            case State.QUARANTINED:
                await self._quarantined(case, node)
            case State.REPAIRING:
                await self._repairing(case, node)
            case State.RETIRED:
                await self._close(case, node, Ending.RETIRED, "the node is retired")
            case state if state in _UNDER_WAY:
                await self._under_way(case, node)

    async def _released(self, case: Case, node: Node, standing: Sequence[Alert]) -> None:
        if case.stage is Stage.OPENED and (new := case_joining.find_new_alerts(case, standing)):
            worst = new[0]
            reason = f"{worst.id} at {worst.target or node.id}: {worst.message}"
            joined = await self.case_service.join_report(
                case, node, Origin.EVENT, reason, worst.source, alerts=new
            )
            assert isinstance(joined, Case)
            case = joined
        now = self._clock.now()
        taken_at = case.drain_at
        if case.retire_at and case.stage is not Stage.OPENED:
            taken_at = case.retire_at  # it came back from repair meanwhile
        if case.stage in _BACK and not case.retire_at:
            await self._well(case, node)
        elif case.service is Service.KEEP and not case.retire_at:
            quiet = now - case.opened_at >= self._settings.repair_quiet_s
            if quiet and case.origin is Origin.EVENT and not case_policy.opening_alerts(standing):
                await self._close(case, node, Ending.NO_FAULT, "its alerts are over")
        elif taken_at <= now:
            act = f"take it back for repair ({case.id})"
            if await self._context.refuse_act(node, Capability.CERTIFICATION, act):
                return
            draining = reclaim_node(node, now, for_repair=True)
            assert isinstance(draining, Node)
            changes = {"note": f"taken back for repair ({case.id})"}
            if case.stood_in_at:  # another node has its place
                changes["tenant"] = ""
            await self._store.nodes.save(draining.model_copy(update=changes))
            event = RequestCarriedOut(about=node.id, request="repair", case=case.id)
            await self._store.journal.append(event, now)

    async def _certified(self, case: Case, node: Node) -> None:
        if case.stage in _BACK and (not case.retire_at or case.retire_at > self._clock.now()):
            if not (node.tenant or case.retire_at):  # else it is well once it is back
                await self._well(case, node)
            return
        why = Blocker(
            reason=Reason.CHECK_FAILED,
            subject=node.id,
            detail=f"case {case.id}: {case.reason}",
            unblock=f"See `provisioner case show {case.id}`.",
        )
        await self._move(node, State.QUARANTINED, str(why), blockers=(why,))

    async def _quarantined(self, case: Case, node: Node) -> None:
        if not may_enter(node, State.REPAIRING, node.placement):
            return
        if node.tenant_data is TenantData.ASKED and case.stage in _BACK:
            return  # a person decides about its tenant's data: no remedy has failed
        # else people were faster than this loop: it is taken in from `repairing`
        if case.stage in _BACK and node.entered_at > case.stages[-1].at:
            now = self._clock.now()
            if case_policy.is_incurable(case, node):
                if case.note != (note := str(node.blockers[0])[:500]):
                    changed = case.model_copy(update={"note": note})
                    await self.case_service.book.save(changed, now=now)
                return  # it goes on when people have it tried again
            # the remedy did not help, or it came back not well
            await self.case_service.book.save(case.enter_stage(Stage.EVIDENCE, now), now=now)
        await self._move(node, State.REPAIRING, f"case {case.id}", blockers=node.blockers)

    async def _repairing(self, case: Case, node: Node) -> None:
        """Call the node's driver, which rests while the case waits, again."""
        if case_policy.has_to_wait(case, self._clock.now()):
            return
        if any(b.reason is Reason.OUR_BUG for b in node.blockers):
            return  # parked: a person looks at it first
        operation = await self._store.operations.open(node.id, "repair", self._clock.now())
        if operation is not None:
            await self._submit(operation.id)

    async def _under_way(self, case: Case, node: Node) -> None:
        now = self._clock.now()
        if case.stage is Stage.HARDWARE:  # a person had it tried again without a word to the case
            await self.case_service.book.save(case.enter_stage(Stage.RETURNING, now), now=now)
            return
        if case.stage is not Stage.RETURNING or node.state in (State.DISCOVERED, State.INTAKE):
            return
        inventory = await self._store.evidence.get_inventory(node.id)
        if inventory is None or case.difference is not None or not case.parts_before:
            return
        difference = regression.compare_parts(case, inventory)
        event = PartsCompared(about=node.id, case=case.id, **dict(difference))
        case = await self.case_service.book.save(
            case.model_copy(update={"difference": difference}), events=[event], now=now
        )
        if difference.wrong or (difference.missing and _asked_to_replace(case)):
            await self._wrong(case, node)

    async def _wrong(self, case: Case, node: Node) -> None:
        """Record that the returned machine is not the requested one: people are asked again."""
        now = self._clock.now()
        assert case.difference is not None
        if case.difference.wrong:
            problem = f"the wrong part came back: {case.difference.wrong[0]}"
        else:
            problem = f"the part in {case.difference.missing[0]} is the one from before"
        ticket = case.ticket
        if ticket is not None:
            ticket = ticket.model_copy(
                update={"closed_at": 0.0, "work": f"{problem}. {ticket.work}"}
            )
        again = case.enter_stage(Stage.HARDWARE, now, note=problem, ticket=ticket, difference=None)
        event = CaseNeedsHardware(about=node.id, case=case.id, work=problem)
        await self.case_service.book.save(again, events=[event], now=now)
        blocker = Blocker(
            reason=Reason.BILL_OF_MATERIALS,
            subject=node.id,
            detail=problem,
            unblock=f"Put the right part in; then `provisioner case returned {case.id}`.",
        )
        await self._move(node, State.QUARANTINED, problem, blockers=(blocker,))

    async def _well(self, case: Case, node: Node) -> None:
        now = self._clock.now()
        trying = case.trying
        tries = case.tries
        if trying is not None:
            tries = (*case.tries[:-1], remedies.measure_try(trying, (), now, well=True))
        people = any(t.remedy in (RemedyKind.RESEAT, RemedyKind.REPLACE) for t in tries[-1:])
        rerun = tries[-1:] and tries[-1].remedy is RemedyKind.RERUN
        ending = Ending.REPAIRED if people else Ending.NO_FAULT if rerun else Ending.CURED
        if case.stage is Stage.RETURNING:
            ending = Ending.REPAIRED
        assert all(t.outcome is not RemedyOutcome.UNDER_WAY for t in tries)
        changed = case.model_copy(update={"tries": tries})
        await self._close(changed, node, ending, "it is certified again")

    async def _close(self, case: Case, node: Node, ending: Ending, why: str) -> None:
        now = self._clock.now()
        notices = []
        if case.tenant:
            kind = "retirement" if ending is Ending.RETIRED else "returned"
            text = f"Node {node.id}: {why} ({ending.value})."
            if case.stood_in_at:
                kind = "replacement"
                text += f" {case.stand_in} serves you in its place."
            notices = [case_policy.make_notice(case, kind, text, now)]
        event = CaseClosed(about=node.id, case=case.id, ending=ending, why=why)
        await self.case_service.book.save(
            close_case(case, ending, now, why), notices=notices, events=[event], now=now
        )
        await self.stand_ins.withdraw(case)

    async def _move(
        self, node: Node, state: State, why: str, blockers: Sequence[Blocker] = ()
    ) -> None:
        now = self._clock.now()
        if not may_enter(node, state, node.placement):
            return
        await self._store.nodes.save(
            enter_state(node, state, why, now, {"blockers": tuple(blockers)})
        )


def _asked_to_replace(case: Case) -> bool:
    last = case.tries[-1] if case.tries else None
    return last is not None and last.remedy is RemedyKind.REPLACE
