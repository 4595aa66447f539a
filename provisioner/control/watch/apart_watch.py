"""Watch, leaf by leaf, that hosts are kept apart on the network where agents are looked up.

A leaf that was never prepared is prepared by it; filters that a foreign change removed are put back
and reported. A gap in a first look is read once more: a test may have opened or closed its doors
between the reading and the rows.
"""

from __future__ import annotations

from collections.abc import Collection

from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.execution.tenancy.hosts_apart import HostsApart, SeenApart
from provisioner.model.alert import Classification, Signal
from provisioner.model.events.fleet_events import HostsKeptApart, HostsNotApart
from provisioner.model.outcome import Blocker
from provisioner.ports import AlertRepository, Clock, Store

SOURCE = "watch.apart"
ALERT = "HostsNotApart"


class ApartWatch:
    """`look` is called for each leaf by the watch of leaves. `book` None: no alerts."""

    def __init__(
        self, store: Store, clock: Clock, apart: HostsApart, book: AlertRepository | None = None
    ) -> None:
        self._store = store
        self._clock = clock
        self._apart = apart
        self._keeper = None if book is None else AlertKeeper(book, store, clock, _submit_nothing)
        self._proved: set[str] = set()  # leaves that were whole when they were read last

    async def check_leaf(self, leaf: str, owned: Collection[str]) -> None:
        """Read one leaf; record missing parts, then put them back."""
        if not self._apart.enabled:
            return
        state = await self._apart.look(leaf, owned)
        if not isinstance(state, Blocker) and state.gaps:
            state = await self._apart.look(leaf, owned)
        if isinstance(state, Blocker):
            return  # a leaf that is silent is reported by the watch of its nodes
        if not state.gaps:
            if leaf not in self._proved:
                self._proved.add(leaf)
                await self._report(leaf, None)
            return
        foreign = leaf in self._proved or not state.untouched
        self._proved.discard(leaf)
        gaps = HostsNotApart(about=leaf, gaps=tuple(state.gaps[:8]), alert=foreign)
        await self._store.journal.append(gaps, self._clock.now())
        if foreign:
            await self._report(leaf, state)
        blockers = await self._apart.put_back(leaf, state)
        apart = HostsKeptApart(
            about=leaf,
            ports=len(state.guarded),
            confirmed=not blockers,
            problems=tuple(str(b) for b in blockers[:4]),
        )
        await self._store.journal.append(apart, self._clock.now())

    async def _report(self, leaf: str, seen: SeenApart | None) -> None:
        """Raise the leaf's alert, or end it. None: nothing is missing."""
        if self._keeper is None:
            return
        now = self._clock.now()
        signals = []
        if seen is not None:
            message = f"hosts were not kept apart there: {'; '.join(seen.gaps)}"[:300]
            signals = [
                Signal(
                    node=leaf,
                    id=ALERT,
                    target="",
                    classifications=(Classification.PREVENT_ALLOCATIONS,),
                    message=message,
                    source=SOURCE,
                    at=now,
                )
            ]
        await self._keeper.level(leaf, {SOURCE: signals})


async def _submit_nothing(_operation: str) -> None:
    """Submit nothing: these alerts revoke nothing, so that no operation is opened for them."""
