"""Watch tenants' spaces on shared storage: what a foreign hand opened is closed, and told.

It works as the watch of leaf ports (`leaf_watch.py`): a first reading makes suspects, and only a
difference that a second reading shows, with the rows read again, counts. It closes and never opens:
nodes that a hand shut out are told, and let in by `provisioner tenant settle`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from provisioner.control.context import Context
from provisioner.execution.tenancy.spaces import TenantSpaces
from provisioner.model.outcome import Blocker
from provisioner.planning.tenancy.storage import ForeignHand
from provisioner.ports import PortError

log = logging.getLogger(__name__)

Hands = Mapping[str, frozenset[ForeignHand]]  # tenant -> what differs by foreign hands


class StorageWatch:
    """`run` watches for ever. `listed`: the differences that were confirmed at the last look."""

    def __init__(self, context: Context, spaces: TenantSpaces) -> None:
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
            words = "; ".join(sorted(f"{h.subject}: {h.detail}" for h in new))
            log.warning("storage of tenant %s: %s", name, words[:500] or "it is still open")
            await self._mend(name)

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
