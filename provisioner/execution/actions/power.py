"""The power of one host, switched and then observed. Each act may be repeated from any point."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.actions.once import blocked
from provisioner.model.alert import Signal
from provisioner.model.input_error import InputError
from provisioner.model.inventory import LeakDetector, Power
from provisioner.model.location import Outlet, OutletState
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.path.activation import check_outlets, check_outlets_on
from provisioner.planning.watch.leaks import (
    carry_detectors,
    drop_accepted,
    find_recorded_refusal,
    find_refusal,
    list_signals,
)
from provisioner.ports import Clock, PortError, Unreachable
from provisioner.ports.isolation import Pdu
from provisioner.settings import Settings
from provisioner.store.repositories.alerts import SqlAlertRepository
from provisioner.store.repositories.cohorts import SqlEvidenceRepository

INSIST_MAX = 6  # tries `poll_s` apart: two minutes, longer than a BMC is busy with a power request


@dataclass(frozen=True)
class Pace:
    """The clock and the limits of waiting for a power state; `subject` names the host."""

    clock: Clock
    poll_s: float
    limit_s: float
    subject: str


async def switch_off(host: Redfish, pace: Pace) -> Blocker | None:
    if await host.power() is Power.OFF:
        return None
    if (refused := await host.reset_system("ForceOff")) is not None:
        return refused
    return await _observe(host, pace, Power.OFF)


async def switch_on(host: Redfish, pace: Pace) -> Blocker | None:
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


# ------------------------------------------------------------------------------
# AC cycles by the outlets that feed a host, for BMCs without such an action.
#
# The proof is the BMC's silence: it answers just before, nothing answers while all outlets are off,
# and it answers again afterwards. A PDU that only claims to be off, a feed that is not on the list
# and an outlet of another machine all leave the BMC answering, and end with every outlet on again.


SILENT_READS = 3  # silent readings in a row that prove the loss of power: one may be a lost packet


@dataclass(frozen=True)
class Feeds:
    """The site's PDUs by name, and the rows of all nodes, read when they are needed.

    `find_leak` returns why a node gets no power, by what is on record: its detectors have none.
    `find_users` returns what is lost with an outlet beside nodes; it raises InputError.
    """

    pdus: Mapping[str, Pdu]
    read_nodes: Callable[[], Awaitable[Sequence[Node]]]
    find_leak: Callable[[str], Awaitable[Blocker | None]] | None = None
    find_users: Callable[[Sequence[str]], Mapping[str, str]] = lambda _: {}


async def check_users(feeds: Feeds, node: Node, nodes: Sequence[Node]) -> Blocker | None:
    """Return why others than the node keep its outlets from being switched off."""
    try:
        users = await asyncio.to_thread(feeds.find_users, [str(one) for one in node.outlets])
    except InputError as error:
        return Blocker(
            reason=Reason.NOT_OFFERED,
            subject=node.id,
            detail=f"what its outlets feed beside it is unknown: {error}"[:400],
            unblock="Correct that file, then retry the node.",
        )
    return check_outlets(node, nodes, feeds.pdus, users)


async def check_feeds(feeds: Feeds, node: Node, host: Redfish) -> Blocker | None:
    """Return why the outlets of a node cannot be cycled now; every outlet and the BMC are read."""
    refused = await check_users(feeds, node, await feeds.read_nodes())
    if refused is not None:
        return refused
    states = await read_outlets(feeds, node.outlets)
    if isinstance(states, Blocker):
        return states
    if (off := check_outlets_on(node.id, states)) is not None:
        return off
    if not await host.is_silent():
        return None
    return Blocker(
        reason=Reason.UNREACHABLE,
        subject=f"{node.id}/host",
        detail="its BMC does not answer, so that its silence would prove nothing",
        unblock="Look at the BMC and its network, then retry the node.",
    )


async def read_outlets(
    feeds: Feeds, outlets: Sequence[Outlet]
) -> dict[Outlet, OutletState] | Blocker:
    """Return the states of outlets, all read at once; the first refusal of a PDU otherwise."""
    answers = await read_each_outlet(feeds, outlets)
    states: dict[Outlet, OutletState] = {}
    for outlet, answer in zip(outlets, answers, strict=True):
        if isinstance(answer, Blocker):
            return answer
        states[outlet] = answer
    return states


async def read_each_outlet(feeds: Feeds, outlets: Sequence[Outlet]) -> list[OutletState | Blocker]:
    """Return the answer to each reading, in the order of the outlets."""
    return list(await asyncio.gather(*(_read_outlet(feeds, o) for o in outlets)))


async def cycle_outlets(
    feeds: Feeds,
    node: Node,
    host: Redfish,
    pace: Pace,
    settings: Settings,
    returned: Callable[[], Awaitable[Blocker | None]],
) -> Blocker | None:
    """Remove the power of all feeds at once and restore it; the host is on afterwards."""
    if (refused := await check_feeds(feeds, node, host)) is not None:
        return refused
    if (leaking := await host.admit_act()) is not None:
        return leaking
    if (stuck := await switch_off(host, pace)) is not None:
        return stuck
    problem = await _switch_all(feeds, node.outlets, pace, settings, on=False)
    if problem is None:
        problem = await _prove_silence(host, pace, settings)
    by_hand = "Then switch these outlets on by hand, and retry the node."
    if (wet := await find_leak(feeds, node.id, node.outlets, by_hand)) is not None:
        return wet
    if (stays_off := await restore_outlets(feeds, node.outlets, pace, settings)) is not None:
        return stays_off
    if (silent := await returned()) is not None:
        return problem or silent
    started = await switch_on(host, pace)
    return problem or started


async def find_leak(
    feeds: Feeds, node_id: str, outlets: Sequence[Outlet], remedy: str
) -> Blocker | None:
    """Return why these outlets stay off: a leak was recorded meanwhile.

    `remedy` says how they are switched on once the leak is over.
    """
    leak = None if feeds.find_leak is None else await feeds.find_leak(node_id)
    if leak is None:
        return None
    names = ", ".join(map(str, outlets))
    return leak.model_copy(
        update={
            "detail": f"the outlets {names} stay off: {leak.detail}"[:400],
            "unblock": f"{leak.unblock} {remedy}",
        }
    )


async def restore_outlets(
    feeds: Feeds, outlets: Sequence[Outlet], pace: Pace, settings: Settings
) -> Blocker | None:
    """Switch outlets on, and insist: only a wet host is better off without power (`find_leak`)."""
    problem: Blocker | None = None
    for _ in range(INSIST_MAX):
        problem = await _switch_all(feeds, outlets, pace, settings, on=True)
        if problem is None:
            return None
        await pace.clock.sleep(pace.poll_s)
    assert problem is not None
    names = ", ".join(map(str, outlets))
    return problem.model_copy(
        update={
            "detail": f"outlets may still be off: {problem.detail}"[:400],
            "unblock": f"Switch the outlets {names} on by hand, then retry the node.",
        }
    )


async def _switch_all(
    feeds: Feeds, outlets: Sequence[Outlet], pace: Pace, settings: Settings, *, on: bool
) -> Blocker | None:
    """Switch all outlets at once, and read until each reports the state."""
    asked = OutletState.ON if on else OutletState.OFF
    refusals = await asyncio.gather(*(_switch_outlet(feeds, o, on=on) for o in outlets))
    until = pace.clock.now() + settings.outlets_limit_s
    while True:
        states = await read_outlets(feeds, outlets)
        if not isinstance(states, Blocker) and set(states.values()) == {asked}:
            return None
        if pace.clock.now() >= until:
            break
        await pace.clock.sleep(min(pace.poll_s, settings.outlets_limit_s / 6))
    refused = next((r for r in refusals if r is not None), None)
    if refused is not None or isinstance(states, Blocker):
        return refused if refused is not None or not isinstance(states, Blocker) else states
    wrong = ", ".join(f"{o} reports {s}" for o, s in states.items() if s is not asked)
    return Blocker(
        reason=Reason.POWER,
        subject=pace.subject,
        detail=f"{asked} was requested of all its outlets, and {wrong}",
        unblock="Look at the PDU: its log, its locks and its outlet groups.",
    )


async def _prove_silence(host: Redfish, pace: Pace, settings: Settings) -> Blocker | None:
    """Wait until nothing answers at the BMC's address, and for the whole pause after that."""
    if not await _falls_silent(host, pace, settings.outlets_silence_limit_s):
        return _describe_answer(pace, f"{settings.outlets_silence_limit_s:g} s later")
    until = pace.clock.now() + settings.outlets_off_s
    while pace.clock.now() < until:
        await pace.clock.sleep(min(pace.poll_s, max(until - pace.clock.now(), 0.1)))
        if not await host.is_silent():
            return _describe_answer(pace, "within the pause")
    return None


async def _falls_silent(host: Redfish, pace: Pace, limit_s: float) -> bool:
    until = pace.clock.now() + limit_s
    silent = 0
    while silent < SILENT_READS:
        if pace.clock.now() >= until and not silent:
            return False
        silent = silent + 1 if await host.is_silent() else 0
        await pace.clock.sleep(min(pace.poll_s / 4, limit_s / 12))
    return True


def _describe_answer(pace: Pace, when: str) -> Blocker:
    return Blocker(
        reason=Reason.POWER,
        subject=pace.subject,
        detail=f"its outlets report off, and its BMC still answers {when}",
        unblock="Compare the cords of the host with `outlets` of the hardware list: a feed is "
        "missing there, an outlet is another machine's, or the PDU does not switch.",
    )


async def _read_outlet(feeds: Feeds, outlet: Outlet) -> OutletState | Blocker:
    try:
        return await feeds.pdus[outlet.pdu].read_outlet(outlet.outlet)
    except PortError as error:
        return blocked(error, f"pdu {outlet}")


async def _switch_outlet(feeds: Feeds, outlet: Outlet, *, on: bool) -> Blocker | None:
    try:
        return await feeds.pdus[outlet.pdu].switch_outlet(outlet.outlet, on=on)
    except PortError as error:
        return blocked(error, f"pdu {outlet}")


# ------------------------------------------------------------------------------
# The gate before each act that energises a host: power, boot, an image. A wet host gets none.


Report = Callable[[str, Sequence[Signal]], Awaitable[object]]
SOURCE = "leaks/host"


class LeakGate:
    """`report` takes in alerts; without `alerts` only readings count.

    `evidence` has the inventory of each host: a detector that it names and that is not shown any
    more has no reading.
    """

    def __init__(
        self,
        clock: Clock,
        alerts: SqlAlertRepository | None = None,
        evidence: SqlEvidenceRepository | None = None,
        report: Report | None = None,
    ) -> None:
        self._clock = clock
        self._alerts = alerts
        self._evidence = evidence
        self._report = report

    async def admit_act(self, node: str, detectors: Sequence[LeakDetector]) -> Blocker | None:
        """Return why no act may be sent to this host now, by its detectors and its alerts."""
        detectors = await self.complete(node, detectors)
        await self.record_leaks(node, detectors)
        alerts = () if self._alerts is None else await self._alerts.list(node)
        return find_refusal(node, detectors, alerts)

    async def complete(
        self, node: str, detectors: Sequence[LeakDetector]
    ) -> tuple[LeakDetector, ...]:
        """Return the readings, and an unreadable one for each known detector that is not shown."""
        last = None if self._evidence is None else await self._evidence.get_inventory(node)
        carried = carry_detectors(() if last is None else last.leaks, detectors)
        alerts = () if self._alerts is None else await self._alerts.list(node)
        return drop_accepted(carried, alerts)

    async def find_recorded(self, node: str) -> Blocker | None:
        """Return why a host without power gets none back, by its alerts alone."""
        alerts = () if self._alerts is None else await self._alerts.list(node)
        return find_recorded_refusal(node, alerts)

    async def record_leaks(self, node: str, detectors: Sequence[LeakDetector]) -> None:
        """Raise an alert for each detector that is not dry."""
        signals = list_signals(node, detectors, SOURCE, self._clock.now())
        if signals and self._report is not None:
            await self._report(node, signals)
