"""One turn of a node in repair: collect, diagnose, carry out a remedy, send it back to be proved.

The case is written before and after each action, so that a successor knows the actions begun; a
remedy's own acts are in the ledger under the case's text. A remedy that cannot be carried out is an
outcome like any other: the next one is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.control.context import Context
from provisioner.control.node.observer import Observer
from provisioner.control.node.retiring import Retirer
from provisioner.execution.actions.hold import Hold
from provisioner.execution.executor import Executor
from provisioner.execution.repair.case_evidence import EvidenceCollector
from provisioner.model.alert import Alert
from provisioner.model.case import Case, PartClass, RemedyOutcome, RemedyTry, Stage, Suspect, Ticket
from provisioner.model.events.case_events import (
    CaseDiagnosed,
    CaseNeedsHardware,
    CaseRemedyBegun,
    CaseRemedyEnded,
)
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, State
from provisioner.model.operation import ActionStatus
from provisioner.model.outcome import Blocker
from provisioner.planning.certification.regression import is_doubtful
from provisioner.planning.lifecycle.decide import PASSING
from provisioner.planning.lifecycle.journey import enter_state, may_enter
from provisioner.planning.repair import case_policy, remedies
from provisioner.planning.repair.diagnosis import diagnose
from provisioner.planning.repair.part_names import at_missing, gone_of, locate_fault, of_missing
from provisioner.planning.repair.remedies import Later, Limits, People, Try
from provisioner.ports import PortError, StaleWrite
from provisioner.store.repositories.alerts import SqlAlertRepository
from provisioner.store.repositories.cases import SqlCaseRepository

HOUR_S = 3600.0
PATIENCE_S = 2 * HOUR_S  # what passes by itself is waited out so long, then it is not done
CASES_MAX = 64  # of one node: earlier tries count against a remedy


class RepairWorkflow:
    """The performer calls it for one node at a time."""

    def __init__(
        self,
        context: Context,
        book: SqlCaseRepository,
        alerts: SqlAlertRepository | None,
        *,
        observer: Observer,
        executor: Executor,
        evidence: EvidenceCollector,
        matrix: Matrix,
        retirer: Retirer,
    ) -> None:
        self._store = context.store
        self._book = book
        self._alerts = alerts
        self._clock = context.clock
        self._settings = context.settings
        self._observer = observer
        self._executor = executor
        self._evidence = evidence
        self._matrix = matrix
        self._retirer = retirer
        self._limits = Limits(
            resets_per_day=context.settings.repair_resets_per_day,
            confidence_min=context.settings.repair_confidence_min,
            shortest_s=context.settings.repair_pause_s,
        )

    async def turn(self, hold: Hold, node: Node) -> Sequence[Blocker]:
        """Take one step of the node's open case; return blockers that pass by themselves."""
        case = await self._book.get_open(node.id)
        if case is None:
            return ()  # it was closed meanwhile
        try:
            if case.stage is Stage.RETIRING or 0 < case.retire_at <= self._clock.now():
                return await self._retirer.turn(hold, case, node)
            if case.stage is not Stage.RETURNING and not case_policy.is_taken_over(node, case):
                work = case_policy.describe_take_over(node)
                await self._ask_to_work(case, work, "not taken over")
                return ()
            before_work = (Stage.OPENED, Stage.EVIDENCE, Stage.DIAGNOSIS)
            if case.stage in before_work and case_policy.is_planned(case):
                await self._ask_to_work(case, case.reason, "planned maintenance")
                return ()
            match case.stage:
                case Stage.OPENED | Stage.EVIDENCE:
                    await self._collect(case, node)
                case Stage.DIAGNOSIS:
                    await self._choose(case, node)
                case Stage.REMEDY:
                    return await self._carry_out(hold, case, node)
                case Stage.MEASURING:
                    await self._send_back(hold, node, f"{case.id}: the remedy is measured")
                case Stage.RETURNING:
                    why = f"{case.id}: it comes back from repair"
                    await self._take_in(hold, node, why, doubts=is_doubtful(case))
        except StaleWrite:
            pass  # a person changed the case: it is looked at again
        return ()

    async def _collect(self, case: Case, node: Node) -> None:
        """Collect evidence before any reset; after a remedy the same look measures it."""
        now = self._clock.now()
        tried = case.trying
        since = tried.done_at if tried is not None else 0.0
        inventory = await self._store.evidence.get_inventory(node.id)
        collected = await self._evidence.collect(node, inventory, deep=tried is None)
        report = await self._store.evidence.get_report(node.id)
        if report is not None and report.started_at < since:
            report = None  # from before the remedy
        alerts = [a for a in await self._standing(node) if a.last_at >= since]
        faults = {f.key: f for f in case_policy.faults_of(node, report, alerts, case)}
        for fault in (*case_policy.faults_of(node, collected.report, ()), *collected.faults):
            faults.setdefault(fault.key, fault)
        missing = gone_of(case.parts_before, inventory)
        names = {
            **of_missing(node.id, missing),
            **await self._evidence.list_names(node, inventory, collected),
        }
        placed = at_missing(faults.values(), missing, inventory)
        located = tuple(locate_fault(f, names) for f in placed)[: case_policy.FAULTS_MAX]
        tries = case.tries
        if tried is not None:
            tries = (
                *case.tries[:-1],
                remedies.measure_try(tried, case_policy.list_keys(located), now, well=False),
            )
        diagnosis = diagnose(located, inventory, gone=missing)
        changed = case.enter_stage(
            Stage.DIAGNOSIS,
            self._clock.now(),
            faults=located,
            suspects=diagnosis.suspects,
            evidence={**case.evidence, **collected.evidence},
            gaps=tuple(collected.gaps[:32]),
            tries=tries,
            next_at=0.0,
        )
        best = diagnosis.suspects[0]
        event = CaseDiagnosed(
            about=node.id,
            case=case.id,
            suspect=f"{best.kind} {best.part}",
            confidence=best.confidence,
            rule=best.rule,
            evidence=len(collected.evidence),
            gaps=len(collected.gaps),
            effect=tries[-1].outcome if tried is not None else "",
        )
        await self._book.save(changed, events=[event], now=self._clock.now())

    async def _standing(self, node: Node) -> Sequence[Alert]:
        if self._alerts is None:
            return ()
        return [a for a in await self._alerts.list(node.id) if a.active]

    async def _choose(self, case: Case, node: Node) -> None:
        now = self._clock.now()
        if case.retire_at:  # a node to be retired gets no remedy
            later = case.model_copy(update={"next_at": case.retire_at})
            await self._book.save(later, now=now)
            return
        start = diagnose(case.faults, await self._store.evidence.get_inventory(node.id)).start
        earlier = [c for c in await self._book.list(node.id, CASES_MAX) if c.id != case.id]
        past = [t for c in earlier for t in c.tries]
        chosen = remedies.choose_remedy(case, start, past, self._limits, now)
        if self._hopeless(case):
            work = f"It fails again and again (score {case.score:g}): retire or replace the node."
            chosen = People(rung=None, suspect=case.suspects[0], attempt=0, work=work)
        if isinstance(chosen, Try) and (busy := await self._fleet(now)) is not None:
            chosen = busy
        match chosen:
            case Later(at=at, why=why):
                later = case.model_copy(update={"next_at": at, "note": why})
                await self._book.save(later, now=now)
            case People():
                await self._ask_people(case, chosen, now)
            case Try():
                tried = RemedyTry(
                    remedy=chosen.rung.remedy,
                    part=chosen.suspect.part,
                    kind=chosen.suspect.kind,
                    attempt=chosen.attempt,
                    started_at=now,
                    before=case_policy.list_keys(case.faults),
                )
                note = f"{tried.remedy} for {tried.kind} {tried.part}: {chosen.rung.why}"
                began = case.enter_stage(Stage.REMEDY, now, tries=(*case.tries, tried), note=note)
                event = CaseRemedyBegun(about=node.id, case=case.id, remedy=note)
                await self._book.save(began, events=[event], now=now)

    def _hopeless(self, case: Case) -> bool:
        """Whether people decide on the node itself first; once they did, its case goes on."""
        was_asked = any(s.stage is Stage.HARDWARE for s in case.stages)
        return case.score >= self._settings.repair_retire_score and not was_asked

    async def _fleet(self, now: float) -> Later | None:
        """Return a monitoring that errs must not reset the whole fleet at once."""
        open_cases = await self._book.list_open()
        recent = sorted(
            t.started_at
            for c in open_cases
            for t in c.tries
            if now - t.started_at < HOUR_S and t.remedy in remedies.RESETS
        )
        most = self._settings.repair_remedies_per_hour
        if len(recent) < most:
            return None
        why = f"{len(recent)} resets in the fleet within an hour"
        return Later(at=recent[-most] + HOUR_S, why=why)

    async def _ask_people(self, case: Case, chosen: People, now: float) -> None:
        tries = case.tries
        if chosen.rung is not None:
            people_try = RemedyTry(
                remedy=chosen.rung.remedy,
                part=chosen.suspect.part,
                kind=chosen.suspect.kind,
                attempt=chosen.attempt,
                started_at=now,
                before=case_policy.list_keys(case.faults),
            )
            tries = (*tries, people_try)
        # one ticket for each case: a further request goes to the same place
        before = case.ticket if case.ticket is not None else Ticket(opened_at=now)
        new = {"work": chosen.work, "closed_at": 0.0, "bundle": "", "problem": ""}
        ticket = before.model_copy(update=new)
        asked_case = case.enter_stage(
            Stage.HARDWARE, now, tries=tries, note=chosen.work, ticket=ticket
        )
        event = CaseNeedsHardware(about=case.node, case=case.id, work=chosen.work)
        await self._book.save(asked_case, events=[event], now=now)

    async def _ask_to_work(self, case: Case, work: str, rule: str) -> None:
        """Hand the whole case to people: nothing is diagnosed, and nothing is sent to the node."""
        host = Suspect(part="host", kind=PartClass.HOST, confidence=0.0, rule=rule, why=case.reason)
        people = People(rung=None, suspect=host, attempt=0, work=work)
        await self._ask_people(case, people, self._clock.now())

    async def _carry_out(self, hold: Hold, case: Case, node: Node) -> Sequence[Blocker]:
        tried = case.trying
        assert tried is not None
        patient = self._clock.now() - tried.started_at < PATIENCE_S
        try:
            failed = await self._remedy(hold, case, node, tried)
        except PortError as error:
            if patient:
                raise  # the next turn sees the begun action to its end
            failed = str(error)
        now = self._clock.now()
        if isinstance(failed, Blocker) and failed.reason in PASSING and patient:
            return (failed,)
        problem = str(failed)
        if problem:
            ended = tried.model_copy(
                update={"outcome": RemedyOutcome.NOT_DONE, "done_at": now, "detail": problem[:300]}
            )
            stage = Stage.DIAGNOSIS
        else:
            ended = tried.model_copy(update={"done_at": now})
            stage = Stage.MEASURING
        changed = case.enter_stage(stage, now, tries=(*case.tries[:-1], ended))
        event = CaseRemedyEnded(about=node.id, case=case.id, remedy=ended.remedy, problem=problem)
        await self._book.save(changed, events=[event], now=now)
        return ()

    async def _remedy(self, hold: Hold, case: Case, node: Node, tried: RemedyTry) -> Blocker | str:
        """Carry out the remedy's actions; return why it was not done, or ""."""
        inventory = await self._store.evidence.get_inventory(node.id)
        label = f"{case.id} {tried.remedy} try {len(case.tries)}"
        steps = remedies.plan_steps(tried, label, node, inventory, self._matrix)
        if isinstance(steps, str):
            return steps
        for step in steps:
            earlier = remedies.find_latest(await self._store.operations.list_entries(node.id), step)
            if earlier is not None and earlier.status is ActionStatus.CONFIRMED:
                continue  # before we were interrupted
            if earlier is not None and earlier.status is ActionStatus.FAILED:
                return earlier.outcome or "it failed"
            assert inventory is not None
            try:
                problems = await self._executor.execute(hold, node, step, inventory)
            finally:
                self._observer.read_touched(node, step)
            if problems:
                return problems[0]
        return ""

    async def _send_back(self, hold: Hold, node: Node, why: str) -> None:
        """Send the node back to its pins and its checks; one that was never identified begins
        anew.
        """
        if node.profile and may_enter(node, State.CONVERGING, node.placement):
            await self._enter(hold, node, State.CONVERGING, why, attempts=max(1, node.attempts))
        else:
            await self._take_in(hold, node, why)

    async def _take_in(self, hold: Hold, node: Node, why: str, *, doubts: bool = True) -> None:
        """Take the node in like a stranger's: parts and profile are read anew.

        Without doubts its tests follow from the changed parts, and nothing else.
        """
        attempts = max(1, node.attempts) if doubts else 0
        await self._enter(hold, node, State.DISCOVERED, why, profile="", attempts=attempts)

    async def _enter(self, hold: Hold, node: Node, state: State, why: str, **more: object) -> None:
        if node.certificate and not await self._store.evidence.is_revoked(node.certificate):
            await self._store.evidence.revoke(node.certificate, why, self._clock.now())
        changed = enter_state(node, state, why, self._clock.now(), {"blockers": (), **more})
        await hold.record(node=changed)
