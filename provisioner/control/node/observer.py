"""Looks at everything that one decision needs, and nothing more: builds the `View` of a turn."""

from __future__ import annotations

import asyncio

from provisioner import checks, components
from provisioner.control.context import Context
from provisioner.control.fabric.fabric_standing import Cohorts, FabricStanding
from provisioner.control.node.explaining import read_neighbours
from provisioner.control.watch.alert_keeper import find_revocation
from provisioner.execution.observe.collector import Collector
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.cohort import Gate, Verdict
from provisioner.model.erasure import ErasureReport
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.matrix import AttestationRule, Matrix
from provisioner.model.node import Boots, Node, NodeKind, Placement, ReleaseConditions, State
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Plan, Step, StepKind
from provisioner.model.tenant import LibraryMinimum
from provisioner.planning.certification import certification
from provisioner.planning.certification import certification as gates
from provisioner.planning.certification.attested_state import find_rule, list_required
from provisioner.planning.certification.certification import DAY_S, count_days_since_proof
from provisioner.planning.certification.check_selection import (
    FaultRecord,
    Selection,
    SelectionPolicy,
    change_since,
    select_checks,
)
from provisioner.planning.erasure import deployment, erasure
from provisioner.planning.erasure.erasure import find_strange_drives, list_erased
from provisioner.planning.lifecycle.admission import find_busy_neighbours
from provisioner.planning.lifecycle.decide import View
from provisioner.planning.matrix.standing import list_library_minimums
from provisioner.planning.path.history import build_history
from provisioner.planning.path.planner import PlanCache, PlanningNode
from provisioner.planning.release import entitlement
from provisioner.planning.release.entitlement import (
    find_foreign_service,
    find_isolation_violations,
    is_stranger,
)
from provisioner.planning.release.port_isolation import placement_of
from provisioner.planning.repair.case_joining import select_deeper_checks
from provisioner.planning.repair.case_policy import waits_for
from provisioner.settings import Settings
from provisioner.store.repositories.alerts import SqlAlertRepository
from provisioner.store.repositories.cases import SqlCaseRepository
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Which checks a node needs now: what its rows say of it, given to
# `planning/certification/check_selection.py`.


INCIDENTS_S = 90 * DAY_S  # the time for which selection assumes half an incident without history


async def choose(
    store: SqlStore,
    settings: Settings,
    fabric: FabricStanding,
    node: Node,
    inventory: Inventory,
    now: float,
    *,
    deeper: bool = False,
) -> Selection | None:
    """Return the checks that the changes since the last certificate demand; None for a switch.

    `deeper`: for a repeat offender everything is tested, also beyond the site's demands.
    """
    if node.kind is NodeKind.SWITCH:
        return None
    last = await store.evidence.get_certificate(node.certificate) if node.certificate else None
    proof = await store.evidence.get_proof(node.id)
    served = proof is not None and last is not None and proof.certificate == last.id
    turnover = served and proof is not None and proof.tenant != node.tenant
    suspect = node.attempts > 0 or bool(await fabric.find_accusations(node, last))
    change = change_since(last, inventory, turnover=turnover, suspect=suspect)
    gates = frozenset(Gate(letter) for letter in settings.certify_gates)
    policy = SelectionPolicy(
        gates=gates, budget_s=settings.test_budget_s or None, fabric_days_max=settings.fabric_days
    )
    past = await store.evidence.list_reports(node.id, now - INCIDENTS_S)
    standing = FaultRecord(
        incidents=sum(any(x.verdict is Verdict.FAIL for x in r.results) for r in past),
        healthy_days=0.0 if last is None else max(0.0, now - last.issued_at) / DAY_S,
        proved_days=count_days_since_proof(last, now),
    )
    if not deeper:
        return select_checks(change, checks.ALL, policy, standing)
    change = change_since(last, inventory, turnover=turnover, suspect=True)
    return select_deeper_checks(
        change, checks.ALL, policy, standing, limit_s=settings.repair_deeper_limit_s
    )


class Observer:
    """`matrix` is the one in force; its digest goes into every certificate."""

    def __init__(
        self,
        context: Context,
        collector: Collector,
        tenancy: Tenancy,
        matrix: Matrix,
        book: SqlAlertRepository | None = None,
        cases: SqlCaseRepository | None = None,
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._collector = collector
        self._tenancy = tenancy
        self._matrix = matrix
        self._book = book  # None: alerts are handled elsewhere
        self._cases = cases  # None: nothing is repaired here
        self._telemetry = context.telemetry
        self._erasure = erasure.policy_of(context.settings)
        self.cohorts = Cohorts(context.store, context.clock)
        self._fabric = FabricStanding(context)
        leave = frozenset(context.settings.switch_methods_allowed)
        way = context.settings.maintenance_boot
        production = context.settings.production
        self._plans = PlanCache(matrix, components.ALL, production, leave, way)
        self.matrix_digest = matrix.digest()

    def list_library_minimums(self, node: Node) -> tuple[LibraryMinimum, ...]:
        """Return the oldest versions that libraries of a node's tenant need, by its release."""
        return list_library_minimums(self._matrix, node.release, node.profile)

    async def observe(self, node: Node, operation: str) -> View:
        """Return the facts that `lifecycle.decide` needs about this node in its present state."""
        match node.state:
            case State.DISCOVERED:
                stored = await self._store.evidence.get_inventory(node.id)
                return View(identified=bool(node.profile) and stored is not None)
            case State.INTAKE:
                return await self._place(node, View())
            case State.DRAINING:
                repair = await self._repair(node)
                return await self._place(node, View(owed=self._owed(node), repair=repair))
            case State.REPAIRING:
                view = View(repair=await self._repair(node))
                if view.repair != "" or node.kind is NodeKind.SWITCH or is_stranger(node):
                    return view
                placed = await self._place(node, view)
                return view if placed.unseen else placed  # a silent leaf does not hold a repair up
            case State.CONVERGING:
                return await self._converging(node, operation)
            case State.VALIDATING:
                return await self._validating(node, operation)
            case State.CERTIFIED | State.RELEASED:
                return await self._certified(node)
        return View()

    async def find_objections(self, node: Node, vrf: str) -> tuple[Blocker, ...]:
        """Return why a node that is being released may not be handed over, by the rows as they are
        now.

        Nothing is asked of a device, so that this can be read before each leaf is changed.
        """
        stored = await self._store.nodes.get(node.id)
        if stored is None or not entitlement.is_unchanged(node, stored):
            return (
                entitlement.make_changed_blocker(
                    node.id, "its state, tenant or certificate is another now"
                ),
            )
        return await self._objections(node, vrf, await self._store.evidence.get_inventory(node.id))

    async def read_standing(self, node: Node, vrf: str) -> ReleaseConditions | tuple[Blocker, ...]:
        """Read all parts anew; return the conditions of the handover's record, or the objections to
        it.
        """
        inventory, unseen = await self._collector.collect(node)
        if inventory is None or unseen:
            return unseen
        if blockers := await self._objections(node, vrf, inventory):
            return blockers
        return entitlement.standing_of(node, inventory, vrf)

    async def _objections(
        self, node: Node, vrf: str, inventory: Inventory | None
    ) -> tuple[Blocker, ...]:
        certificate = await self._store.evidence.get_certificate(node.certificate)
        if certificate is None or inventory is None:
            return (
                entitlement.make_changed_blocker(
                    node.id, "its certificate or its inventory is not stored"
                ),
            )
        now = self._clock.now()
        signed, revoked = await self._store.evidence.read_trust(certificate)
        tenants = {t.name: t.vrf for t in await self._store.tenants.list()}
        return entitlement.list_handover_objections(
            node,
            certificate,
            inventory,
            alerts=await find_revocation(self._book, self._store, node, now),
            accused=await self._fabric.find_accusations(node, certificate),
            signed=signed,
            revoked=revoked,
            moved_on=tenants.get(node.tenant) != vrf,
            now=now,
        )

    def read_touched(self, node: Node, step: Step) -> None:
        """Read again the versions that a completed step may have changed."""
        if step.kind is StepKind.ACTIVATE:
            self._collector.forget(node.id)
        elif not step.method.startswith("playbook_"):  # in-band facts are read at every turn
            self._collector.forget(node.id, step.bmcs)

    async def _busy(self, node: Node) -> tuple[str, ...]:
        """Return the switches on its cables that are not in service; only these are read, not the
        fleet.
        """
        return find_busy_neighbours(
            node, await self._store.nodes.list_named({p.switch for p in node.ports})
        )

    async def _repair(self, node: Node) -> str | None:
        """The reason why the node's open case waits ("": it does not); None if it has none."""
        case = None if self._cases is None else await self._cases.get_open(node.id)
        return None if case is None else waits_for(case, self._clock.now())

    async def _offends(self, node: Node) -> bool:
        """Return whether the node's open case asks for deeper tests."""
        case = None if self._cases is None else await self._cases.get_open(node.id)
        return case is not None and case.deeper

    async def collect(self, node: Node) -> tuple[Inventory | None, tuple[Blocker, ...]]:
        """Return a full inventory, or why there is none."""
        return await self._collector.collect(node)

    async def _place(self, node: Node, view: View) -> View:
        if node.kind is NodeKind.SWITCH:
            return view.model_copy(update={"placement": Placement.NONE})
        read = await self._tenancy.read(node.ports)
        if isinstance(read, Blocker):
            return view.model_copy(update={"unseen": (*view.unseen, read)})
        if (
            node.state is State.INTAKE
            and is_stranger(node)
            and (blocker := find_foreign_service(node, read))
        ):
            return view.model_copy(update={"foreign": blocker})
        placement, vrf = placement_of(node.ports, read)
        vrf_of = {t.name: t.vrf for t in await self._store.tenants.list()}
        violations = find_isolation_violations(node, read, vrf_of)
        seen = {"placement": placement, "vrf": vrf, "violations": violations}
        return view.model_copy(update=seen)

    async def _converging(self, node: Node, operation: str) -> View:
        view = await self._place(node, View(owed=self._owed(node)))
        if view.unseen or (
            node.kind is NodeKind.HOST and view.placement is not Placement.MAINTENANCE
        ):
            return view
        if view.owed:
            return view  # nothing is planned for a node that is not clean
        if node.boots is not Boots.SYSTEM:
            return await self._without_system(node, operation, view)
        last = await self._store.evidence.get_inventory(node.id)
        fresh_s = self._settings.fresh_s
        inventory, unseen = await self._collector.refresh(node, last, fresh_s=fresh_s)
        if inventory is None or unseen:
            return view.model_copy(update={"unseen": unseen})
        made_plan = await self._plan(node, inventory, operation)
        busy = await self._busy(node)
        return view.model_copy(
            update={"inventory": inventory, "plan": made_plan, "neighbours_busy": busy}
        )

    async def read_bmcs(self, node: Node) -> tuple[Inventory | None, tuple[Blocker, ...]]:
        """Return the inventory from the BMCs alone."""
        return await self._collector.without_system(node, None)

    def disks_of(self, node: Node) -> int:
        """The number of disks in the bill of materials of the node's profile; 0: it has none."""
        release = self._matrix.releases.get(node.release)
        profile = release.profiles.get(node.profile) if release is not None else None
        return profile.match.devices.get(DeviceKind.STORAGE.value, 0) if profile else 0

    def _owed(self, node: Node) -> tuple[Blocker, ...]:
        return erasure.require_erasure(node, self._erasure)

    async def _without_system(self, node: Node, operation: str, view: View) -> View:
        """A host in the maintenance image: its system comes first, all else when it is up."""
        last = await self._store.evidence.get_inventory(node.id)
        inventory, unseen = await self._collector.without_system(node, last)
        if inventory is None or unseen:
            return view.model_copy(update={"unseen": unseen})
        made_plan = await self._system_first(node, inventory, operation, running=False)
        assert made_plan is not None
        return view.model_copy(update={"inventory": inventory, "plan": made_plan})

    async def _validating(self, node: Node, operation: str) -> View:
        busy = await self._busy(node)
        place = await self._place(node, View())
        if place.unseen or (
            node.kind is NodeKind.HOST and place.placement is not Placement.MAINTENANCE
        ):
            return place
        if owed := self._owed(node):
            return place.model_copy(update={"owed": owed})
        # blockers and certificate concern the reading above
        node = node.model_copy(update={"placement": place.placement, "vrf": place.vrf})
        report = await self._store.evidence.get_report(node.id)
        waiting = await self._fabric.find_waiting(node, report)
        if waiting is not None:
            return waiting.model_copy(update={"neighbours_busy": busy})
        if report is not None and report.started_at >= node.entered_at:
            # parts were read for these checks, and no part changes without a boot or a version
            last = await self._store.evidence.get_inventory(node.id)
            inventory, unseen = await self._collector.refresh(node, last)
        else:
            inventory, unseen = await self._collector.collect(node)
        if inventory is None or unseen:
            return View(unseen=unseen)
        made_plan = await self._plan(node, inventory, operation)
        strange = find_strange_drives(await self._known_drives(node), inventory)
        if strange:
            changes = {"inventory": inventory, "strange_drives": strange}
            return place.model_copy(update=changes)
        if report is not None and not certification.is_current_report(report, inventory, node):
            report = None
        selection = await choose(
            self._store,
            self._settings,
            self._fabric,
            node,
            inventory,
            self._clock.now(),
            deeper=await self._offends(node),
        )
        blockers: tuple[Blocker, ...] = ()
        if report is not None:
            blockers = certification.find_blockers(
                node=node,
                inventory=inventory,
                plan=made_plan,
                report=report,
                now=self._clock.now(),
                demanded=None if selection is None else selection.demanded,
                proofs=list_required(self.find_attestation_rule(node)),
            )
        return View(
            inventory=inventory,
            placement=place.placement,
            vrf=place.vrf,
            plan=made_plan,
            neighbours_busy=busy,
            selection=selection,
            report=report,
            report_blockers=blockers,
            fabric=await self._fabric.find_outcome(node, report),
        )

    def find_attestation_rule(self, node: Node) -> AttestationRule:
        """Return whose signed measurements the profile of a host's target release asks for."""
        return find_rule(node, self._matrix)

    async def _certified(self, node: Node) -> View:
        view = View()
        if node.state is State.CERTIFIED and node.kind is NodeKind.HOST:
            view = await self._place(node, view)
            if view.unseen or view.placement is not Placement.MAINTENANCE:
                return view  # a release was cut short: nothing else is looked at before the fence
        certificate = await self._store.evidence.get_certificate(node.certificate)
        problems = await find_revocation(self._book, self._store, node, self._clock.now())
        if problems and not await self._store.evidence.is_revoked(node.certificate):
            changes = {"certificate": certificate, "certificate_blockers": problems}
            return view.model_copy(update=changes)  # nothing more need be seen to believe it
        last = await self._store.evidence.get_inventory(node.id)
        if node.state is State.CERTIFIED and node.tenant:
            # parts are read anew before a tenant gets it: drives are exchanged without a boot
            inventory, unseen = await self._collector.collect(node)
        else:
            inventory, unseen = await self._collector.refresh(node, last)
        login = node.boots is not Boots.HANDED_OVER
        if login and inventory and last and inventory.boot_id != last.boot_id:
            inventory, unseen = await self._collector.collect(node)  # parts may be others now
        if inventory is None or unseen:
            return view.model_copy(update={"unseen": unseen})
        strange: tuple[str, ...] = ()
        if node.state is State.CERTIFIED:
            strange = find_strange_drives(await self._known_drives(node), inventory)
        if certificate is not None:
            signed, revoked = await self._store.evidence.read_trust(certificate)
            problems += certification.find_invalidity(
                certificate=certificate,
                inventory=inventory,
                node=node,
                signed=signed,
                revoked=revoked,
                now=self._clock.now(),
                absence_counts=node.state is not State.RELEASED or (self._book is None and login),
            )
            if node.state is State.CERTIFIED and node.kind is NodeKind.HOST:
                problems += await self.cohorts.find_differences(node, inventory)
                problems += gates.find_unproved_gates(certificate, self._settings.gates_to_release)
        problems += await self._fabric.find_accusations(node, certificate)
        problems = tuple(dict.fromkeys(problems))
        tenant = {t.name: t for t in await self._store.tenants.list()}.get(node.tenant)
        return View(
            inventory=inventory,
            placement=view.placement,
            vrf=view.vrf,
            certificate=certificate,
            certificate_blockers=problems,
            strange_drives=strange,
            neighbours_busy=await self._busy(node),
            tenant_vrf=tenant.vrf if tenant else "",
            in_session=await self._fabric.in_session(node),
        )

    async def _known_drives(self, node: Node) -> tuple[str, ...] | None:
        """Return the serials of the drives that were delivered or erased; None: they were never
        recorded.

        A node of an earlier release has no such record of its own: its last erasure has it.
        """
        if node.drives is not None or not node.erasure:
            return node.drives
        text = await self._store.evidence.get_output(node.erasure)
        return None if text is None else list_erased(ErasureReport.model_validate_json(text))

    async def _system_first(
        self, node: Node, inventory: Inventory, operation: str, *, running: bool
    ) -> Plan | None:
        return await asyncio.to_thread(
            deployment.system_first,
            inventory,
            self._matrix,
            node.release,
            node.profile,
            running=running,
            history=build_history(await self._store.operations.list_entries(node.id), operation),
            production=self._settings.production,
        )

    async def _plan(self, node: Node, inventory: Inventory, operation: str) -> Plan:
        first = await self._system_first(node, inventory, operation, running=True)
        if first is not None:
            return first
        past = build_history(await self._store.operations.list_entries(node.id), operation)
        around = await read_neighbours(self._store, node)
        with self._telemetry.plan() as made:
            posed = PlanningNode(inventory, node.release, node.profile, past, around)
            made_plan = await asyncio.to_thread(self._plans.plan, posed)
            made.append(made_plan)
        return made_plan
