"""The gate that every act on an adopted node passes: its capability must be granted by a person.

A node that was detached passes it with nothing, whatever is granted.

The gated ports (`adapters/granted`) ask it about each act before they hand the act on, and have it
ask again, by the permit, just before the request leaves. A refused act raises `NotGranted`, is
shown on the node as one that would have been sent, and is recorded in the journal once an hour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from provisioner.model.adoption.capability import Capability
from provisioner.model.events.request_events import ActWithheld
from provisioner.model.node import Node, Origin
from provisioner.planning.release.adoption import describe_refusal
from provisioner.ports import Clock, NotGranted, Store
from provisioner.runtime import permit

AGAIN_S = 3600.0  # the journal says of the same act again after this
NOTED_MAX = 4096  # acts that are remembered, the oldest are forgotten first


@dataclass(frozen=True)
class Need:
    """A capability that an act needs over one adopted node, and the act's effect on that node."""

    node: Node
    capability: Capability
    act: str


class CapabilityGate:
    """One instance serves all gated ports of a daemon."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._detached: Mapping[str, Node] = {}
        self._noted: dict[tuple[str, str], float] = {}  # (node, act) -> when it was recorded

    async def open(self) -> None:
        """Require every write to be named, if the site has adopted or detached nodes.

        A request that waits is judged by the detached nodes as they were at the last call.
        """
        guarded = await self.list_guarded()
        self._detached = {n.id: n for n in guarded if n.origin is Origin.DETACHED}
        permit.require_names(required=bool(guarded))

    def close(self) -> None:
        """Require names no longer: the daemon has stopped."""
        permit.require_names(required=False)

    async def list_guarded(self) -> Sequence[Node]:
        """Return all adopted and detached nodes, also those set aside for a damaged row."""
        return await self._store.nodes.list_guarded()

    async def find_refusal(self, node: Node, capability: Capability) -> str:
        """Return why a capability may not be used on a node; "" if it may."""
        if node.origin is Origin.TAKEN_IN:
            return ""
        return describe_refusal(node, capability, await self._store.grants.list())

    async def admit(self, needs: Collection[Need]) -> None:
        """Return if an act may be sent. Raises `NotGranted`, and records that it would be."""
        for need in needs:
            if why := await self.find_refusal(need.node, need.capability):
                permit.count_withheld()
                await self.note_would(need, why)
                raise NotGranted(f"{why}; it would: {need.act}"[:400])

    async def note_would(self, need: Need, why: str) -> None:
        """Record an act that would have been sent, unless the journal has it of this hour."""
        key = (need.node.id, need.act)
        now = self._clock.now()
        if now - self._noted.get(key, -AGAIN_S) < AGAIN_S:
            return
        self._noted.pop(key, None)
        self._noted[key] = now
        while len(self._noted) > NOTED_MAX:
            del self._noted[next(iter(self._noted))]
        event = ActWithheld(about=need.node.id, act=need.act[:300], needs=need.capability, why=why)
        await self._store.journal.append(event, now)

    @contextmanager
    def guard(self, needs: Collection[Need]) -> Iterator[None]:
        """Within the block, requests may leave while the grants, as last known here, allow it."""

        def find_reason() -> str:
            grants = self._store.grants.newest
            nodes = self._detached
            reasons = (
                describe_refusal(nodes.get(n.node.id, n.node), n.capability, grants) for n in needs
            )
            return next((why for why in reasons if why), "")

        with permit.name_act(find_reason):
            yield
