"""Keeps logins young: finds what is due, the most urgent first, and begins changes at a set rate.

What is due is in rows: a demand of a person or an event, or the age. So a restart begins where the
last daemon ended, and a demand of all 720,896 logins is one statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from provisioner.control.context import Context
from provisioner.model.node import Node
from provisioner.planning.lifecycle.credential_rotation import BMC_CERTIFICATES_WANT as WANT
from provisioner.planning.lifecycle.credential_rotation import WANT as CREDENTIAL_ROTATION_WANT
from provisioner.planning.lifecycle.credential_rotation import (
    compute_age_limit,
    is_unsettled,
    list_due_certificates,
    list_logins,
    may_rotate,
)
from provisioner.runtime import permit

# ------------------------------------------------------------------------------
# Keeps BMCs' certificates those of the site's authority, and renews them before their end.
#
# What is due is read from the nodes' rows: the end of each certificate, and when one that failed is
# tried again. So a restart goes on where the last daemon ended.


IDLE_S = 900.0  # between two looks while nothing is due


class CertificateKeeper:
    """Ticks until cancelled. `submit` hands an operation to the engine.

    `signs`: the site has an authority; without one only what began earlier is brought to its end.
    """

    def __init__(
        self, context: Context, submit: Callable[[str], Awaitable[None]], *, signs: bool
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


CREDENTIAL_KEEPER_IDLE_S = 180.0  # between two looks while nothing is due
READ_MAX = 8192  # due rows of one round: more than busy nodes can have


class CredentialKeeper:
    """Ticks until cancelled. `submit` hands an operation to the engine."""

    def __init__(self, context: Context, submit: Callable[[str], Awaitable[None]]) -> None:
        self._store = context.store
        self._clock = context.clock
        self._settings = context.settings
        self._submit = submit
        self._names: dict[str, str] | None = None  # enrolled logins with their nodes
        self._nodes: dict[str, Node] = {}  # as they were enrolled: unchanged rows are one object
        self._allowance = 0.0  # changes that may begin now
        self._last: float | None = None

    async def run(self) -> None:
        """Tick for ever, at the pace of `poll_s` while something is due."""
        while True:
            due = await self.tick()
            await self._clock.sleep(self._settings.poll_s if due else CREDENTIAL_KEEPER_IDLE_S)

    async def tick(self) -> bool:
        """Enroll new logins, then begin what is due; return whether anything is."""
        now = self._clock.now()
        nodes = {node.id: node for node in await self._store.nodes.list()}
        await self._enroll(nodes, now)
        rate = self._settings.credential_rotations_per_s
        passed_s = self._settings.poll_s if self._last is None else max(0.0, now - self._last)
        self._last = now
        # what was not used is not saved up: a pause is followed by no storm
        self._allowance = min(self._allowance, 0.0) + rate * min(
            passed_s, 2 * self._settings.poll_s
        )
        if permit.is_observing() or permit.get_closing_reason():
            return False
        return await self._begin(nodes, now)

    async def _enroll(self, nodes: Mapping[str, Node], now: float) -> None:
        """Give each login that the daemon set a row, and take away rows of logins that are gone."""
        standings = self._store.credential_standings
        if self._names is None:
            self._names = dict(await standings.list_names())
        changed = [n for n in nodes.values() if self._nodes.get(n.id) is not n]
        gone = self._nodes.keys() - nodes.keys()
        self._nodes = dict(nodes)
        if not changed and not gone:
            return
        more = {
            "switches": self._settings.credential_switches,
            "setup": self._settings.credential_setup_password,
        }
        held = {f"{n.id}/{b.name}": n.id for n in changed for b in list_logins(n, **more)}
        looked = {n.id for n in changed} | gone
        new = {name: node for name, node in held.items() if name not in self._names}
        lost = [name for name, node in self._names.items() if node in looked and name not in held]
        if new:
            await standings.enroll(new, now)
            self._names |= new
        if lost:
            await standings.remove(lost)
            for name in lost:
                del self._names[name]

    async def _begin(self, nodes: Mapping[str, Node], now: float) -> bool:
        limit = compute_age_limit(now, self._settings.credential_days)
        due = await self._store.credential_standings.list_due(now, limit, READ_MAX)
        if not due:
            return False
        active = await self._store.operations.list_active()
        busy = {o.node for o in active}
        also = self._settings.credential_switches
        room = self._settings.credential_nodes_max - sum(
            o.want == CREDENTIAL_ROTATION_WANT for o in active
        )
        logins = Counter(standing.node for standing in due)  # in the order of urgency
        for name, count in logins.items():
            if room <= 0 or self._allowance <= 0:
                break
            node = nodes.get(name)
            if node is None or name in busy or not may_rotate(node, switches=also):
                continue
            operation = await self._store.operations.open(name, CREDENTIAL_ROTATION_WANT, now)
            if operation is not None:
                room -= 1
                self._allowance -= count
                await self._submit(operation.id)
        return True
