"""One leaf's configuration of tenants: looked at, changed by one revision, proved and saved.

Rule: a try begins with a look, and only what is still missing is sent, so that a lost answer or a
crash is repaired by trying again. Ports are `execution/tenancy/leaf.py`'s; this makes and removes
VRFs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from provisioner.execution.actions.leaf_turns import turn
from provisioner.execution.actions.once import blocked
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.tenancy.vrf_difference import LeafChange, find_missing_tree, find_unproved
from provisioner.planning.tenancy.vrf_obstacles import Path, SeenLeaf, list_occupied, read_subtree
from provisioner.ports import Call, Clock, Malformed, PortError, SwitchAddress, SwitchTransport
from provisioner.ports.reply_words import status_words
from provisioner.settings import Settings
from provisioner.switches import cumulus
from provisioner.switches.cumulus import Ask

TRIES_MAX = 3  # a lost answer, then a revision that raced with somebody else's
INTERFACES_PATH = f"{cumulus.PREFIX}/interface?rev=operational"
VRFS_PATH = f"{cumulus.PREFIX}/vrf?rev=operational"
REQUEST_S = 60.0  # the whole configuration of a full leaf is some megabytes

Lookup = Callable[[], Awaitable[SwitchAddress | Blocker]]


class _No(Exception):
    """It answered, and not what was needed; a blocker outside of this file."""

    def __init__(self, blocker: Blocker) -> None:
        super().__init__(blocker.detail)
        self.blocker = blocker


class LeafConfig:
    """One switch. Methods raise nothing that the world does."""

    def __init__(
        self, name: str, lookup: Lookup, transport: SwitchTransport, clock: Clock, limits: Settings
    ) -> None:
        self.name = name
        self._lookup = lookup
        self._transport = transport
        self._clock = clock
        self._limits = limits

    async def look(self, vrfs: Collection[str] = ()) -> SeenLeaf | Blocker:
        """Its configuration, its VRFs and the VRF of each port, and the VNIs of these VRFs."""
        try:
            return await self._look(vrfs)
        except PortError as error:
            return blocked(error, self.name)
        except _No as no:
            return no.blocker

    async def bring(self, change: LeafChange) -> tuple[Blocker, ...]:
        """Carry a change out; () if the switch does it, and will after its next start."""
        async with turn(self.name):
            return await self._bring(change)

    async def _bring(self, change: LeafChange) -> tuple[Blocker, ...]:
        problem: Blocker | None = None
        for attempt in range(TRIES_MAX):
            if attempt:
                await self._clock.sleep(self._limits.switch_poll_s * 2**attempt)
            try:
                seen = await self._look()
                if inside := tuple(list_occupied(seen, change.absent)):
                    return inside
                rest = _rest(change, seen.applied)
                if not rest.empty:
                    await self._revise(rest)
                await self._save()
                await self._until_proved(change)
            except PortError as error:
                problem = blocked(error, self.name)
            except _No as no:
                return (no.blocker,)
            else:
                return ()
        assert problem is not None
        return (problem,)

    # --- what is sent

    async def _revise(self, change: LeafChange) -> None:
        async def others_end() -> bool:
            return not cumulus.read_sent(await self._get(cumulus.REVISIONS_PATH))

        await self._until(others_end)  # of a writer that died; a switch that is stuck is tried
        revision = cumulus.read_revision_id(await self._ask(cumulus.new_revision()))
        if revision is None:
            raise Malformed("a new revision without a name")
        for path in change.unset:
            await self._ask(Ask("DELETE", _at_revision(path, revision)))
        if change.wanted:
            await self._ask(Ask("PATCH", _at_revision((), revision), change.wanted))
        await self._ask(cumulus.apply(revision))
        last: list[cumulus.RevisionState] = []

        async def ended() -> bool:
            read = cumulus.read_revision(await self._get(cumulus.revision_path(revision)))
            last[:] = [read] if read is not None else []
            return read is not None and not read.under_way

        if not await self._until(ended):
            raise self._no(Reason.SWITCH_REFUSED, f"revision {revision} does not end")
        if not last[0].applied:
            why = last[0].issue or "no reason given"
            words = f"revision {revision} is {last[0].state}: {why}"
            raise self._no(Reason.SWITCH_REFUSED, words)

    async def _until_proved(self, change: LeafChange) -> None:
        left: tuple[Blocker, ...] = ()

        async def holds() -> bool:
            nonlocal left
            seen = await self._look(change.present)
            left = find_unproved(change, seen)
            if not left and not _rest(change, seen.applied).empty:
                left = (self._no(Reason.ISOLATION, "what was applied is not there").blocker,)
            return not left

        if not await self._until(holds):
            raise _No(left[0])

    async def _save(self) -> None:
        """What is applied is what the switch starts with; whether it is so is seen later."""
        applied = await self._get(cumulus.tree_path("applied"))
        if applied != await self._get(cumulus.tree_path("startup")):
            await self._ask(cumulus.save())

    async def _until(self, holds: Callable[[], Awaitable[bool]]) -> bool:
        until = self._clock.now() + self._limits.switch_apply_limit_s
        while not await holds():
            if self._clock.now() >= until:
                return False
            await self._clock.sleep(self._limits.switch_poll_s)
        return True

    # --- what is read

    async def _look(self, wanted: Collection[str] = ()) -> SeenLeaf:
        applied = await self._get(cumulus.tree_path("applied"))
        saved = bool(applied == await self._get(cumulus.tree_path("startup")))
        vrfs = cumulus.read_names(await self._get(VRFS_PATH))
        listed = await self._get(INTERFACES_PATH)
        if not isinstance(applied, dict) or not vrfs or not isinstance(listed, dict):
            raise Malformed("no readable configuration, VRFs or interfaces")
        ports = {}
        for name, entry in listed.items():
            vrf = cumulus.read_vrf(entry)
            if vrf is None:
                raise Malformed(f"{name[:20]}: no readable operational state")
            ports[name] = vrf
        vnis = {vrf: await self._vnis(vrf) for vrf in sorted(set(wanted) & set(vrfs))}
        return SeenLeaf(self.name, applied, frozenset(vrfs), ports, vnis, saved)

    async def _vnis(self, vrf: str) -> frozenset[str]:
        """`nv show vrf VRF evpn`: what goes into the overlay, not what was asked."""
        path = f"{cumulus.PREFIX}/vrf/{quote(vrf, safe='')}/evpn?rev=operational"
        address = await self._address()
        reply = await self._transport.request(address, Call("GET", path, timeout_s=REQUEST_S))
        answer = reply.json() if reply.status == 200 else {}  # 404: no EVPN in it
        vnis = read_subtree(answer, ("vni",))
        return frozenset(map(str, vnis))

    async def _get(self, path: str) -> Any:
        return await self._ask(Ask("GET", path))

    async def _ask(self, ask: Ask) -> Any:
        address = await self._address()
        call = Call(ask.method, ask.path, ask.body, timeout_s=REQUEST_S)
        reply = await self._transport.request(address, call)
        if reply.status in (401, 403):
            # 403: the factory's password must be changed before the API does anything
            raise self._no(Reason.LOGIN_REFUSED, f"{ask.path}: status {reply.status}")
        if reply.status >= 300:
            detail = f"{ask.method} {ask.path}: {status_words(reply)}"
            raise self._no(Reason.SWITCH_REFUSED, detail)
        return reply.json() if reply.body else {}

    async def _address(self) -> SwitchAddress:
        address = await self._lookup()
        if isinstance(address, Blocker):
            raise _No(address)
        return address

    def _no(self, reason: Reason, detail: str) -> _No:
        return _No(
            Blocker(
                reason=reason,
                subject=self.name,
                detail="".join(c if c.isprintable() else " " for c in detail),
                unblock="Look at the switch's revisions and log, then ask again.",
            )
        )


def _rest(change: LeafChange, applied: Mapping[str, Any]) -> LeafChange:
    """What of a change is not there yet."""
    unset = tuple(p for p in change.unset if p[-1] in read_subtree(applied, p[:-1]))
    return replace(change, unset=unset, wanted=find_missing_tree(change.wanted, applied))


def _at_revision(path: Path, revision: str) -> str:
    words = "/".join(quote(word, safe="") for word in path)
    return f"{cumulus.PREFIX}/{words}?rev={quote(revision, safe='')}"
