"""What is told of work while it is done, to whoever measures it: metrics, traces, or nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from provisioner.model.outcome import Blocker
from provisioner.model.plan import Plan, Step
from provisioner.ports.errors import PortError
from provisioner.ports.wire import Call, Reply


class Telemetry(Protocol):
    """Never waits, never raises, and changes nothing of what it is told of."""

    def step(self, operation: str, node: str, step: Step) -> AbstractContextManager[list[Blocker]]:
        """Around a step; what stood in its way is put into the list before it ends."""
        ...

    def plan(self) -> AbstractContextManager[list[Plan]]:
        """Around the making of a plan, which is put into the list."""
        ...

    def request(self, url: str, call: Call, seconds: float, reply: Reply | PortError) -> None:
        """One exchange with the BMC at `url`, without the wait for its turn."""
        ...


class Silence:
    """Nobody measures: what a daemon does unless it is told otherwise."""

    @contextmanager
    def step(self, operation: str, node: str, step: Step) -> Iterator[list[Blocker]]:
        yield []

    @contextmanager
    def plan(self) -> Iterator[list[Plan]]:
        yield []

    def request(self, url: str, call: Call, seconds: float, reply: Reply | PortError) -> None:
        return


SILENCE = Silence()
