"""What every controller of a daemon shares: the store, the clock, the settings, the telemetry."""

from __future__ import annotations

from dataclasses import dataclass, replace

from provisioner.model.adoption.capability import Capability
from provisioner.model.node import Node
from provisioner.ports import Clock, Store
from provisioner.ports.telemetry import SILENCE, Telemetry
from provisioner.runtime.capability_gate import CapabilityGate, Need
from provisioner.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    """One frozen instance goes to all controllers of a daemon."""

    store: Store
    clock: Clock
    settings: Settings
    telemetry: Telemetry = SILENCE
    gate: CapabilityGate | None = None  # of the daemon; None: made when it is needed

    def get_gate(self) -> CapabilityGate:
        """Return the gate of capabilities."""
        return self.gate or CapabilityGate(self.store, self.clock)

    async def refuse_act(self, node: Node, capability: Capability, act: str) -> str:
        """Return why a decision may not be begun on a node for want of a capability; "" if it may.

        A refused one is recorded as an act that would be carried out.
        """
        gate = self.get_gate()
        why = await gate.find_refusal(node, capability)
        if why:
            await gate.note_would(Need(node, capability, act), why)
        return why

    def with_clock(self, clock: Clock) -> Context:
        """Return the same context with another clock, such as one that waits for the time."""
        return replace(self, clock=clock)
