"""People's changes to a node with a case: cards with new logins, or the host itself.

Everything that can be refused is refused before the first row is written; the case comes last, so
that after an interruption the request is made once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from provisioner.control.repairs.case_desk import CaseDesk
from provisioner.execution.steps.farewell import CARDS, FACTORY
from provisioner.model.case import Case, Ending
from provisioner.model.events.case_events import HostReplaced
from provisioner.model.node import Node
from provisioner.planning.certification import part_changes as parts
from provisioner.planning.repair.case_steps import OUT_OF_SERVICE
from provisioner.ports import Clock, Credentials, Secret, StaleWrite, Store

SAVES_MAX = 5  # a case that the daemon writes at the same moment
Login = tuple[str, Secret]
Factory = Callable[[str], Awaitable[Login | None]]  # vendor -> its factory login


def kept_factory(credentials: Credentials) -> Factory:
    """Return the factory logins that `provisioner case factory` has put into the vault."""

    async def find(vendor: str) -> Login | None:
        return await credentials.current(f"{FACTORY}/{vendor}")

    return find


class Exchanges:
    """The exchange of parts. `factory` gives the login of a BMC that was not taken over yet."""

    def __init__(
        self,
        store: Store,
        desk: CaseDesk,
        credentials: Credentials,
        clock: Clock,
        factory: Factory,
    ) -> None:
        self._store = store
        self._desk = desk
        self._credentials = credentials
        self._clock = clock
        self._factory = factory

    async def record_return(
        self, case: Case, by: str, work: str, cards: Sequence[str]
    ) -> Case | str:
        """Record that people are done; `cards` are BMCs of cards that were exchanged."""
        if not cards or not await self._desk.is_asked(case):
            return await self._desk.record_return(case, by, work)
        node = await self._store.nodes.get(case.node)
        assert node is not None, case.node
        unknown = sorted(set(cards) - {b.name for b in node.bmcs if b.name != "host"})
        if unknown:
            return f"{node.id} has no card {unknown[0]}"
        logins = await self._logins(node, cards)
        if isinstance(logins, str):
            return logins
        fresh = node.model_copy(update={"bmcs": parts.reset_exchanged_bmcs(node, cards)})
        await self._store.nodes.save(fresh)
        await self._put(node, logins)
        return await self._desk.record_return(case, by, work)

    async def replace(self, case: Case, by: str, why: str) -> Case | str:
        """Replace the host: the new one keeps name, location and cables, nothing else."""
        node = await self._store.nodes.get(case.node)
        now = self._clock.now()
        assert node is not None, case.node
        if not case.open:
            return "it is closed"
        if node.state not in OUT_OF_SERVICE:
            return f"{node.id} is {node.state}: it is not out of service"
        logins = await self._logins(node, [b.name for b in node.bmcs])
        if isinstance(logins, str):
            return logins
        made = parts.replace_host(node, now)
        await self._store.nodes.save(made.node)
        if node.certificate:
            await self._store.evidence.revoke(node.certificate, why, now)
        await self._put(node, logins)
        await self._store.journal.append(HostReplaced(about=node.id, case=case.id, by=by), now)
        return await self._close(case, by, why)

    async def _close(self, case: Case, by: str, why: str) -> Case | str:
        for _ in range(SAVES_MAX):
            try:
                return await self._desk.close(case, Ending.REPLACED, by, why)
            except StaleWrite:
                newer = await self._desk.book.get(case.id)
                assert newer is not None
                case = newer
        raise StaleWrite(f"case {case.id} changes all the time")

    async def _logins(self, node: Node, names: Sequence[str]) -> dict[str, Login] | str:
        """Return the factory login of each of these BMCs, or why one is not known."""
        inventory = await self._store.evidence.get_inventory(node.id)
        host = inventory.vendor if inventory is not None else "unknown"
        kinds = {b.name: b.kind for b in node.bmcs}
        logins: dict[str, Login] = {}
        for name in names:
            vendor = CARDS if kinds.get(name) in ("dpu", "supernic") else host
            login = await self._factory(vendor)
            if login is None:
                return f"no factory login of {vendor} is known: `provisioner case factory` keeps it"
            logins[name] = login
        return logins

    async def _put(self, node: Node, logins: dict[str, Login]) -> None:
        for name, login in logins.items():
            await self._credentials.put(f"{node.id}/{name}", *login)
