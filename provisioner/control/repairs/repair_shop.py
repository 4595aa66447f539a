"""All that repairs of one daemon consist of, put together: cases, remedies, work for people."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from provisioner.control.context import Context
from provisioner.control.node.mender import Mender
from provisioner.control.node.observer import Observer
from provisioner.control.node.retiring import Retirer
from provisioner.control.repairs.case_desk import CaseDesk
from provisioner.control.repairs.repairs import Repairs
from provisioner.control.repairs.ticketing import Ticketing
from provisioner.control.watch.watcher import Watcher
from provisioner.execution.actions.work import Site
from provisioner.execution.executor import Executor
from provisioner.execution.observe.identify import bill_of_materials
from provisioner.execution.repair.case_evidence import Bundler, EvidenceCollector
from provisioner.execution.rewriting import build_eraser
from provisioner.execution.tenancy.release_recheck import Rechecks
from provisioner.execution.tenancy.tenancy import Tenancy, find_wrong_cables
from provisioner.execution.validate.validator import Validator
from provisioner.model.adoption.capability import Capability
from provisioner.model.case import Origin as CaseOrigin
from provisioner.model.case import Service
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind, Origin, State
from provisioner.model.outcome import Blocker
from provisioner.planning.erasure.erasure import policy_of
from provisioner.planning.path.profiles import choose_profile
from provisioner.ports import AlertRepository, Credentials, DamagedRow, StaleWrite
from provisioner.ports.campaigns import CaseRepository
from provisioner.ports.tickets import TicketSystem
from provisioner.store.signing import Signer

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
        desk: CaseDesk,
        observer: Observer,
        tenancy: Tenancy,
        rechecks: Rechecks,
        matrix: Matrix,
    ) -> None:
        self._context = context
        self._desk = desk
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
        if await self._desk.book.get_open(node.id) is not None:
            return  # people have it in hand; the next turn asks again
        if await self._context.refuse_act(node, Capability.TICKETS, act):
            return
        quiet = node.model_copy(update={"tenant": ""})  # no notice: its service does not change
        await self._desk.open(
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

    book: CaseRepository
    alerts: AlertRepository | None
    credentials: Credentials
    signer: Signer
    tickets: TicketSystem | None


class RepairShop:
    """`mender` works on one node at a time; the loops go on for ever."""

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
        self._context = context
        self._parts = parts
        self._readers = (observer, tenancy, Rechecks(site, context.store, matrix), matrix)
        store = context.store
        book = parts.book
        self.mender = Mender(
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
        self, submit: Callable[[str], Awaitable[None]], watcher: Watcher | None
    ) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """Return the loops by name. `submit` hands an operation to the engine; a node is looked at
        as soon as the watcher raises an alert.
        """
        alerts = self._parts.alerts
        desk = CaseDesk(self._context, self._parts.book, alerts)
        repairs = Repairs(self._context, desk, alerts, submit)
        advisor = Advisor(self._context, desk, *self._readers)
        if watcher is not None:
            watcher.keeper.on_raised = repairs.call
        return {
            "repairs": repairs.run,
            "urgent repairs": repairs.answer_calls,
            "advice": advisor.run,
            "tickets": self.ticketing.run,
        }
