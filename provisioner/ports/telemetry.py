"""Measurement of work while it is done, by metrics, by traces, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from provisioner import components
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Plan, Step, StepKind
from provisioner.ports.errors import PortError
from provisioner.ports.wire import Call, Reply


class Telemetry(Protocol):
    """Receives measurements. It never waits, never raises, and changes none of its arguments."""

    def step(self, operation: str, node: str, step: Step) -> AbstractContextManager[list[Blocker]]:
        """Measure a step; the caller puts the blockers into the list before it ends."""
        ...

    def plan(self) -> AbstractContextManager[list[Plan]]: ...

    def request(self, url: str, call: Call, seconds: float, reply: Reply | PortError) -> None:
        """Record one exchange with the BMC at `url`, without the wait for its turn."""
        ...


class Silence:
    """Telemetry that measures nothing: the default of a daemon."""

    @contextmanager
    def step(self, operation: str, node: str, step: Step) -> Iterator[list[Blocker]]:
        yield []

    @contextmanager
    def plan(self) -> Iterator[list[Plan]]:
        yield []

    def request(self, url: str, call: Call, seconds: float, reply: Reply | PortError) -> None:
        return


SILENCE = Silence()


def name_component(step: Step) -> str:
    """Return what a step is of, from a closed list: a component's kind, the reset of an activation,
    or "other".
    """
    if step.kind is StepKind.ACTIVATE:
        return step.activation.value
    return step.component if step.component in components.ALL else "other"


class Metrics(Protocol):
    """Counts what is measured, and serves it to scrapers."""

    @property
    def recorder(self) -> Telemetry:
        """The receiver that counts."""
        ...

    def serve(
        self,
        data: Path,
        store: Any,
        queues: Callable[[], Mapping[str, tuple[float, float]]],
        keys: Any,
    ) -> AbstractAsyncContextManager[str]:
        """Serve them while entered; it gives their URL.

        `store` and `keys` are the daemon's own; `queues` gives (length, limit) by name, 0 for none.
        """
        ...
