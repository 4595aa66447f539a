"""A command of a simulated agent as work: how long it takes, and what happens at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from provisioner.sim.hardware.machine import Machine

Json = dict[str, Any]
Fetch = Callable[[str, Callable[[bytes | None], None]], None]  # url, called with what came


class Failed(Exception):
    """A command ends FAILED with {type, code, message, details} (the agent's errors.py)."""

    def __init__(self, kind: str, message: str, details: str, code: int = 500) -> None:
        super().__init__(details)
        self.error = {"type": kind, "code": code, "message": message, "details": details}


class Work(NamedTuple):
    """A command that was taken on."""

    takes_s: float
    finish: Callable[[float], Any]  # called with the time; its result, or raises Failed
    sync: bool = False  # answered when it is done
    begin: Callable[[float], None] = lambda _now: None


@dataclass
class Ramdisk:
    """What the commands of one boot work on."""

    machine: Machine
    fetch: Fetch
    node: Json = field(default_factory=dict)  # as the last command that named it
    jobs: dict[str, Json] = field(default_factory=dict)  # erasures that were done, by job


Act = Callable[[Ramdisk, Mapping[str, Any]], Work]
