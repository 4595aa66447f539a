"""All that repairs of one daemon consist of, put together: cases, remedies, work for people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from provisioner.control.node.mender import Mender
from provisioner.control.node.observer import Observer
from provisioner.control.node.retiring import Retirer
from provisioner.control.repairs.case_desk import CaseDesk
from provisioner.control.repairs.repairs import Repairs
from provisioner.control.repairs.ticketing import Ticketing
from provisioner.execution.actions.work import Site
from provisioner.execution.executor import Executor
from provisioner.execution.repair.bundling import Bundler
from provisioner.execution.repair.case_evidence import EvidenceCollector
from provisioner.execution.steps.erasure import Eraser
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.execution.validate.validator import Validator
from provisioner.model.matrix import Matrix
from provisioner.planning.erasure.erasure import policy_of
from provisioner.ports import AlertBook, Clock, Credentials, Store
from provisioner.ports.cases import CaseBook
from provisioner.ports.tickets import TicketSystem
from provisioner.settings import Settings
from provisioner.store.signing import Signer


@dataclass(frozen=True)
class RepairParts:
    """What repairs need from outside."""

    store: Store
    book: CaseBook
    alerts: AlertBook | None
    clock: Clock
    settings: Settings
    credentials: Credentials
    signer: Signer
    tickets: TicketSystem | None


class RepairShop:
    """`mender` works on one node at a time; the loops go on for ever."""

    def __init__(
        self,
        parts: RepairParts,
        site: Site,
        *,
        observer: Observer,
        executor: Executor,
        validator: Validator,
        matrix: Matrix,
        tenancy: Tenancy,
    ) -> None:
        p = parts
        self._parts = parts
        self.mender = Mender(
            p.store,
            p.book,
            p.alerts,
            p.clock,
            p.settings,
            observer=observer,
            executor=executor,
            evidence=EvidenceCollector(site, p.store, validator),
            matrix=matrix,
            retirer=Retirer(
                site,
                p.store,
                p.book,
                observer=observer,
                eraser=Eraser(site, policy_of(p.settings)),
                tenancy=tenancy,
            ),
        )
        bundler = Bundler(p.store, p.book, p.credentials, p.signer, p.settings.site)
        self.ticketing = Ticketing(
            p.store, p.book, p.clock, p.settings, site.reach, bundler, p.tickets
        )

    def loops(
        self, submit: Callable[[str], Awaitable[None]]
    ) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """What is to run, by name. `submit` hands an operation to the engine."""
        p = self._parts
        desk = CaseDesk(p.store, p.book, p.alerts, p.clock, p.settings)
        repairs = Repairs(desk, p.store, p.alerts, p.clock, p.settings, submit)
        return {"repairs": repairs.run, "tickets": self.ticketing.run}
