"""Drives the exchange of a node's certificates: an operation, the node's only writer meanwhile.

The BMCs of a node are independent of one another: all go at once. A failure does not park the
operation; the BMC's row has the time of the next attempt, and `CertificateKeeper` opens another.
"""

from __future__ import annotations

import asyncio

from provisioner.control.context import Context
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.certificate_exchange import CertificateExchange
from provisioner.model.events.node_events import StepEnded
from provisioner.model.operation import OperationStatus
from provisioner.planning.lifecycle.bmc_certificates import WANT, list_due_certificates
from provisioner.ports.certificates import CertificateAuthority


class CertificateExchanger:
    """Carries exchanges out; one instance serves all nodes of a daemon."""

    def __init__(
        self, context: Context, site: Site, authority: CertificateAuthority | None
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._site = site
        self._authority = authority  # None: only what began earlier is brought to its end

    async def drive(self, hold: Hold) -> None:
        """Exchange the certificates of the node that are due, and end its operation."""
        node = await self._store.nodes.get(hold.operation.node)
        assert node is not None
        days = self._settings.bmc_certificate_renew_days
        due = list_due_certificates(node, self._clock.now(), days)
        await hold.enter_phase(f"{len(due)} certificates of BMCs are exchanged")
        exchanges = [
            CertificateExchange(self._site, self._store, self._authority, hold, bmc.name)
            for bmc in due
        ]
        outcomes = await asyncio.gather(*(exchange.run() for exchange in exchanges))
        problems = [problem for problem in outcomes if problem is not None]
        note = f"{len(due) - len(problems)} of {len(due)} certificates were exchanged"
        if problems:
            event = StepEnded(about=node.id, step=WANT, problems=tuple(map(str, problems)))
            await self._store.journal.append(event, self._clock.now())
            note += f"; {problems[0]}"
        await self._store.operations.end(hold.operation, OperationStatus.DONE, note)
