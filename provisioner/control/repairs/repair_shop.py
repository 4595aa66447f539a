"""All that repairs of one daemon consist of, put together: cases, remedies, work for people."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from provisioner.adapters.redfish.accounts import identify
from provisioner.control.context import Context
from provisioner.control.node.observer import Observer
from provisioner.control.node.repair_workflow import RepairWorkflow
from provisioner.control.node.retiring import Retirer
from provisioner.control.repairs.case_service import CaseService
from provisioner.control.repairs.repairs import Repairs, UrgentCalls
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site
from provisioner.execution.executor import Executor
from provisioner.execution.observe.identify import bill_of_materials
from provisioner.execution.repair.case_evidence import STORED, Bundler, EvidenceCollector
from provisioner.execution.rewriting import build_eraser
from provisioner.execution.tenancy.release_recheck import Rechecks
from provisioner.execution.tenancy.tenancy import Tenancy, find_wrong_cables
from provisioner.execution.validate.validator import Validator
from provisioner.model.adoption.capability import Capability
from provisioner.model.case import Case, Service, Stage, Ticket
from provisioner.model.case import Origin as CaseOrigin
from provisioner.model.events.case_events import (
    CaseBundled,
    CaseEvent,
    CaseIndicatorSwitched,
    CaseTicketSent,
)
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.outcome import Blocker
from provisioner.planning.erasure.erasure import policy_of
from provisioner.planning.path.profiles import choose_profile
from provisioner.planning.repair import evidence_bundle, repair_report
from provisioner.planning.repair.case_policy import is_taken_over
from provisioner.ports import Credentials, DamagedRow, PortError, StaleWrite
from provisioner.ports.tickets import TicketRef, TicketSystem
from provisioner.store.repositories.alerts import SqlAlertRepository
from provisioner.store.repositories.cases import SqlCaseRepository
from provisioner.store.signing import Signer

# ------------------------------------------------------------------------------
# Give work to people: evidence archive, identify LED, one ticket for each case.
#
# A timer loop by level: the ticket's desired content follows from the case (`ticket_words`). It is
# written into the case before it is sent. A successor that finds it written and not marked as sent
# checks first whether it arrived, so that a case never has two tickets.


log = logging.getLogger(__name__)
RETRY_MAX_S = 3600.0
TRIES_MAX = 100  # four days of an hour each: then a person has it sent again (`case tell`)
SAVES_MAX = 5  # people change a case too; a second or third conflict in a row is chance
GIVEN_UP = "given up"  # how a problem begins that is tried no more
CASES_MAX = 10_000  # looked through once, at the start, for tickets that are still open there


@dataclass
class _Wait:
    """When something of a case is tried again, and how often it was."""

    at: float = 0.0
    tries: int = 0


@dataclass
class _Kept:
    """The state of a case beside its row; lost with the process, and then restored."""

    led: _Wait = field(default_factory=_Wait)
    ticket: _Wait = field(default_factory=_Wait)


class Ticketing:
    """`system` None: work is shown on the command line and the API, and LED and archive remain."""

    def __init__(
        self,
        context: Context,
        book: SqlCaseRepository,
        reach: Reach,
        bundler: Bundler,
        system: TicketSystem | None,
    ) -> None:
        self._store = context.store
        self._book = book
        self._clock = context.clock
        self._settings = context.settings
        self._reach = reach
        self._bundler = bundler
        self._system = system
        self._kept: dict[str, _Kept] | None = None

    async def run(self) -> None:
        """Tick for ever, at the pace of `poll_s`."""
        while True:
            await self.tick()
            await self._clock.sleep(self._settings.poll_s)

    async def tick(self) -> None:
        """Look at all cases with a ticket once."""
        if self._kept is None:
            recent = await self._book.list(limit=CASES_MAX)
            self._kept = {c.id: _Kept() for c in recent if not self._over(c)}
        for case in await self._book.list_open():
            if case.ticket is not None:
                self._kept.setdefault(case.id, _Kept())
        for name in list(self._kept):
            now_case = await self._book.get(name)
            if now_case is None or (not now_case.open and self._over(now_case)):
                del self._kept[name]
                continue
            try:
                await self._advance(now_case, self._kept[name])
            except StaleWrite:
                continue  # a person was faster; the next tick sees it

    def _over(self, case: Case) -> bool:
        """Return whether nothing is left to be sent or switched off."""
        ticket = case.ticket
        if ticket is None:
            return True
        led_done = not ticket.led or self._gave_up(ticket.led_problem)
        is_sent = self._system is None or repair_report.identify_wanted(case) in ("", ticket.told)
        return case.stage is not Stage.HARDWARE and led_done and (is_sent or self._spent(ticket))

    async def _advance(self, case: Case, kept: _Kept) -> None:
        node = await self._store.nodes.get(case.node)
        if case.ticket is None or node is None:
            return
        working = case.stage is Stage.HARDWARE
        if working and not case.ticket.bundle:
            case = await self._bundle(case)
        if self._settings.repair_led and is_taken_over(node, case):
            case = await self._led(case, node, kept.led, on=working)
        if self._system is not None:
            await self._tell(case, node, kept.ticket, self._system)

    async def _bundle(self, case: Case) -> Case:
        now = self._clock.now()
        content = await self._bundler.make_archive(case, now)
        digest = evidence_bundle.digest(content)
        evidence = {**case.evidence, STORED: await self._bundler.store_archive(content)}
        case = case.model_copy(update={"evidence": evidence})
        event = CaseBundled(about=case.node, case=case.id, sha256=digest, bytes=len(content))
        return await self._save(case, {"bundle": digest}, event)

    async def _led(self, case: Case, node: Node, wait: _Wait, *, on: bool) -> Case:
        ticket = case.ticket
        now = self._clock.now()
        assert ticket is not None
        if ticket.led is on or now < wait.at or self._gave_up(ticket.led_problem):
            return case
        problem = await self._switch(node, on=on)
        if not problem:
            event = CaseIndicatorSwitched(about=case.node, case=case.id, on=on)
            return await self._save(case, {"led": on, "led_problem": ""}, event)
        self._later(wait, now)
        if wait.tries >= TRIES_MAX:
            problem = f"{GIVEN_UP}: {problem}"
        if problem == ticket.led_problem:
            return case
        return await self._save(case, {"led_problem": problem}, None)

    async def _switch(self, node: Node, *, on: bool) -> str:
        """Return why the LED is not as it is to be; "" if it is."""
        try:
            client = await self._reach.redfish(node, "host")
            if isinstance(client, Blocker):
                return client.detail
            answer = await identify(client.service, on=on)
        except PortError as error:
            return str(error)[:300]
        return "" if answer is None else answer.detail[:300]

    @staticmethod
    def _gave_up(problem: str) -> bool:
        return problem.startswith(GIVEN_UP)

    async def _tell(self, case: Case, node: Node, wait: _Wait, system: TicketSystem) -> None:
        ticket = case.ticket
        now = self._clock.now()
        assert ticket is not None
        message_id = repair_report.identify_wanted(case)
        if not message_id or (message_id == ticket.told and ticket.asked == ticket.told):
            return
        certain = ticket.asked == ticket.told  # nothing was under way that may have arrived
        if certain:
            intent = {"asked": message_id, "asks": ticket.asks + 1, "tries": 0, "problem": ""}
            case = await self._save(case, intent, None)
        elif self._spent(ticket) or (ticket.tries and now < wait.at):
            return
        try:
            ref = await self._deliver(case, node, system, look=not certain)
        except PortError as error:
            self._later(wait, now)
            assert case.ticket is not None
            failed = {"tries": case.ticket.tries + 1, "problem": str(error)[:300]}
            await self._save(case, failed, None)
            log.warning("%s: its ticket was not sent: %s", case.id, error)
            return
        wait.at = 0.0
        wait.tries = 0
        await self._told(case, ref, system)

    async def _deliver(
        self, case: Case, node: Node, system: TicketSystem, *, look: bool
    ) -> TicketRef:
        inventory = await self._store.evidence.get_inventory(node.id)
        message = repair_report.make_message(case, node, inventory, self._settings.site)
        if look:
            answer = await system.look(message.id)
            if answer.certain and answer.ref is not None:
                return answer.ref
        content = b"" if message.event == "closed" else await self._bundler.read_archive(case)
        return await system.send(message, content)

    async def _told(self, case: Case, ref: TicketRef, system: TicketSystem) -> None:
        ticket = case.ticket
        assert ticket is not None
        first = {} if ticket.id else {"id": ref.id, "url": ref.url, "system": system.name}
        event = CaseTicketSent(
            about=case.node, case=case.id, ticket=ticket.id or ref.id, told=ticket.asked.split()[0]
        )
        changes = {**first, "told": ticket.asked, "tries": 0, "problem": ""}
        await self._save(case, changes, event)

    def _spent(self, ticket: Ticket) -> bool:
        return ticket.tries >= TRIES_MAX

    def _later(self, wait: _Wait, now: float) -> None:
        wait.at = now + min(RETRY_MAX_S, self._settings.ticket_retry_s * 2 ** min(wait.tries, 16))
        wait.tries += 1

    async def _save(
        self, case: Case, changes: Mapping[str, object], event: CaseEvent | None
    ) -> Case:
        """Store the case with its ticket changed, also after other changes to the case meanwhile.

        A sent message must not be forgotten because a person changed the case at the same time.
        """
        evidence = case.evidence
        for _ in range(SAVES_MAX):
            assert case.ticket is not None
            ticket = case.ticket.model_copy(update=changes)
            changed = case.model_copy(update={"ticket": ticket, "evidence": evidence})
            events = [] if event is None else [event]
            try:
                return await self._book.save(changed, events=events, now=self._clock.now())
            except StaleWrite:
                newer = await self._book.get(case.id)
                if newer is None or newer.ticket is None:
                    raise
                evidence = {**newer.evidence, **_own(evidence)}
                case = newer
        raise StaleWrite(f"case {case.id} changes all the time")


def _own(evidence: Mapping[str, str]) -> dict[str, str]:
    """Return the archive's row, which this loop alone writes."""
    return {STORED: evidence[STORED]} if STORED in evidence else {}


# ------------------------------------------------------------------------------
# Opens a case, as advice, where a reading of an adopted node names a fault.
#
# A node that was adopted has no certificate that a fault would end, and was never validated here.
# So
# its parts are counted against its profile, and its cables are compared with the plan, every
# `watch_s`; both only read. With the capability `tickets` a finding becomes a case with work for
# people: the node serves on, its tenant gets no notice, and nothing is tried on it. Without the
# capability the case is shown as an act that would be carried out. A finding is reported once by a
# process, so that a case which a person closed does not come back each day.


ROUND_S = 300.0  # a round lists the fleet
NODES_MAX = 8  # read at the same time; each BMC has its own limits beside it
REASON_MAX = 200


class Advisor:
    """`run` reads adopted nodes for ever; it decides nothing about their service."""

    def __init__(
        self,
        context: Context,
        case_service: CaseService,
        observer: Observer,
        tenancy: Tenancy,
        rechecks: Rechecks,
        matrix: Matrix,
    ) -> None:
        self._context = context
        self._case_service = case_service
        self._observer = observer
        self._tenancy = tenancy
        self._rechecks = rechecks
        self._matrix = matrix
        self._due: dict[str, float] = {}
        self._reported: dict[str, str] = {}  # the last finding of a node

    async def run(self) -> None:
        """Look at the nodes whose turn it is, for ever."""
        while True:
            await self.round()
            await self._context.clock.sleep(ROUND_S)

    async def round(self) -> None:
        """Look once at each adopted host in service whose turn it is."""
        nodes = {
            n.id: n
            for n in await self._context.store.nodes.list()
            if n.origin is Origin.ADOPTED
            and n.kind is NodeKind.HOST
            and n.state is State.RELEASED
            and not n.certificate
        }
        for name in [n for n in self._due if n not in nodes]:
            del self._due[name]
            self._reported.pop(name, None)
        now = self._context.clock.now()
        places = asyncio.Semaphore(NODES_MAX)

        async def look(node: Node) -> None:
            async with places:
                await self._look(node)

        due = [nodes[name] for name in sorted(nodes) if self._due.get(name, now) <= now]
        await asyncio.gather(*(look(node) for node in due))

    async def _look(self, node: Node) -> None:
        first = node.id not in self._due
        share = crc32(node.id.encode()) / 2**32 if first else 1.0
        pause_s = self._context.settings.watch_s * share
        self._due[node.id] = self._context.clock.now() + pause_s
        try:
            findings = await self._read_findings(node)
            if findings:
                await self._report(node, findings[0])
        except (StaleWrite, DamagedRow):
            return  # the next turn reads it again

    async def _read_findings(self, node: Node) -> Sequence[Blocker]:
        """Return the faults of a node's parts and cables; () if its parts could not all be read."""
        inventory, unread = await self._observer.collect(node)
        if inventory is None or unread:
            return ()  # the names of its ports are among its parts, thus its cables too
        store = self._context.store
        await store.evidence.put_inventory(inventory, self._context.clock.now())
        findings: list[Blocker] = []
        release = self._matrix.releases.get(node.release)
        if release is not None:
            name = node.profile or choose_profile(inventory, release, node.kind)
            if isinstance(name, str):
                findings += bill_of_materials(node, inventory, name, release.profiles[name])
        if node.ports:
            findings += await find_wrong_cables(self._tenancy, self._rechecks, node)
        return findings

    async def _report(self, node: Node, finding: Blocker) -> None:
        reason = str(finding)[:REASON_MAX]
        act = f"open a repair case: {reason}"[:REASON_MAX]
        if self._reported.get(node.id) == reason:
            return
        if await self._case_service.book.get_open(node.id) is not None:
            return  # people have it in hand; the next turn asks again
        if await self._context.refuse_act(node, Capability.TICKETS, act):
            return
        quiet = node.model_copy(update={"tenant": ""})  # no notice: its service does not change
        await self._case_service.open(
            quiet,
            CaseOrigin.WORK,
            reason,
            "provisioner",
            service=Service.KEEP,
            work=finding.unblock,
        )
        self._reported[node.id] = reason


@dataclass(frozen=True)
class RepairParts:
    """What repairs need from outside."""

    book: SqlCaseRepository
    alerts: SqlAlertRepository | None
    credentials: Credentials
    signer: Signer
    tickets: TicketSystem | None


class RepairShop:
    """`repair_workflow` works on one node at a time; the loops go on for ever."""

    def __init__(
        self,
        context: Context,
        parts: RepairParts,
        site: Site,
        *,
        observer: Observer,
        executor: Executor,
        validator: Validator,
        matrix: Matrix,
        tenancy: Tenancy,
    ) -> None:
        self.calls = UrgentCalls()  # of the watcher, which looks before repairs begin
        self._context = context
        self._parts = parts
        self._readers = (observer, tenancy, Rechecks(site, context.store, matrix), matrix)
        store = context.store
        book = parts.book
        self.repair_workflow = RepairWorkflow(
            context,
            book,
            parts.alerts,
            observer=observer,
            executor=executor,
            evidence=EvidenceCollector(site, store, validator),
            matrix=matrix,
            retirer=Retirer(
                site,
                store,
                book,
                observer=observer,
                eraser=build_eraser(site, policy_of(context.settings), matrix, executor),
                tenancy=tenancy,
            ),
        )
        bundler = Bundler(store, book, parts.credentials, parts.signer, context.settings.site)
        self.ticketing = Ticketing(context, book, site.reach, bundler, parts.tickets)

    def list_loops(
        self, submit: Callable[[str], Awaitable[None]]
    ) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """Return the loops by name. `submit` hands an operation to the engine; a node is looked at
        as soon as it is called by `calls`.
        """
        alerts = self._parts.alerts
        case_service = CaseService(self._context, self._parts.book, alerts)
        repairs = Repairs(self._context, case_service, alerts, submit, self.calls)
        advisor = Advisor(self._context, case_service, *self._readers)
        return {
            "repairs": repairs.run,
            "urgent repairs": repairs.answer_calls,
            "advice": advisor.run,
            "tickets": self.ticketing.run,
        }
