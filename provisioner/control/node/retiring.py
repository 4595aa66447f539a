"""The last turns of a node that people retire: erased, its ports closed, its credentials given up.

Each turn does the next missing part and records it, in this order; a successor after a crash begins
where the rows end. A node that was not erased is retired only if a person confirms that its disks
are destroyed, and the journal records the confirmation.
"""

from __future__ import annotations

from collections.abc import Sequence
from glob import escape

from provisioner.control.node.observer import Observer
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.once import pass_gate
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.rotation import change_after_tenant
from provisioner.execution.steps import farewell
from provisioner.execution.steps.bios_defaults import change_setup_password
from provisioner.execution.steps.erasure import Eraser
from provisioner.execution.steps.maintenance_boot import Stay
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.case import Case, Stage
from provisioner.model.events.case_events import CaseRetirementBegun
from provisioner.model.events.node_events import (
    NodeNotSanitized,
    NodeRetired,
    NodeSanitized,
    PortsFenced,
)
from provisioner.model.node import Node, NodeKind, Placement, State, TenantData
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import MAINTENANCE_VRF
from provisioner.planning.certification.regression import STRANGER
from provisioner.planning.erasure.erasure import list_erased, list_unsanitized
from provisioner.planning.lifecycle.destruction import Destruction
from provisioner.planning.lifecycle.journey import enter_state
from provisioner.planning.repair.case_policy import is_taken_over
from provisioner.store.repositories.cases import SqlCaseRepository
from provisioner.store.sql_store import SqlStore

# ------------------------------------------------------------------------------
# Have a node erased and record the outcome: it is clean only if the report proves it.


async def sanitize(
    store: SqlStore,
    observer: Observer,
    eraser: Eraser,
    hold: Hold,
    node: Node,
    *,
    changes_logins: bool = False,
    changes_setup: bool = False,
) -> Sequence[Blocker]:
    """Erase the node; return the blockers of its cleanness, () if it is clean. The report is always
    stored. `changes_logins`: the passwords of its BMCs are changed first. `changes_setup`: its
    set-up password is changed at the end; what prevents that is in its row, and blocks nothing.
    Nothing is begun that the gate would refuse at the first disk; a question is put to a person.
    """
    if (blocker := await _refuse(eraser, hold)) is not None:
        return (blocker,)
    inventory = await store.evidence.get_inventory(node.id)
    if inventory is None:
        inventory, unseen = await observer.read_bmcs(node)
        if inventory is None:
            return unseen
    if changes_logins and node.served != STRANGER:
        refused = await change_after_tenant(eraser.site, store.credential_standings, node)
        if refused:
            return refused
    noted = await hold.record(node=node.model_copy(update={"note": "it is being erased"}))
    assert noted is not None
    ends = await _list_destinations(store, noted)
    erased = await eraser.erase(hold, noted, inventory, observer.disks_of(noted), ends)
    if isinstance(erased, Blocker):
        return (erased,)
    node, report = erased
    if changes_setup:
        stay = Stay(eraser.site, hold, node, inventory)
        unready = await change_setup_password(stay, store.credential_standings)
        if unready is not None:
            return (unready,)
        node = stay.node
    problems = list_unsanitized(report, eraser.policy)
    digest = await store.evidence.put_output(report.model_dump_json())
    changes: dict[str, object] = {
        "erasure": digest,
        "note": "sanitized",
        "served": "",
        "tenant_data": TenantData.SETTLED,
    }
    if problems:
        kept = {"served": node.served, "tenant_data": node.tenant_data}
        changes |= {"note": str(problems[0]), **kept}
    else:
        changes["drives"] = list_erased(report)
        await eraser.forget_host_key(node)
    event_class = NodeNotSanitized if problems else NodeSanitized
    event = event_class(report=digest, problems=tuple(str(p) for p in problems))
    await hold.record(node=node.model_copy(update=changes), events=[event])
    return problems


async def _refuse(eraser: Eraser, hold: Hold) -> Blocker | None:
    """Return why the node is not erased now. A question is written into its row, so that a person
    can answer it.
    """
    keeps = eraser.policy.same_tenant_may_skip
    blocker = await pass_gate(hold, Destruction.DISKS, keeps=keeps, begins=True)
    stored = await hold.read_node()
    if blocker is None or blocker.reason is not Reason.TRESPASS or stored is None:
        return blocker
    if stored.tenant_data is TenantData.SETTLED:
        asked = {"tenant_data": TenantData.ASKED, "note": str(blocker)}
        await hold.record(node=stored.model_copy(update=asked))
    return blocker


async def _list_destinations(store: SqlStore, node: Node) -> list[str]:
    """Return where this daemon has the node's BMCs send their events, as patterns."""
    made = await store.alerts.list_subscriptions([node.id])
    return [escape(one.destination) for one in made]


class Retirer:
    """The repair workflow calls it once the time has come; a blocker is tried again."""

    def __init__(
        self,
        site: Site,
        store: SqlStore,
        book: SqlCaseRepository,
        *,
        observer: Observer,
        eraser: Eraser,
        tenancy: Tenancy,
    ) -> None:
        self._site = site
        self._store = store
        self._book = book
        self._observer = observer
        self._eraser = eraser
        self._tenancy = tenancy

    async def turn(self, hold: Hold, case: Case, node: Node) -> Sequence[Blocker]:
        """Take one step towards the end; return the blockers."""
        if case.stage is not Stage.RETIRING:
            await self._begin(hold, case, node)
            return ()
        if not is_taken_over(node, case) and node.placement is Placement.NONE:
            blocker = await farewell.forget_credentials(self._site, hold, node)
            return (
                (blocker,)
                if blocker
                else await self._end(hold, case, node, "it was not taken over")
            )
        stored = await hold.read_node()  # an erasure begins with a fence that is in its row
        recorded = stored is not None and stored.placement is node.placement
        fenced = recorded and node.placement is Placement.MAINTENANCE
        if node.kind is NodeKind.HOST and not fenced:
            return await self._fence(hold, node)
        if node.served and not case.disks_gone:
            return await sanitize(self._store, self._observer, self._eraser, hold, node)
        refused = await self._tenancy.deny(node.ports, MAINTENANCE_VRF)
        if refused:
            return refused
        keeps_logins = self._site.settings.retire_credentials == "keep"
        off = "" if keeps_logins else await farewell.power_off(self._site, node)
        blocked = await self._credentials(hold, node)
        if blocked is not None:
            return (blocked,)
        return await self._end(hold, case, node, off)

    async def _begin(self, hold: Hold, case: Case, node: Node) -> None:
        """Begin with the node: a case in its last stage has a node that is owed its last
        erasure.
        """
        if not node.served:
            await hold.record(node=node.model_copy(update={"served": STRANGER}))
        now = self._site.clock.now()
        event = CaseRetirementBegun(about=node.id, case=case.id, disks=case.disks_gone)
        await self._book.save(case.enter_stage(Stage.RETIRING, now), events=[event], now=now)

    async def _fence(self, hold: Hold, node: Node) -> Sequence[Blocker]:
        outcome = await self._tenancy.move(node.ports, MAINTENANCE_VRF, node=node)
        if outcome.blockers:
            return outcome.blockers
        now = self._site.clock.now()
        fenced = {"placement": Placement.MAINTENANCE, "vrf": MAINTENANCE_VRF, "fenced_at": now}
        fenced["beside"] = ()
        event = PortsFenced(confirmed=True, placements=outcome.placements)
        await hold.record(node=node.model_copy(update=fenced), events=[event])
        return ()

    async def _credentials(self, hold: Hold, node: Node) -> Blocker | None:
        match self._site.settings.retire_credentials:
            case "keep":
                return None
            case "factory":
                inventory = await self._store.evidence.get_inventory(node.id)
                vendor = inventory.vendor if inventory is not None else "unknown"
                return await farewell.give_back(self._site, hold, node, vendor)
        return await farewell.forget_credentials(self._site, hold, node)

    async def _end(self, hold: Hold, case: Case, node: Node, off: str) -> Sequence[Blocker]:
        if (blocker := await pass_gate(hold, Destruction.RETIREMENT)) is not None:
            return (blocker,)
        now = self._site.clock.now()
        why = f"retired ({case.id})"
        if node.certificate and not await self._store.evidence.is_revoked(node.certificate):
            await self._store.evidence.revoke(node.certificate, why, now)
        changes = {"tenant": "", "certificate": "", "blockers": ()}
        retired = enter_state(node, State.RETIRED, case.note or why, now, changes)
        event = NodeRetired(
            case=case.id,
            erasure="" if case.disks_gone else node.erasure,
            disks=case.disks_gone,
            credentials=self._site.settings.retire_credentials,
            not_off=off,
        )
        await hold.record(node=retired, events=[event])
        return ()
