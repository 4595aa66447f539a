"""Watch tenants' spaces on shared storage: what a foreign hand opened is closed, and told.

It works as the watch of leaf ports (`leaf_watch.py`): a first reading makes suspects, and only a
difference that a second reading shows, with the rows read again, counts. It closes and never opens:
nodes that a hand shut out are told, and let in by `provisioner tenant settle`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from provisioner.control.context import Context
from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.execution.tenancy.spaces import TenantSpaces
from provisioner.model.alert import Signal
from provisioner.model.case import TenantNotice
from provisioner.model.outcome import Blocker
from provisioner.planning.tenancy.storage import ForeignHand
from provisioner.ports import PortError
from provisioner.store.repositories.alerts import SqlAlertRepository

log = logging.getLogger(__name__)

SOURCE = "watch.storage"
STANDING = "watch.storage.standing"

Hands = Mapping[str, frozenset[ForeignHand]]  # tenant -> what differs by foreign hands


class StorageWatch:
    """`run` watches for ever. `listed`: the differences that were confirmed at the last look."""

    def __init__(
        self, context: Context, spaces: TenantSpaces, book: SqlAlertRepository | None = None
    ) -> None:
        """`book` None: no alerts."""
        self._book = book
        self._store = context.store
        self._keeper = (
            None
            if book is None
            else AlertKeeper(book, context.store, context.clock, _submit_nothing)
        )
        self._clock = context.clock
        self._every_s = context.settings.watch_storage_s
        self._spaces = spaces
        self._silent = ""  # why the storage could not be read, as the log has it
        self.listed: Hands = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(self._every_s)

    async def look(self) -> None:
        """Read every space twice; mend those in which a hand was seen both times.

        A hand that cannot be taken back by closing is told once, not at each look.
        """
        first = await self._read()
        if first is None or not any(first.values()):
            self.listed = {} if first is not None else self.listed
            if first is not None:
                await self._level()
            return
        second = await self._read()
        if second is None:
            return
        before = self.listed
        both = {name: seen & second.get(name, frozenset()) for name, seen in first.items()}
        self.listed = {name: hands for name, hands in both.items() if hands}
        for name, hands in self.listed.items():
            new = hands - before.get(name, frozenset())
            if not new and not any(h.opens for h in hands):
                continue
            await self._tell(name, new)
            words = "; ".join(sorted(f"{h.subject}: {h.detail}" for h in new))
            log.warning("storage of tenant %s: %s", name, words[:500] or "it is still open")
            await self._mend(name)
        await self._level()

    async def _tell(self, tenant: str, hands: Collection[ForeignHand]) -> None:
        """Alert of what a hand opened, before it is closed, and write the tenant a notice of it.

        The alert stays until a person clears it, as a port's does: who did it is to be found. It is
        at the first of the tenant's nodes; a tenant without nodes has the notice alone.
        """
        now = self._clock.now()
        opened = sorted((h for h in hands if h.opens), key=lambda h: (h.subject, h.detail))
        if not opened:
            return
        node = (await self._find_places()).get(tenant, "")
        if self._keeper is not None and node:
            signals = [_signal(node, h, "StorageTrespass", SOURCE, now) for h in opened]
            await self._keeper.report(node, signals)
        told = "; ".join(f"{h.subject}: {h.detail}" for h in opened)[:400]
        text = f"Your shared storage was opened by somebody else, and is being closed: {told}."
        await self._store.cases.put_notice(
            TenantNotice(
                id=f"storage/{tenant}/{now:.0f}",
                tenant=tenant,
                node=node,
                kind="failure",
                text=text,
                at=now,
            )
        )

    async def _level(self) -> None:
        """Keep an alert of each standing difference that opens nothing, as long as it stands."""
        if self._keeper is None or self._book is None:
            return
        now = self._clock.now()
        standing = {a.node for a in await self._book.list() if a.source == STANDING}
        seen: dict[str, list[Signal]] = {node: [] for node in standing}
        places = await self._find_places() if self.listed else {}
        for tenant, hands in self.listed.items():
            node = places.get(tenant, "")
            for hand in sorted(hands, key=lambda h: (h.subject, h.kind)):
                if node and not hand.opens:
                    signal = _signal(node, hand, "StorageDiffers", STANDING, now)
                    seen.setdefault(node, []).append(signal)
        for node, signals in seen.items():
            await self._keeper.level(node, {STANDING: signals})

    async def _find_places(self) -> Mapping[str, str]:
        """Return for each tenant the node that its alerts are at."""
        nodes = await self._store.nodes.list()
        return {n.tenant: n.id for n in sorted(nodes, key=lambda n: n.id, reverse=True) if n.tenant}

    async def _mend(self, name: str) -> None:
        try:
            for blocker in await self._spaces.mend({name}):
                log.warning("storage of tenant %s is not mended: %s", name, blocker)
        except PortError as problem:
            log.warning("storage of tenant %s is not mended: %s", name, problem)

    async def _read(self) -> Hands | None:
        """Return the foreign hands of each tenant; None if the storage cannot be read."""
        standing = await self._spaces.stand()
        why = str(standing) if isinstance(standing, Blocker) else ""
        if why and why != self._silent:
            log.warning("storage cannot be watched: %s", why)
        self._silent = why
        if isinstance(standing, Blocker):
            return None
        return {s.tenant: frozenset(s.plan.foreign) for s in standing}


def _signal(node: str, hand: ForeignHand, name: str, source: str, now: float) -> Signal:
    return Signal(
        node=node,
        id=name,
        target=f"storage/{hand.subject} {hand.kind}",
        message=hand.detail[:300],
        source=source,
        at=now,
    )


async def _submit_nothing(_operation: str) -> None:
    """Submit nothing: these alerts revoke no certificate."""
