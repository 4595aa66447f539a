"""All that repairs of one daemon consist of, put together: cases, remedies, work for people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from provisioner.control.context import Context
from provisioner.control.node.mender import Mender
from provisioner.control.node.observer import Observer
from provisioner.control.node.retiring import Retirer
from provisioner.control.repairs.advice import Advisor
from provisioner.control.repairs.case_desk import CaseDesk
from provisioner.control.repairs.repairs import Repairs
from provisioner.control.repairs.ticketing import Ticketing
from provisioner.control.watch.watcher import Watcher
from provisioner.execution.actions.work import Site
from provisioner.execution.executor import Executor
from provisioner.execution.repair.bundling import Bundler
from provisioner.execution.repair.case_evidence import EvidenceCollector
from provisioner.execution.rewriting import build_eraser
from provisioner.execution.tenancy.release_recheck import Rechecks
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.execution.validate.validator import Validator
from provisioner.model.matrix import Matrix
from provisioner.planning.erasure.erasure import policy_of
from provisioner.ports import AlertRepository, Credentials
from provisioner.ports.cases import CaseRepository
from provisioner.ports.tickets import TicketSystem
from provisioner.store.signing import Signer


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
