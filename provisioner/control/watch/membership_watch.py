"""Watch what else nodes are in for their tenants: each system of `ports.isolation.Membership`.

A difference that two looks in a row show, with the node's row as it was, is an alert of the node,
which no tenant gets while it stands; nothing is ever changed by it. It ends when two looks in a row
show that part of the node to be right, or by a person's word (`alert clear`). While a system gives
no whole answer, knows no such node any more, or cannot tell something of it, its alerts stand.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from provisioner.control.context import Context
from provisioner.control.watch.alert_keeper import AlertKeeper
from provisioner.control.watch.isolation_violations import placement_facts
from provisioner.model.alert import Classification, Signal
from provisioner.model.input_error import InputError
from provisioner.model.node import Node
from provisioner.planning.watch.alerts import MEMBERSHIP_DRIFT
from provisioner.ports import PortError
from provisioner.ports.isolation import Drift, Membership
from provisioner.runtime import permit
from provisioner.store.repositories.alerts import SqlAlertRepository

log = logging.getLogger(__name__)
EACH_S = 60.0
WORDS_MAX = 8  # sentences of one node
NOTICES_MAX = 16
UNREAD = "MembershipUnread"
Looked = Mapping[str, tuple[object, Drift]]  # by node, with the facts of its row


@dataclass
class MembershipWatch:
    """One per daemon, of all systems. `book` None: no alerts, and the notice tells all."""

    context: Context
    systems: Sequence[Membership]
    book: SqlAlertRepository | None
    _last: dict[str, Looked] = field(default_factory=dict)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.look()
            await self.context.clock.sleep(EACH_S)

    async def look(self) -> None:
        """Look once at every system."""
        for one in self.systems:
            said = tuple((await self._look_at(one))[:NOTICES_MAX])
            notices = permit.get_scope().notices
            if said and notices.get(one.name) != said:
                log.error("%s: %s", one.name, "; ".join(said))
            notices[one.name] = said

    async def _look_at(self, one: Membership) -> Sequence[str]:
        """Return what is to be told of a system."""

        async def was_admitted(node: Node) -> bool:
            proof = await self.context.store.evidence.get_proof(node.id)
            return proof is not None and any(row.check is one.check for row in proof.gate)

        nodes = await self.context.store.nodes.list()
        rows = {node.id: node for node in nodes}
        try:
            found = await one.find_drift(nodes, was_admitted)
        except (PortError, InputError, OSError) as error:
            return (f"nobody knows whether nodes are in it as they were proved: {error}"[:300],)
        if found is None:
            self._last.pop(one.name, None)  # nobody can look: what stands stands
            return ()
        now = {name: (placement_facts(rows[name]), drift) for name, drift in found.items()}
        last = self._last.get(one.name)
        self._last[one.name] = now
        if last is None:
            return ()
        both = {name: _meet(seen, last[name]) for name, seen in now.items() if name in last}
        told = {name: self._list_signals(name, one, drift) for name, drift in both.items()}
        right = {name: now[name][1].part for name in both if now[name] == last[name]}
        await self._level(f"watch.{one.check}", told, right)
        return [each.message for name in sorted(told) for each in told[name]]

    def _list_signals(self, node: str, system: Membership, drift: Drift) -> Sequence[Signal]:
        held = (Classification.PREVENT_ALLOCATIONS,)
        kinds = {
            MEMBERSHIP_DRIFT: (drift.wrong, held),
            UNREAD: (drift.unread, (Classification.UNOBSERVED,)),
        }
        now = self.context.clock.now()
        return [
            Signal(
                node=node,
                id=name,
                target=drift.part,
                classifications=classes,
                message=f"{drift.part}: {'; '.join(sorted(words)[:WORDS_MAX])}"[:300],
                source=f"watch.{system.check}",
                at=now,
            )
            for name, (words, classes) in kinds.items()
            if words
        ]

    async def _level(
        self, source: str, told: Mapping[str, Sequence[Signal]], right: Mapping[str, str]
    ) -> None:
        """Raise what two looks showed; clear what both of them showed to be right."""
        if self.book is None:
            return
        keeper = AlertKeeper(self.book, self.context.store, self.context.clock, _submit_nothing)
        standing = [a for a in await self.book.list() if a.active and a.source == source]
        for name, seen in told.items():
            targets = {a.target for a in standing if a.node == name}
            if seen:
                unread = {one.target for one in seen if one.id == UNREAD}
                await keeper.level(name, {source: seen}, unread | targets - {seen[0].target})
            elif targets and name in right:
                await keeper.level(name, {source: []}, targets - {right[name]})


def _meet(now: tuple[object, Drift], last: tuple[object, Drift]) -> Drift:
    if now[0] != last[0]:
        return Drift(now[1].part)  # its row changed meanwhile: judged anew with the next look
    wrong = now[1].wrong & last[1].wrong
    return Drift(now[1].part, wrong, now[1].unread & last[1].unread)


async def _submit_nothing(_operation: str) -> None:
    """Submit nothing: these alerts revoke nothing."""
