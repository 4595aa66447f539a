"""Keeps BMCs' certificates those of the site's authority, and renews them before their end.

What is due is read from the nodes' rows: the end of each certificate, and when one that failed is
tried again. So a restart goes on where the last daemon ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from provisioner.control.context import Context
from provisioner.planning.lifecycle.bmc_certificates import (
    WANT,
    is_unsettled,
    list_due_certificates,
)
from provisioner.runtime import permit

IDLE_S = 900.0  # between two looks while nothing is due


class CertificateKeeper:
    """Ticks until cancelled. `submit` hands an operation to the engine.

    `signs`: the site has an authority; without one only what began earlier is brought to its end.
    """

    def __init__(
        self,
        context: Context,
        submit: Callable[[str], Awaitable[None]],
        *,
        signs: bool,
    ) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._signs = signs
        self._submit = submit

    async def run(self) -> None:
        """Tick for ever, at the pace of `poll_s` while something is due."""
        while True:
            due = await self.tick()
            await self._clock.sleep(self._settings.poll_s if due else IDLE_S)

    async def tick(self) -> bool:
        """Begin what is due, as far as there is room; return whether anything is."""
        if permit.is_observing() or permit.get_closing_reason():
            return False
        now = self._clock.now()
        days = self._settings.bmc_certificate_renew_days
        due = []
        for node in await self._store.nodes.list():
            bmcs = list_due_certificates(node, now, days)
            if bmcs if self._signs else any(map(is_unsettled, bmcs)):
                due.append((min(b.certificate_ends_at for b in bmcs), node.id))
        if not due:
            return False
        active = await self._store.operations.list_active()
        busy = {o.node for o in active}
        room = self._settings.bmc_certificate_nodes_max - sum(o.want == WANT for o in active)
        for _, name in sorted(due):
            if room <= 0:
                break
            if name in busy:
                continue
            operation = await self._store.operations.open(name, WANT, now)
            if operation is not None:
                room -= 1
                await self._submit(operation.id)
        return True
