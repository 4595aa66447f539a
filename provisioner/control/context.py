"""What every controller of a daemon shares: the store, the clock, the settings, the telemetry."""

from __future__ import annotations

from dataclasses import dataclass, replace

from provisioner.ports import Clock, Store
from provisioner.ports.telemetry import SILENCE, Telemetry
from provisioner.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    """One frozen instance goes to all controllers of a daemon."""

    store: Store
    clock: Clock
    settings: Settings
    telemetry: Telemetry = SILENCE

    def with_clock(self, clock: Clock) -> Context:
        """Return the same context with another clock, such as one that waits for the time."""
        return replace(self, clock=clock)
