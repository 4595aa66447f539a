"""The status of the watch over serving nodes: which BMCs send events, which are polled, which are
silent.

It is the daemon's memory, for people to read; no decision uses it.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant, InstantOrNone


class Way(StrEnum):
    """The way in which a BMC's events reach the daemon. Every BMC is polled and swept in
    addition.
    """

    STREAM = "stream"  # server-sent events, connected now
    STREAM_BROKEN = "stream broken"  # the daemon connects again
    SUBSCRIPTION = "subscription"  # it posts to our listener, and an event has arrived
    UNPROVED = "subscription unproved"  # it accepted our subscription, and no event has arrived
    POLLED = "polled"  # it offers no usable way, or was not asked yet


class WatchedBmc(Record):
    """One BMC of a serving node. Times in seconds, Unix; 0: never."""

    bmc: str
    way: Way
    heard_at: InstantOrNone = 0.0  # the newest answer or event
    reports: int = 0  # metric reports that are polled


class WatchedNode(Record):
    """One serving node."""

    node: str
    looked_at: InstantOrNone = 0.0  # the newest reading of all of its BMCs
    bmcs: tuple[WatchedBmc, ...] = ()
    ports: int = 0  # cabled to leaves
    counted: int = 0  # of these, the ports whose carrier the leaf reports
    counters_at: InstantOrNone = 0.0  # when the newest counters of its ports were pushed


class WatchStatus(Record):
    """The whole watch."""

    at: Instant
    every_s: float = 30.0  # interval until the next one
    listener: bool = False  # whether a BMC can post to us
    requests_per_s: float = 0.0  # the budget
    requests: int = 0  # used of it since the daemon began
    routine: bool = True  # False: an overloaded daemon postpones routine reads
    nodes: tuple[WatchedNode, ...] = ()
    leaves: dict[str, InstantOrNone] = Field(
        default_factory=dict
    )  # leaf -> when its ports were last counted
    # as the watch of leaves last read them; "leaf/port" -> why it is in a customer's network and is
    # not moved
    listed_ports: dict[str, str] = Field(default_factory=dict)
    # leaf -> time of reading all its ports
    leaf_ports_read: dict[str, InstantOrNone] = Field(default_factory=dict)
