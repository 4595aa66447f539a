"""One reading of a node by a daemon that observes, and the acts that it would carry out."""

from __future__ import annotations

from provisioner.model.base import Record
from provisioner.model.node import State
from provisioner.model.outcome import Blocker
from provisioner.model.times.instant import Instant


class PlannedStep(Record):
    """A step of the plan, in words; `provisioner node plan-requests` lists its requests."""

    title: str
    method: str
    reason: str


class Observation(Record):
    """The readings of one node at one time. An empty list: nothing speaks against the node."""

    node: str
    at: Instant
    state: State  # in the rows; an observing daemon does not change it
    vrfs: tuple[str, ...] = ()  # in which its ports were read
    would: tuple[str, ...] = ()  # acts that a daemon with every capability would carry out now
    steps: tuple[PlannedStep, ...] = ()
    resets: int = 0
    duration_s: int = 0
    plan_blockers: tuple[Blocker, ...] = ()  # why the target release cannot be reached
    ports: tuple[Blocker, ...] = ()  # ports against the rows of the node and its tenant
    cabling: tuple[Blocker, ...] = ()  # cables against the plan
    health: tuple[str, ...] = ()  # conditions that the BMCs report
    certificate: tuple[Blocker, ...] = ()  # why a certificate would be refused, or is invalid
    unread: tuple[Blocker, ...] = ()  # sources that gave no answer
