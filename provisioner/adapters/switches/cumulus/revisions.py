"""Changes of one switch as NVUE revisions: opened, filled, applied, awaited, saved.

A revision whose number got lost changes nothing and is left alone. One of a writer that died is
awaited first, because a revision is made on the configuration that is about to change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from provisioner.adapters.switches.cumulus import nvue_calls
from provisioner.adapters.switches.cumulus.nvue_calls import Ask, RevisionState
from provisioner.adapters.switches.cumulus.nvue_line import NvueLine
from provisioner.model.outcome import Reason
from provisioner.ports import Clock, Malformed
from provisioner.ports.switch import SwitchRefused
from provisioner.settings import Settings

# A look comes late by at most this part of the time waited, so that polling costs a tenth of the
# switch's own time and some thirty requests until the longest pause is reached.
LATE = 0.1
# The look at which a revision that is still pending is compared with what is applied; most have
# begun by then, and the whole tree is not read for them.
EQUAL_LOOK = 3


class Revisions:
    """The revisions of one switch. Methods raise `PortError`."""

    def __init__(self, line: NvueLine, clock: Clock, limits: Settings) -> None:
        self._line = line
        self._clock = clock
        self._limits = limits

    async def send(self, fill: Callable[[str], Iterable[Ask]]) -> str:
        """Open a revision, fill it, and begin to apply it; return its name."""
        await self._await_others()
        revision = nvue_calls.read_revision_id(await self._line.ask(nvue_calls.new_revision()))
        if revision is None:
            raise Malformed("a new revision without a name")
        for ask in fill(revision):
            await self._line.ask(ask)
        await self._line.ask(nvue_calls.apply(revision))
        return revision

    async def apply(self, fill: Callable[[str], Iterable[Ask]]) -> str:
        """Send a revision and await its end; return its name when the switch has applied it."""
        revision = await self.send(fill)
        states: list[RevisionState] = []
        looks = 0

        async def has_ended() -> bool:
            nonlocal looks
            looks += 1
            path = nvue_calls.revision_path(revision)
            state = nvue_calls.read_revision(await self._line.get(path))
            states[:] = [state] if state is not None else []
            has_not_begun = state is not None and state.state == "pending"
            if has_not_begun and looks == EQUAL_LOOK and await self._equals_applied(revision):
                states[:] = [RevisionState("applied", "")]
                return True
            return state is not None and not state.under_way

        if not await self._poll(has_ended):
            raise SwitchRefused(Reason.SWITCH_REFUSED, f"revision {revision} does not end")
        if not states[0].applied:
            detail = f"revision {revision} is {states[0].state}"
            detail += f": {states[0].issue or 'no reason given'}"
            raise SwitchRefused(Reason.SWITCH_REFUSED, detail)
        return revision

    async def _equals_applied(self, revision: str) -> bool:
        """Return whether a revision would change nothing: some releases leave it pending then."""
        one, other = await asyncio.gather(
            *(self._line.get(nvue_calls.tree_path(tree)) for tree in (revision, "applied"))
        )
        return isinstance(one, dict) and bool(one) and one == other

    async def is_saved(self) -> bool:
        """Return whether the switch would start with the applied configuration."""
        applied, startup = await asyncio.gather(
            *(self._line.get(nvue_calls.tree_path(tree)) for tree in ("applied", "startup"))
        )
        return bool(applied == startup)

    async def save(self) -> None:
        """Make the applied configuration that of the next start."""
        await self._line.ask(nvue_calls.save())

    async def _await_others(self) -> None:
        """Wait for a revision of a writer that died, at most for `switch_apply_limit_s`.

        A switch that is stuck gets the change all the same.
        """
        until = self._clock.now() + self._limits.switch_apply_limit_s
        while nvue_calls.read_sent(await self._line.get(nvue_calls.REVISIONS_PATH)):
            if self._clock.now() >= until:
                return
            await self._clock.sleep(self._limits.switch_poll_s / 5)

    async def _poll(self, holds: Callable[[], Awaitable[bool]]) -> bool:
        """Poll until it holds, at most `switch_apply_limit_s`; pauses grow with the time waited."""
        began = self._clock.now()
        longest = self._limits.switch_poll_s
        while not await holds():
            waited = self._clock.now() - began
            if waited >= self._limits.switch_apply_limit_s:
                return False
            await self._clock.sleep(min(longest, max(longest / 5, waited * LATE)))
        return True
