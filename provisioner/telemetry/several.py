"""Telemetry to several receivers at the same time: metrics and traces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from provisioner.model.outcome import Blocker
from provisioner.model.plan import Plan, Step
from provisioner.ports import Call, PortError, Reply
from provisioner.ports.telemetry import Telemetry


class TelemetryFanout:
    """A `ports.Telemetry` that forwards each event to all of `parts`."""

    def __init__(self, parts: Sequence[Telemetry]) -> None:
        self._parts = tuple(parts)

    @contextmanager
    def step(self, operation: str, node: str, step: Step) -> Iterator[list[Blocker]]:
        problems: list[Blocker] = []
        with ExitStack() as stack:
            receivers = [stack.enter_context(p.step(operation, node, step)) for p in self._parts]
            yield problems
            for each in receivers:
                each.extend(problems)

    @contextmanager
    def plan(self) -> Iterator[list[Plan]]:
        made: list[Plan] = []
        with ExitStack() as stack:
            receivers = [stack.enter_context(p.plan()) for p in self._parts]
            yield made
            for each in receivers:
                each.extend(made)

    def request(self, url: str, call: Call, seconds: float, reply: Reply | PortError) -> None:
        for part in self._parts:
            part.request(url, call, seconds, reply)
