"""The power of one host, switched and then observed. Each act may be repeated from any point."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from provisioner.adapters.redfish.client import Redfish
from provisioner.model.inventory import Power
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Clock, PortError, Unreachable

INSIST_MAX = 6  # tries `poll_s` apart: two minutes, longer than a BMC is busy with a power request


@dataclass(frozen=True)
class Pace:
    """The clock and the limits of waiting for a power state; `subject` names the host."""

    clock: Clock
    poll_s: float
    limit_s: float
    subject: str


async def switch_off(host: Redfish, pace: Pace) -> Blocker | None:
    """Switch the host off, and observe that it is off."""
    if await host.power() is Power.OFF:
        return None
    if (refused := await host.reset_system("ForceOff")) is not None:
        return refused
    return await _observe(host, pace, Power.OFF)


async def switch_on(host: Redfish, pace: Pace) -> Blocker | None:
    """Switch the host on, and observe that it is on."""

    async def ask() -> Blocker | None:
        on = await host.power() is Power.ON
        return None if on else await host.reset_system("On")

    refused = await insist(ask, pace)
    return refused if refused is not None else await _observe(host, pace, Power.ON)


async def cycle_standby(
    host: Redfish, pace: Pace, returned: Callable[[], Awaitable[Blocker | None]]
) -> Blocker | None:
    """Remove standby power and restore it; the host is off before, and on afterwards.

    `returned` waits until the BMC answers again, and returns why it does not.
    """
    offered = await host.find_ac_cycle()
    if isinstance(offered, Blocker):
        return offered  # a host that runs is not switched off for nothing
    if (wet := await host.admit_act()) is not None:
        return wet
    if (stuck := await switch_off(host, pace)) is not None:
        return stuck
    if (refused := await insist(host.ac_cycle, pace)) is not None:
        await switch_on(host, pace)  # the versions of a host that stays off cannot be read
        return refused
    if (silent := await returned()) is not None:
        return silent
    return await switch_on(host, pace)


async def insist(ask: Callable[[], Awaitable[Blocker | None]], pace: Pace) -> Blocker | None:
    """Repeat an act in the midst of a reset that did not begin: the host is off.

    A lost answer is never reported as "not executed" here, because the acts before it were
    executed.
    """
    for tries_left in reversed(range(INSIST_MAX)):
        try:
            refused = await ask()
            if refused is None or refused.reason is not Reason.BUSY or not tries_left:
                return refused
        except Unreachable as error:
            if error.maybe_executed or not tries_left:
                raise Unreachable(str(error), maybe_executed=True) from error
        await pace.clock.sleep(pace.poll_s)
    raise AssertionError("the last try returns or raises")


async def _observe(host: Redfish, pace: Pace, expected: Power) -> Blocker | None:
    until = pace.clock.now() + pace.limit_s
    state = Power.UNKNOWN
    while pace.clock.now() < until:
        try:
            state = await host.power()
        except PortError:
            state = Power.UNKNOWN
        if state is expected:
            return None
        await pace.clock.sleep(pace.poll_s / 4)
    return Blocker(
        reason=Reason.POWER,
        subject=pace.subject,
        detail=f"the power state is {state}, {expected} was asked for",
        unblock="Look at the power supplies and the BMC's event log.",
    )
