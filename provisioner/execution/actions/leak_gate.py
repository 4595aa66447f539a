"""The gate before each act that energises a host: power, boot, an image. A wet host gets none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from provisioner.model.alert import Signal
from provisioner.model.inventory import LeakDetector
from provisioner.model.outcome import Blocker
from provisioner.planning.watch.leaks import (
    carry_detectors,
    drop_accepted,
    find_recorded_refusal,
    find_refusal,
    list_signals,
)
from provisioner.ports import AlertRepository, Clock
from provisioner.ports.repositories import EvidenceRepository

Report = Callable[[str, Sequence[Signal]], Awaitable[object]]
SOURCE = "leaks/host"


class LeakGate:
    """`report` takes in alerts, once a watch is there; without `alerts` only readings count.

    `evidence` has the inventory of each host: a detector that it names and that is not shown any
    more has no reading.
    """

    def __init__(
        self,
        clock: Clock,
        alerts: AlertRepository | None = None,
        evidence: EvidenceRepository | None = None,
    ) -> None:
        self._clock = clock
        self._alerts = alerts
        self._evidence = evidence
        self.report: Report | None = None

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
        if signals and self.report is not None:
            await self.report(node, signals)
