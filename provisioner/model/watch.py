"""How the watch over serving nodes stands: who tells by itself, who is asked, what nobody tells.

It is the daemon's memory, for people to look at; nothing is decided by it.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record


class Way(StrEnum):
    """How a BMC's news come to us. Glances and sweeps are made of all of them."""

    STREAM = "stream"  # server-sent events, connected now
    STREAM_BROKEN = "stream broken"  # it is tried again
    SUBSCRIPTION = "subscription"  # it posts to our listener, and something came through
    UNPROVED = "subscription unproved"  # it took our subscription, and nothing came through
    POLLED = "polled"  # it offers no way that we may use, or was not asked yet


class WatchedBmc(Record):
    """One BMC of a serving node. Times in seconds, Unix; 0: never."""

    bmc: str
    way: Way
    heard_at: float = 0.0  # the newest answer or event
    reports: int = 0  # metric reports that are polled


class WatchedNode(Record):
    """One serving node."""

    node: str
    looked_at: float = 0.0  # the newest glance at all of its BMCs
    bmcs: tuple[WatchedBmc, ...] = ()
    ports: int = 0  # cabled to leaves
    counted: int = 0  # of these, whose carrier the leaf tells
    counters_at: float = 0.0  # when the newest counters of its ports were pushed


class WatchStatus(Record):
    """The whole watch."""

    at: float
    every_s: float = 30.0  # the next one comes after so long
    listener: bool = False  # whether anything can be posted to us
    requests_per_s: float = 0.0  # the budget
    requests: int = 0  # of it, since the daemon began
    routine: bool = True  # False: an overloaded daemon puts routine looks off
    nodes: tuple[WatchedNode, ...] = ()
    leaves: dict[str, float] = Field(
        default_factory=dict
    )  # leaf -> when its ports were last counted
