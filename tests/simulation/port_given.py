"""What the soak of ports gives instead of simulating it, and where it watches what is stored."""

from __future__ import annotations

import math
from typing import Any

from given_events import in_state
from port_truth import Issued

from provisioner.control.context import Context
from provisioner.control.node.observer import Observer
from provisioner.execution.actions.hold import Hold
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.model.certificate import Certificate
from provisioner.model.cohort import HealthReport
from provisioner.model.erasure import (
    Disk,
    ErasurePolicy,
    ErasureRecord,
    ErasureReport,
    Holder,
    Result,
)
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, Placement, State
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Plan
from provisioner.model.tenant import LibraryMinimum
from provisioner.planning.certification import certification
from provisioner.planning.erasure import erasure
from provisioner.planning.lifecycle.decide import View
from provisioner.ports import Secret
from provisioner.store import SqlStore

POLICY = ErasurePolicy(required=())
TENANTS = {"red": "RED", "blue": "BLUE"}


class Credentials:
    """One for all switches."""

    async def current(self, name: str) -> tuple[str, Secret]:
        return "cumulus", Secret("cumulus")


class GivenParts:
    """The collector of the soak: one drive in each host, which people may exchange."""

    def __init__(self, soak: Any) -> None:
        self._soak = soak

    async def collect(self, node: Node) -> tuple[Inventory, tuple[Blocker, ...]]:
        return self._soak.inventory(node.id), ()


class NoMatrix:
    """No release is planned here."""

    def digest(self) -> str:
        return ""


class Hosts:
    """What is seen and done of hosts, given: one drive each, and all checks pass.

    Whether a release may go on is asked of the daemon's own observer.
    """

    def __init__(self, soak: Any, tenancy: Tenancy) -> None:
        self._soak, self._tenancy = soak, tenancy
        given: Any = (GivenParts(soak), tenancy, NoMatrix())
        self._observer = Observer(Context(soak.store, soak.clock, soak.settings), *given)
        self.find_objections = self._observer.find_objections
        self.read_standing = self._observer.read_standing

    def list_library_minimums(self, node: Node) -> tuple[LibraryMinimum, ...]:
        """No release is pinned here."""
        return ()

    async def observe(self, node: Node, operation: str) -> View:
        """As the daemon's observer does: ports are read anew, and never in `released`."""
        plan = Plan(node=node.id, release=node.release, profile=node.profile)
        report = HealthReport(
            node=node.id, inventory_digest="", started_at=0, ended_at=0, results=()
        )
        if node.state in (State.RELEASED, State.QUARANTINED):
            return View(plan=plan, report=report)
        view = await self._observer._place(node, View(plan=plan))
        if view.unseen or view.foreign or view.placement is not Placement.MAINTENANCE:
            return view
        if node.state is not State.CERTIFIED:
            owed = erasure.require_erasure(node, POLICY)
            seen = {"inventory": self._soak.inventory(node.id), "report": report}
            return view.model_copy(update={"owed": owed, **seen})
        store = self._soak.store
        certificate = await store.evidence.get_certificate(node.certificate)
        assert certificate is not None
        problems = certification.find_invalidity(
            certificate=certificate,
            inventory=self._soak.inventory(node.id),
            node=node,
            signed=True,
            revoked=await store.evidence.is_revoked(certificate.id),
            now=self._soak.clock.now(),
        )
        told = {"certificate": certificate, "certificate_blockers": problems}
        return view.model_copy(update={**told, "tenant_vrf": TENANTS.get(node.tenant, "")})

    async def read_bmcs(self, node: Node) -> tuple[Inventory, tuple[Blocker, ...]]:
        """The parts without the host's system."""
        return self._soak.inventory(node.id), ()

    def disks_of(self, node: Node) -> int:
        """The profile does not say."""
        return 0

    async def certify(self, hold: Hold, node: Node, view: View) -> tuple[Blocker, ...]:
        """A new certificate for what is there now."""
        soak = self._soak
        soak.issued += 1
        now = soak.clock.now()
        certificate = Certificate(
            id=f"certificate-{soak.issued}",
            node=node.id,
            release=node.release,
            profile=node.profile,
            serials=certification.list_serials(soak.inventory(node.id)),
            versions=(),
            boot_id="",
            location=str(node.location),
            ports=tuple(sorted(f"{p.switch}/{p.interface}" for p in node.ports)),
            report_digest="",
            matrix_digest="",
            issued_at=math.floor(now),
            expires_at=now + soak.valid_s,
        )
        certificate = soak.signer.sign(certificate)
        soak.truth.certificates[certificate.id] = Issued(
            node.id, soak.truth.drives[node.id], certificate.expires_at
        )
        changes = {"certificate": certificate.id, "tenant": ""}
        await hold.record(
            node=in_state(node, State.CERTIFIED, now, **changes),
            certificate=certificate,
            inventory=soak.inventory(node.id),
        )
        return ()


class GivenEraser:
    """Erases at once; the truth's keeper hears of it."""

    def __init__(self, soak: Any) -> None:
        self._soak, self.policy = soak, POLICY

    async def forget_host_key(self, _node: Node) -> None:
        """Hosts have no system here, and so no key."""

    async def erase(
        self, _hold: Hold, node: Node, _inventory: Inventory, _disks: int, _ends: Any
    ) -> tuple[Node, ErasureReport]:
        now = self._soak.clock.now()
        times = {"fenced_at": node.fenced_at, "started_at": now, "ended_at": now}
        serial = self._soak.truth.drives[node.id]
        disk = Disk(name="/dev/nvme0n1", serial=serial, size_bytes=1)
        done = ErasureRecord(
            holder=Holder.DISK, device=disk.name, serial=serial, result=Result.DONE
        )
        report = ErasureReport(
            node=node.id,
            tenant=node.served,
            before=(disk,),
            after=(disk,),
            records=(done,),
            **times,
        )
        assert not erasure.list_unsanitized(report, POLICY)
        self._soak.truth.erased(node.id)
        return node, report


def watch_store(store: SqlStore, soak: Any) -> None:
    """Report each write about a node or a certificate to the truth's keeper."""
    nodes, operations, evidence = store.nodes, store.operations, store.evidence
    save_stored, record_stored, revoke_stored = nodes.save, operations.record, evidence.revoke

    async def save(node: Node) -> Node:
        stored = await save_stored(node)
        soak.saw(stored)
        return stored

    async def record(operation: Any, **parts: Any) -> Any:
        stored = await record_stored(operation, **parts)
        soak.saw(stored[1])
        return stored

    async def revoke(certificate: str, reason: str, now: float) -> None:
        try:
            await revoke_stored(certificate, reason, now)
        finally:  # as rows are told: far from its database, what is written takes its time
            soak.truth.revoked.setdefault(certificate, soak.clock.now())

    nodes.save = save  # type: ignore[method-assign]
    operations.record = record  # type: ignore[method-assign]
    evidence.revoke = revoke  # type: ignore[method-assign]
