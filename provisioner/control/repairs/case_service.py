"""Opening of cases and people's requests on them: from the daemon, a command, or the API.

A case is written with its notice in one transaction, so that a tenant is notified at once or there
is no case. Every change carries the generation that was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from provisioner.control.context import Context
from provisioner.execution.steps.farewell import CARDS, FACTORY
from provisioner.model.alert import Alert
from provisioner.model.case import (
    Case,
    Ending,
    Fault,
    JoinedReport,
    Origin,
    Service,
    Spare,
    Stage,
    Ticket,
)
from provisioner.model.events.case_events import (
    CaseAccepted,
    CaseClosed,
    CaseDeferred,
    CaseJoined,
    CaseOpened,
    CaseRetirementPlanned,
    CaseReturned,
    CaseReturnNumbered,
    CaseSpareReserved,
    CaseTicketRetried,
    HostReplaced,
)
from provisioner.model.node import Node, State
from provisioner.planning.certification import regression
from provisioner.planning.repair import case_joining, case_policy
from provisioner.planning.repair.case_joining import OffenderPolicy
from provisioner.planning.repair.case_policy import OUT_OF_SERVICE, CasePolicy, PlannedWork
from provisioner.ports import Clock, Credentials, Secret, StaleWrite
from provisioner.settings import Settings
from provisioner.store.repositories.alerts import SqlAlertRepository
from provisioner.store.repositories.cases import SqlCaseRepository
from provisioner.store.sql_store import SqlStore

JOIN_TRIES_MAX = 5  # a case that another process changes meanwhile is read again so often


def case_policy_of(settings: Settings) -> CasePolicy:
    return CasePolicy(
        service=settings.repair_service,
        notice_s=settings.repair_notice_s,
        defer_max_s=settings.repair_defer_max_s,
        quiet_s=settings.repair_quiet_s,
    )


def offender_policy_of(settings: Settings) -> OffenderPolicy:
    """Return the site's rule for repeat offenders."""
    return OffenderPolicy(
        deeper_at=settings.repair_deeper_score, retire_at=settings.repair_retire_score
    )


class CaseService:
    """Reads and writes rows only; nothing here touches a device."""

    def __init__(
        self, context: Context, book: SqlCaseRepository, alerts: SqlAlertRepository | None
    ) -> None:
        self.book = book
        self._store = context.store
        self._alerts = alerts
        self._clock = context.clock
        self.policy = case_policy_of(context.settings)
        self.offenders = offender_policy_of(context.settings)

    async def open(
        self,
        node: Node,
        origin: Origin,
        reason: str,
        by: str,
        *,
        service: Service | None = None,
        faults: Sequence[Fault] = (),
        work: str = "",
        planned: PlannedWork | None = None,
    ) -> Case | str:
        """Open a case and notify the tenant; or add the report to the open case, or return why
        neither.

        `work`: a job for people before anything is diagnosed or tried. `planned`: when maintenance
        begins and ends.
        """
        if node.state is State.RETIRED:
            return "it is retired"
        for _ in range(JOIN_TRIES_MAX):
            before = await self.book.get_open(node.id)
            try:
                if before is not None:
                    return await self.join_report(before, node, origin, reason, by, service=service)
                made = await self._open(
                    node,
                    origin,
                    reason,
                    by,
                    service=service,
                    faults=faults,
                    work=work,
                    planned=planned,
                )
            except StaleWrite:
                continue  # another process changed the case meanwhile
            if made is not None:
                return made
        return "its case changes all the time: report it again"

    async def _open(
        self,
        node: Node,
        origin: Origin,
        reason: str,
        by: str,
        *,
        service: Service | None,
        faults: Sequence[Fault],
        work: str,
        planned: PlannedWork | None,
    ) -> Case | None:
        """Return a new case, or None if another process opened one meanwhile."""
        now = self._clock.now()
        earlier, standing, inventory = await asyncio.gather(
            self.book.list(node.id, case_joining.CASES_MAX),
            self._standing(node),
            self._store.evidence.get_inventory(node.id),
        )
        classes = [c for a in standing for c in a.classifications]
        chosen = service or case_policy.service_for(classes, origin, self.policy)
        case = case_policy.open_case(
            node,
            number=1 + max((int(c.id.rpartition("-c")[2]) for c in earlier), default=0),
            origin=origin,
            reason=reason,
            by=by,
            service=chosen,
            inventory=inventory,
            policy=self.policy,
            now=now,
            faults=faults,
            planned=planned,
        )
        if work:
            ticket = Ticket(opened_at=now, work=work)
            case = case.enter_stage(Stage.HARDWARE, now, note=work, ticket=ticket)
        score = case_joining.compute_score(node.id, [*earlier, case], now, self.offenders)
        deeper = score.advice is not case_joining.Advice.NOTHING
        case = case_joining.add_weighed(case, case_policy.opening_alerts(standing))
        case = case.model_copy(update={"score": score.score, "deeper": deeper})
        notices = [case_policy.first_notice(case, now)] if case.tenant else []
        event = CaseOpened(
            about=node.id,
            case=case.id,
            origin=origin,
            reason=reason,
            service=chosen,
            by=by,
            score=score.score,
        )
        return await self.book.add(case, notices=notices, events=[event], now=now)

    async def join_report(
        self,
        case: Case,
        node: Node,
        origin: Origin,
        reason: str,
        by: str,
        *,
        service: Service | None = None,
        alerts: Sequence[Alert] = (),
    ) -> Case | str:
        """Add a report to an open case: it can only make the service stricter, and does so now.

        `alerts`: that the report is about; they are recorded as weighed. Raises `StaleWrite`.
        """
        now = self._clock.now()
        weighed = alerts if origin is Origin.EVENT else ()
        chosen = service or case_joining.choose_service_of_alerts(weighed, origin, self.policy)
        report = JoinedReport(origin=origin, reason=reason, by=by, at=now)
        joined = case_joining.join_report(case, node, report, chosen, self.policy)
        if isinstance(joined, str):
            return joined
        if case.weighed is not None or alerts:
            joined = case_joining.add_weighed(joined, alerts)
        notice = case_joining.write_joined_notice(case, joined, now)
        event = CaseJoined(
            about=node.id,
            case=case.id,
            origin=origin,
            reason=reason,
            by=by,
            service=joined.service,
            before=case.service,
        )
        notices = [notice] if notice is not None else []
        return await self.book.save(joined, notices=notices, events=[event], now=now)

    async def _standing(self, node: Node) -> Sequence[Alert]:
        if self._alerts is None:
            return ()
        return [a for a in await self._alerts.list(node.id) if a.active]

    # --- what people and tenants ask of an open case

    async def defer(self, case: Case, until: float, by: str) -> Case | str:
        """Record that the tenant needs more time."""
        now = self._clock.now()
        changed = case_policy.defer_drain(case, until, self.policy, now)
        if isinstance(changed, str):
            return changed
        kind = "maintenance" if case.origin is Origin.MAINTENANCE else "failure"
        notice = case_policy.make_notice(
            changed, kind, f"Node {case.node} is taken back later.", now, until
        )
        event = CaseDeferred(about=case.node, case=case.id, until=until, by=by)
        return await self.book.save(changed, notices=[notice], events=[event], now=now)

    async def accept(self, case: Case, by: str) -> Case | str:
        """Record that the tenant agrees: the node is drained now."""
        if case.stage is not Stage.OPENED:
            return f"it is in {case.stage}"
        now = self._clock.now()
        changes = {"drain_at": now, "service": Service.DRAIN, "note": "agreed by its tenant"}
        if case.service is Service.CUT_OFF:
            del changes["service"]
        event = CaseAccepted(about=case.node, case=case.id, by=by)
        return await self.book.save(case.model_copy(update=changes), events=[event], now=now)

    async def is_asked(self, case: Case) -> bool:
        """Whether people were asked, or it came back in a way that only people can change."""
        if case.stage is not Stage.RETURNING:
            return case.stage is Stage.HARDWARE
        node = await self._store.nodes.get(case.node)
        return node is not None and case_policy.is_incurable(case, node)

    async def record_return(self, case: Case, by: str, work: str) -> Case | str:
        """Record that people are done: the node is taken in as a stranger."""
        if not await self.is_asked(case):
            return f"it is in {case.stage}: no work was asked for"
        now = self._clock.now()
        changed = _ticket_closed(case, now).enter_stage(
            Stage.RETURNING, now, note=work[:500], difference=None
        )
        event = CaseReturned(about=case.node, case=case.id, by=by, work=work[:500])
        return await self.book.save(changed, events=[event], now=now)

    async def record_rma(self, case: Case, number: str, by: str) -> Case | str:
        if case.ticket is None or not case.open:
            return "no work was asked for on it" if case.open else "it is closed"
        ticket = case.ticket.model_copy(update={"rma": number})
        event = CaseReturnNumbered(about=case.node, case=case.id, rma=number, by=by)
        changed = case.model_copy(update={"ticket": ticket})
        return await self.book.save(changed, events=[event], now=self._clock.now())

    async def record_spare(self, case: Case, part: Spare, by: str) -> Case | str:
        if not case.open:
            return "it is closed"
        now = self._clock.now()
        part = part.model_copy(update={"reserved_at": now})
        event = CaseSpareReserved(about=case.node, case=case.id, spare=part.serial, by=by)
        return await self.book.save(
            case.model_copy(update={"spare": part}), events=[event], now=now
        )

    async def send_ticket(self, case: Case, by: str) -> Case | str:
        """Send its ticket again now, after sending failed."""
        ticket = case.ticket
        if ticket is None or ticket.asked == ticket.told:
            return "there is nothing that its ticket's system has not heard"
        again = case.model_copy(
            update={"ticket": ticket.model_copy(update={"tries": 0, "problem": ""})}
        )
        event = CaseTicketRetried(about=case.node, case=case.id, by=by)
        return await self.book.save(again, events=[event], now=self._clock.now())

    async def retire(
        self, case: Case, at: float, why: str, by: str, *, disks: str = ""
    ) -> Case | str:
        """Notify the tenant that the node is retired at `at`; it is drained then, not before.

        `disks`: who destroyed them, and how; without it only an erased node is retired.
        """
        now = self._clock.now()
        if not case.open or at < now:
            return "it is closed" if not case.open else "that time is past"
        changes: dict[str, object] = {
            "note": f"to be retired: {why}"[:500],
            "retire_at": max(at, 1.0),
            "disks_gone": disks[:300],
            "next_at": 0.0,
        }
        if case.stage is Stage.OPENED and case.service is not Service.CUT_OFF:
            changes |= {"service": Service.DRAIN, "drain_at": at}
        text = f"Node {case.node} is retired: {why}"
        notices = (
            [case_policy.make_notice(case, "retirement", text, now, at)] if case.tenant else []
        )
        event = CaseRetirementPlanned(
            about=case.node, case=case.id, at=at, by=by, why=why, disks=disks
        )
        changed = case.model_copy(update=changes)
        return await self.book.save(changed, notices=notices, events=[event], now=now)

    async def close(self, case: Case, ending: Ending, by: str, why: str) -> Case | str:
        """Close by a person's decision. The node continues from its state; nothing proves that it
        is well.
        """
        if not case.open:
            return "it is closed"
        now = self._clock.now()
        event = CaseClosed(about=case.node, case=case.id, ending=ending, by=by, why=why)
        notices = []
        if case.tenant:
            kind = {Ending.RETIRED: "retirement", Ending.REPLACED: "replacement"}.get(
                ending, "closed"
            )
            text = f"Node {case.node}: the case is closed ({ending.value}): {why}"
            notices = [case_policy.make_notice(case, kind, text, now)]
        return await self.book.save(
            close_case(case, ending, now, why), notices=notices, events=[event], now=now
        )


def close_case(case: Case, ending: Ending, now: float, why: str) -> Case:
    return _ticket_closed(case, now).enter_stage(
        Stage.CLOSED, now, closed_at=now, ending=ending, note=why[:500], next_at=0.0
    )


def _ticket_closed(case: Case, now: float) -> Case:
    if case.ticket is None or case.ticket.closed_at:
        return case
    return case.model_copy(update={"ticket": case.ticket.model_copy(update={"closed_at": now})})


# ------------------------------------------------------------------------------
# People's changes to a node with a case: cards with new logins, or the host itself.
#
# Everything that can be refused is refused before the first row is written; the case comes last, so
# that after an interruption the request is made once more.


SAVES_MAX = 5  # a case that the daemon writes at the same moment
Login = tuple[str, Secret]
Factory = Callable[[str], Awaitable[Login | None]]  # vendor -> its factory login


def kept_factory(credentials: Credentials) -> Factory:
    """Return the factory logins that `provisioner case factory` has put into the vault."""

    async def find(vendor: str) -> Login | None:
        return await credentials.current(f"{FACTORY}/{vendor}")

    return find


class Exchanges:
    """The exchange of parts. `factory` gives the login of a BMC that was not taken over yet."""

    def __init__(
        self,
        store: SqlStore,
        case_service: CaseService,
        credentials: Credentials,
        clock: Clock,
        factory: Factory,
    ) -> None:
        self._store = store
        self._case_service = case_service
        self._credentials = credentials
        self._clock = clock
        self._factory = factory

    async def record_return(
        self, case: Case, by: str, work: str, cards: Sequence[str]
    ) -> Case | str:
        """Record that people are done; `cards` are BMCs of cards that were exchanged."""
        if not cards or not await self._case_service.is_asked(case):
            return await self._case_service.record_return(case, by, work)
        node = await self._store.nodes.get(case.node)
        assert node is not None, case.node
        unknown = sorted(set(cards) - {b.name for b in node.bmcs if b.name != "host"})
        if unknown:
            return f"{node.id} has no card {unknown[0]}"
        logins = await self._logins(node, cards)
        if isinstance(logins, str):
            return logins
        fresh = node.model_copy(update={"bmcs": regression.reset_exchanged_bmcs(node, cards)})
        await self._store.nodes.save(fresh)
        await self._put(node, logins)
        return await self._case_service.record_return(case, by, work)

    async def replace(self, case: Case, by: str, why: str) -> Case | str:
        """Replace the host: the new one keeps name, location and cables, nothing else."""
        node = await self._store.nodes.get(case.node)
        now = self._clock.now()
        assert node is not None, case.node
        if not case.open:
            return "it is closed"
        if node.state not in OUT_OF_SERVICE:
            return f"{node.id} is {node.state}: it is not out of service"
        logins = await self._logins(node, [b.name for b in node.bmcs])
        if isinstance(logins, str):
            return logins
        made = regression.replace_host(node, now)
        await self._store.nodes.save(made.node)
        if node.certificate:
            await self._store.evidence.revoke(node.certificate, why, now)
        await self._put(node, logins)
        await self._store.journal.append(HostReplaced(about=node.id, case=case.id, by=by), now)
        return await self._close(case, by, why)

    async def _close(self, case: Case, by: str, why: str) -> Case | str:
        for _ in range(SAVES_MAX):
            try:
                return await self._case_service.close(case, Ending.REPLACED, by, why)
            except StaleWrite:
                newer = await self._case_service.book.get(case.id)
                assert newer is not None
                case = newer
        raise StaleWrite(f"case {case.id} changes all the time")

    async def _logins(self, node: Node, names: Sequence[str]) -> dict[str, Login] | str:
        """Return the factory login of each of these BMCs, or why one is not known."""
        inventory = await self._store.evidence.get_inventory(node.id)
        host = inventory.vendor if inventory is not None else "unknown"
        kinds = {b.name: b.kind for b in node.bmcs}
        logins: dict[str, Login] = {}
        for name in names:
            vendor = CARDS if kinds.get(name) in ("dpu", "supernic") else host
            login = await self._factory(vendor)
            if login is None:
                return f"no factory login of {vendor} is known: `provisioner case factory` keeps it"
            logins[name] = login
        return logins

    async def _put(self, node: Node, logins: dict[str, Login]) -> None:
        for name, login in logins.items():
            await self._credentials.put(f"{node.id}/{name}", *login)
