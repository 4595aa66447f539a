"""One switch as the store has it now: its address, its credential and the adapter of its system.

An address is looked up again after some seconds, and after each failure, because its credential may
have been changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from provisioner.execution.actions.once import blocked
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import (
    Clock,
    PortError,
    Switch,
    SwitchAddress,
    Switches,
    SwitchRefused,
)
from provisioner.settings import Settings

ADDRESS_S = 10.0

Lookup = Callable[[], Awaitable[SwitchAddress | Blocker]]


class SwitchSource:
    """Opens one switch. `open` raises `SwitchRefused` where there is no address."""

    def __init__(
        self, name: str, lookup: Lookup, switches: Switches, clock: Clock, settings: Settings
    ) -> None:
        self.name = name
        self._lookup = lookup
        self._switches = switches
        self._clock = clock
        self._settings = settings
        self._opened: Switch | None = None
        self._until = 0.0

    async def open(self) -> Switch:
        """Return the switch at its present address."""
        if self._opened is None or self._clock.now() >= self._until:
            self._opened = None
            address = await self._lookup()
            if isinstance(address, Blocker):
                raise SwitchRefused(address.reason, address.detail)
            self._opened = self._switches.open(self.name, address, self._clock, self._settings)
            self._until = self._clock.now() + ADDRESS_S
        return self._opened

    def describe(self, problem: PortError) -> Blocker:
        """Return a failure as a value; the address is looked up again after a silence or a refused
        login.
        """
        login = problem.reason is Reason.LOGIN_REFUSED
        if login or not isinstance(problem, SwitchRefused):
            self._opened = None
        if isinstance(problem, SwitchRefused):
            return describe_refusal(self.name, problem)
        return blocked(problem, self.name)


def describe_refusal(subject: str, refused: SwitchRefused) -> Blocker:
    """Return a switch's refusal as a value."""
    return Blocker(
        reason=refused.reason,
        subject=subject,
        detail=str(refused),
        unblock="Look at the switch's changes and log; it is tried again by itself.",
    )
