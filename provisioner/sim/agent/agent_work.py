"""One command of a simulated agent: how long it takes, and its effect at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from provisioner.sim.hardware.machine import Machine

Json = dict[str, Any]
Fetch = Callable[[str, Callable[[bytes | None], None]], None]  # URL, called with the bytes or None


class Failed(Exception):
    """A command ends as FAILED with {type, code, message, details} (the agent's errors.py)."""

    def __init__(self, kind: str, message: str, details: str, code: int = 500) -> None:
        super().__init__(details)
        self.error = {"type": kind, "code": code, "message": message, "details": details}


class Work(NamedTuple):
    """A command that the agent accepted."""

    takes_s: float
    finish: Callable[[float], Any]  # called with the time; its result, or raises Failed
    sync: bool = False  # answered only when it is done
    begin: Callable[[float], None] = lambda _now: None
    # whether it goes on after `takes_s`: a download takes real time, however fast the clock runs
    is_pending: Callable[[], bool] = lambda: False


@dataclass
class Ramdisk:
    """The state of one boot that commands read and change."""

    machine: Machine
    fetch: Fetch
    node: Json = field(default_factory=dict)  # from the last command that named it
    jobs: dict[str, Json] = field(default_factory=dict)  # completed erasures by job


Act = Callable[[Ramdisk, Mapping[str, Any]], Work]
