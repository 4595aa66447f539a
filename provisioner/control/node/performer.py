"""Acts on one decision and records it: the only place that changes a node's state.

Rule: a state is entered only through `_enter`, which asks the table; only this file reaches
`execution/tenancy`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from provisioner.control.context import Context
from provisioner.control.node.certifier import Certifier
from provisioner.control.node.observer import Observer
from provisioner.control.node.repair_workflow import RepairWorkflow
from provisioner.control.node.retiring import sanitize
from provisioner.control.watch.isolation_violations import IsolationViolations
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.reach import turn
from provisioner.execution.executor import Executor
from provisioner.execution.observe.identify import Identifier
from provisioner.execution.steps.erasure import Eraser
from provisioner.execution.tenancy.login_removal import exchange_logins, object_to_removal
from provisioner.execution.tenancy.release_recheck import Rechecks
from provisioner.execution.tenancy.release_sequence import Releases, describe_handover, seal_release
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.events.node_events import (
    AttentionNeeded,
    NodeSurveyed,
    PortsFenced,
    ReleaseRefused,
    StepEnded,
)
from provisioner.model.node import Node, NodeKind, Placement, ReleaseConditions, State, TenantData
from provisioner.model.operation import LedgerEntry
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Step
from provisioner.model.tenant import MAINTENANCE_VRF, PortPlacement
from provisioner.planning.certification import certification
from provisioner.planning.erasure.erasure import list_drives, owe_erasure
from provisioner.planning.lifecycle.admission import find_admission_reasons
from provisioner.planning.lifecycle.decide import (
    PASSING,
    Certify,
    Enter,
    Execute,
    Fence,
    Identify,
    Mend,
    Prove,
    Release,
    Rest,
    Sanitize,
    Turn,
    Validate,
    View,
)
from provisioner.planning.lifecycle.journey import enter_state
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.release import entitlement
from provisioner.ports import StaleWrite
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# The nodes that are out of service now, with cause and place: the limits hold among all daemons.
#
# A place is taken in the operation's own row (`phase`), so that it is still taken after a crash and
# visible to every daemon; it is free again when the step ends, or the operation does.


# The name of the turn in which limits are looked at and places are taken: no switch is called so.
ADMISSION = "/admission"


class Disruptions:
    """Only switches have limits; a step on a host disrupts that host alone."""

    def __init__(
        self, store: SqlStore, switches_down_percent: int, plan: AddressPlan | None
    ) -> None:
        self._store = store
        self._percent = switches_down_percent
        self._plan = plan

    async def admit(self, hold: Hold, node: Node, step: Step) -> tuple[str, ...]:
        """Return why a step must wait; nothing: its place is taken, and `over` gives it back.

        Limits are checked and the place is taken in one breath: two switches must not both pass.
        """
        if step.disruption is not Disruption.SWITCH:
            return ()
        async with turn(ADMISSION):
            under_way = await self._store.operations.list_disrupting()
            taken = {o.node: Disruption(o.phase) for o in under_way if o.node != node.id}
            every = await self._store.nodes.list()
            switches = {n.id: n for n in every if n.kind is NodeKind.SWITCH}
            cabled = await self._store.nodes.list_cabled({node.id, *taken})
            nodes = tuple((switches | {n.id: n for n in cabled}).values())
            reasons = find_admission_reasons(node, step, nodes, taken, self._percent, self._plan)
            if not reasons:
                await hold.enter_phase(step.disruption.value)
            return reasons

    async def note_end(self, hold: Hold) -> None:
        """Record that a step has ended, well or not: its disruptions are over, or belong to no
        node.
        """
        if hold.operation.phase:
            await hold.enter_phase("")


Problems = Sequence[Blocker]
STANDING_TRIES_MAX = 3  # readings of all parts at the end of a release


class Performer:
    """Carries out turns, each on one node."""

    def __init__(
        self,
        context: Context,
        *,
        observer: Observer,
        identifier: Identifier,
        executor: Executor,
        tenancy: Tenancy,
        eraser: Eraser,
        certifier: Certifier,
        repair_workflow: RepairWorkflow | None = None,
        rechecks: Rechecks | None = None,
        violations: IsolationViolations | None = None,
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._observer = observer
        self._identifier = identifier
        self._executor = executor
        self._tenancy = tenancy
        self._releases = Releases(tenancy.site, context.store, tenancy, rechecks)
        self._eraser = eraser
        self._certifier = certifier
        self._repair_workflow = repair_workflow
        self._violations = violations or IsolationViolations(context.store, context.clock)
        percent = context.settings.switches_down_percent
        self._disruptions = Disruptions(context.store, percent, tenancy.plan)

    async def perform(self, hold: Hold, node: Node, turn: Turn, view: View | None) -> Problems:
        """Carry out the decision; return the blockers, if any."""
        match turn:
            case Enter():
                entering = owe_erasure(node) if turn.owes_erasure else node
                return await self._enter(
                    *(hold, entering, turn.state, turn.why, turn.blockers),
                    keeps_certificate=turn.expired,
                )
            case Identify():
                return await self._identify(hold, node)
            case Fence():
                return await self._fence(hold, node, turn.violations)
            case Sanitize():
                return await sanitize(
                    self._store,
                    self._observer,
                    self._eraser,
                    hold,
                    node,
                    changes_logins=self._settings.credential_after_tenant,
                    changes_setup=self._settings.credential_setup_password,
                )
            case Mend():
                assert self._repair_workflow is not None
                return await self._repair_workflow.turn(hold, node)
            case Execute():
                assert view is not None
                return await self._execute(hold, node, turn.step, view)
            case Validate():
                assert view is not None
                return await self._certifier.validate(hold, node, view)
            case Prove():
                assert view is not None
                return await self._certifier.prove(hold, node, view)
            case Certify():
                assert view is not None
                assert view.inventory is not None
                if node.drives is None:  # taken in by an earlier release
                    node = node.model_copy(update={"drives": list_drives(view.inventory)})
                return await self._certifier.certify(hold, node, view)
            case Release():
                return await self._release(hold, node, turn.vrf)
            case Rest() if node.state is State.RELEASED and view is not None:
                return await self._watched(hold, node, turn.why, view)
        return ()

    async def resume(
        self, hold: Hold, node: Node, entries: Sequence[LedgerEntry]
    ) -> Blocker | None:
        """See every open ledger row to its end before anything new is decided."""
        inventory = await self._store.evidence.get_inventory(node.id)
        if inventory is None:
            inventory, unseen = await self._observer.collect(node)
            if unseen:
                return unseen[0]
        assert inventory is not None
        for entry in entries:
            problem = await self._executor.resume(hold, node, entry, inventory)
            if problem is not None:
                return problem
        return None

    async def _enter(
        self,
        hold: Hold,
        node: Node,
        state: State,
        why: str,
        blockers: Problems,
        *,
        keeps_certificate: bool = False,
        **more: Any,
    ) -> Problems:
        if state is State.CONVERGING and (wrong := await self._releases.list_miscablings(node)):
            state = State.QUARANTINED
            why = str(wrong[0])
            blockers = wrong
        if state is State.CONVERGING and node.certificate and not keeps_certificate:
            await self._store.evidence.revoke(node.certificate, why, self._clock.now())
        now = self._clock.now()
        changed = enter_state(node, state, why, now, {"blockers": tuple(blockers), **more})
        await hold.record(node=changed)
        return ()

    async def _watched(self, hold: Hold, node: Node, why: str, view: View) -> Problems:
        """Report the observations on a node that serves a tenant to people; never act upon them."""
        causes = certification.list_causes(view.certificate_blockers)
        if certification.is_lost(causes) and not await self._store.evidence.is_revoked(
            node.certificate
        ):
            await self._store.evidence.revoke(node.certificate, str(causes[0]), self._clock.now())
        if causes != node.blockers:
            note = f"attention: {causes[0]}" if causes else why
            changed = node.model_copy(update={"blockers": causes, "note": note})
            await hold.record(node=changed, events=[AttentionNeeded(blockers=causes)])
        await hold.record(inventory=view.inventory)  # the next look compares its boot with this
        return ()

    async def _identify(self, hold: Hold, node: Node) -> Problems:
        result = await self._identifier.identify(node, hold)
        if result.blockers:
            if result.inventory is not None:  # for people; without a profile it is never used
                await hold.record(inventory=result.inventory, events=[NodeSurveyed()])
            return result.blockers
        assert result.event is not None
        await hold.record(node=result.node, inventory=result.inventory, events=[result.event])
        return ()

    async def _fence(
        self, hold: Hold, node: Node, violations: Sequence[PortPlacement] = ()
    ) -> Problems:
        """Move the node into the maintenance VRF; the placement is recorded as read back, whatever
        it is.

        A node that stood in a customer's VRF without a handover is fenced without any wait; unless
        it was a customer's before, the answer is the blocker that it waits with for a person.
        """
        if violations:
            noted = await self._violations.note(node, violations, "its driver")
            node = noted.model_copy(update={"placement": node.placement})
        if node.placement is Placement.CUSTOMER and not violations:
            outcome = await self._releases.reclaim(node)
        else:  # its place is unknown: the move is the fastest fence
            outcome = await self._tenancy.move(node.ports, MAINTENANCE_VRF, node=node)
        if outcome.blockers:
            stored = await self._store.nodes.get(node.id)
            # `node` is this turn's observation; the stored row decides
            assert stored is not None
            unsaid = stored.placement is not Placement.MIXED
            if unsaid and (outcome.placements or node.placement is Placement.MIXED):
                unsure = node.model_copy(update={"placement": Placement.MIXED, "vrf": ""})
                await self._record_fence(hold, unsure, PortsFenced(confirmed=False))
            return outcome.blockers
        fenced = node.model_copy(
            update={
                "placement": Placement.MAINTENANCE,
                "vrf": MAINTENANCE_VRF,
                "fenced_at": self._clock.now(),
                "beside": (),
                "taken": False,
            }
        )
        event = PortsFenced(confirmed=True, placements=outcome.placements)
        await self._record_fence(hold, fenced, event)
        if node.state is State.DRAINING or node.taken:
            return ()  # it was a customer's by our own record, or a person knows of it
        return entitlement.list_isolation_violations(violations)

    async def _record_fence(self, hold: Hold, node: Node, event: PortsFenced) -> None:
        """Write row and journal; where the row is stale, the journal still records the action."""
        try:
            await hold.record(node=node, events=[event])
        except StaleWrite:
            await hold.record(events=[event.model_copy(update={"row": "changed meanwhile"})])
            raise

    async def _execute(self, hold: Hold, node: Node, step: Step, view: View) -> Problems:
        assert view.inventory is not None
        try:
            note = f"{step.title}: {step.reason}"
            stored = await hold.record(node=node.model_copy(update={"note": note}))
            assert stored is not None
            node = stored
            async with self._telling(hold, node, step, note):
                problems = await self._executor.execute(hold, node, step, view.inventory)
            await self._disruptions.note_end(hold)
            ended = StepEnded(
                about=node.id, step=step.title, problems=tuple(str(p) for p in problems)
            )
            await self._store.journal.append(ended, self._clock.now())
            return problems
        finally:
            self._observer.read_touched(node, step)

    @asynccontextmanager
    async def _telling(self, hold: Hold, node: Node, step: Step, note: str) -> AsyncIterator[None]:
        """Keep the present task of a playbook in the node's note; nothing depends on it."""
        if not step.method.startswith("playbook_"):
            yield
            return

        writing = asyncio.Lock()  # a write that is cut off would leave the hold behind its row

        async def tell() -> None:
            written = ""
            mine = node
            while True:
                await self._clock.sleep(self._settings.poll_s / 4)
                doing = self._executor.describe_play(node.id)
                if not doing or doing == written:
                    continue
                async with writing:
                    written = doing
                    changed = mine.model_copy(update={"note": f"{note} [{doing}]"})
                    mine = await hold.record(node=changed) or mine

        telling = asyncio.create_task(tell())
        try:
            yield
        finally:
            async with writing:
                telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)  # a newer row wins, in silence

    async def admit(self, hold: Hold, node: Node, step: Step) -> tuple[str, ...]:
        """Return why a step must wait; nothing: its place is taken, and `perform` gives it back."""
        return await self._disruptions.admit(hold, node, step)

    async def _release(self, hold: Hold, node: Node, vrf: str) -> Problems:
        """Move the node into the tenant's VRF, with proof; without full proof back to
        maintenance.
        """
        assert node.placement is Placement.MAINTENANCE
        assert node.certificate
        inventory = await self._store.evidence.get_inventory(node.id)
        if (blocker := object_to_removal(self._tenancy.site, node, inventory)) is not None:
            return (blocker,)
        # from here on its ports may be anywhere: after a crash it must count neither as fenced nor
        # as clean what a person decided to keep is kept until the tenant has it back: a release may
        # fail
        changes = {"placement": Placement.MIXED, "vrf": "", "served": node.tenant}
        beside = await self._tenancy.list_beside(node)
        leaving = node.model_copy(update={**changes, "beside": beside})
        stored = await hold.record(node=leaving)
        assert stored is not None
        node = stored
        against: list[Blocker] = []

        async def objections() -> Sequence[Blocker]:
            against[:] = await self._observer.find_objections(node, vrf)
            return against

        outcome = await self._releases.release(node, vrf, objections)
        if against:
            return await self._release_refused(hold, node, vrf, against)
        if outcome.blockers:
            rows = tuple(str(r) for r in outcome.rows if r.bad)
            await hold.record(events=[ReleaseRefused(vrf=vrf, rows=rows[:20])])
            back = await self._give_up_release(hold, node, vrf)
            return (*outcome.blockers, *back)
        standing = await self._standing(node, vrf)
        if not isinstance(standing, ReleaseConditions):
            return await self._release_refused(hold, node, vrf, standing)
        minimums = self._observer.list_library_minimums(node)
        site = self._tenancy.site
        node, logins = await exchange_logins(site, self._store, hold, node, minimums)
        if left := self._releases.list_blockers(logins):
            return await self._release_refused(hold, node, vrf, left)
        outcome = replace(outcome, rows=outcome.rows + logins)
        now = self._clock.now()
        certificate = await self._store.evidence.get_certificate(node.certificate)
        proof = seal_release(node, vrf, outcome, certificate, now, minimums)
        # entered only now: the table is asked with the placement that was just proved
        place = {
            "placement": Placement.CUSTOMER,
            "vrf": vrf,
            "blockers": (),
            "tenant_data": TenantData.SETTLED,
        }
        why = f"released to {node.tenant}"
        released = enter_state(node, State.RELEASED, why, now, place)
        try:
            await hold.record(
                node=released, proof=proof, events=[describe_handover(proof)], standing=standing
            )
        except StaleWrite as stale:
            return await self._release_refused(hold, node, vrf, (), str(stale))
        return ()

    async def _standing(self, node: Node, vrf: str) -> ReleaseConditions | Problems:
        """Read all parts anew; a lost answer is asked for again before the release is given up."""
        for attempt in range(STANDING_TRIES_MAX):
            if attempt:
                await self._clock.sleep(self._settings.switch_poll_s)
            standing = await self._observer.read_standing(node, vrf)
            if isinstance(standing, ReleaseConditions) or any(
                b.reason not in PASSING for b in standing
            ):
                break
        return standing

    async def _release_refused(
        self, hold: Hold, node: Node, vrf: str, against: Problems, stale: str = ""
    ) -> Problems:
        """Fence a node whose standing was lost while its ports moved; it is then decided anew.

        Only failures that pass by themselves are returned, so that the reconciler waits for them.
        """
        rows = (stale,) if stale else tuple(str(b) for b in against[:20])
        await hold.record(events=[ReleaseRefused(vrf=vrf, rows=rows)])
        back = await self._give_up_release(hold, node, vrf)
        waits = [b for b in against if b.reason in PASSING and b.reason is not Reason.PRECONDITION]
        return (*waits, *back)

    async def _give_up_release(self, hold: Hold, node: Node, vrf: str) -> Problems:
        """Fence a node on its way into `vrf`; another customer's network that it is in is recorded
        first.

        Otherwise nobody would know of that network, and the node would not be erased.
        """
        read = await self._tenancy.read(node.ports)
        vrf_of = {t.name: t.vrf for t in await self._store.tenants.list()}
        placed = () if isinstance(read, Blocker) else tuple(p for p in read if p.vrf != vrf)
        return await self._fence(
            hold, node, entitlement.find_isolation_violations(node, placed, vrf_of)
        )
