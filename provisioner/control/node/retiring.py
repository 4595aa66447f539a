"""The last turns of a node that people retire: erased, its ports closed, its credentials given up.

Each turn does the next missing part and records it, in this order; a successor after a crash begins
where the rows end. A node that was not erased is retired only if a person confirms that its disks
are destroyed, and the journal records the confirmation.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.control.node.observer import Observer
from provisioner.control.node.sanitizing import sanitize
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.work import Site
from provisioner.execution.steps import farewell
from provisioner.execution.steps.erasure import Eraser
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.case import Case, Stage
from provisioner.model.events.case_events import CaseRetirementBegun
from provisioner.model.events.node_events import NodeRetired, PortsFenced
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import MAINTENANCE_VRF
from provisioner.planning.certification.part_changes import STRANGER
from provisioner.planning.lifecycle.transition import enter_state
from provisioner.planning.repair.case_policy import is_taken_over
from provisioner.ports import Store
from provisioner.ports.cases import CaseRepository


class Retirer:
    """The mender calls it once the time has come; a blocker is tried again."""

    def __init__(
        self,
        site: Site,
        store: Store,
        book: CaseRepository,
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
            await farewell.forget_credentials(self._site, node)
            await self._end(hold, case, node, "it was not taken over")
            return ()
        if node.kind is NodeKind.HOST and node.placement is not Placement.MAINTENANCE:
            return await self._fence(hold, node)
        if node.served and not case.disks_gone:
            return await sanitize(self._store, self._observer, self._eraser, hold, node)
        refused = await self._tenancy.deny(node.ports, MAINTENANCE_VRF)
        if refused:
            return refused
        keeps_logins = self._site.settings.retire_credentials == "keep"
        off = "" if keeps_logins else await farewell.power_off(self._site, node)
        blocked = await self._credentials(node)
        if blocked is not None:
            return (blocked,)
        await self._end(hold, case, node, off)
        return ()

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
        event = PortsFenced(confirmed=True, placements=outcome.placements)
        await hold.record(node=node.model_copy(update=fenced), events=[event])
        return ()

    async def _credentials(self, node: Node) -> Blocker | None:
        match self._site.settings.retire_credentials:
            case "keep":
                return None
            case "factory":
                inventory = await self._store.evidence.get_inventory(node.id)
                vendor = inventory.vendor if inventory is not None else "unknown"
                return await farewell.give_back(self._site, node, vendor)
        await farewell.forget_credentials(self._site, node)
        return None

    async def _end(self, hold: Hold, case: Case, node: Node, off: str) -> None:
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
