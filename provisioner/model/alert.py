"""Alerts about serving nodes, identified by (id, target, classification) as in NICo.

An alert states an observed condition and its source. Consequences are derived from its
classifications alone (`planning/watch/alerts.py`), never from its message.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.times.instant import Instant, InstantOrNone

# ------------------------------------------------------------------------------
# The status of the watch over serving nodes: which BMCs send events, which are polled, which are
# silent.
#
# It is the daemon's memory, for people to read; no decision uses it.


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


ANY = "*"  # of an override: every id, or every target, of the node


class Classification(StrEnum):
    """The meaning of an alert. A closed list: the first five are NICo's names, the others are
    ours.
    """

    PREVENT_ALLOCATIONS = "PreventAllocations"  # no tenant gets the node while the alert is active
    HARDWARE = "Hardware"
    SENSOR_WARNING = "SensorWarning"
    SENSOR_CRITICAL = "SensorCritical"
    SENSOR_FAILURE = "SensorFailure"
    FATAL_EVENT = "FatalEvent"  # an error that a healthy part does not have
    DRIFT = "Drift"  # a running version differs from the certified one
    PART_SWAP = "PartSwap"  # a part differs from the certified one
    LEAK = "Leak"  # coolant in a host: no power, boot or image until a person clears it
    LINK = "Link"  # a port flaps, drops, or its queue is stuck
    CERTIFICATE_AGE = "CertificateAge"  # the certificate expires soon, or has expired
    ATTESTATION = "Attestation"  # signed evidence of firmware is missing, or differs
    UNOBSERVED = "Unobserved"  # the BMC has been silent for long: the node's state is unknown


class Signal(Record):
    """One report that a condition is present (`active`) or over. `at` is in Unix seconds."""

    node: str
    id: str
    target: str  # the part: "GPU_SXM_5", "DPU_1/p0", "bluefield.nic/DPU_1"; "" is the node
    classifications: tuple[Classification, ...] = ()
    message: str = ""
    source: str  # the reporter: "redfish/host", "watch", "alertmanager:site"
    at: float
    active: bool = True


class Alert(Record):
    """One condition of one target of one node, with a short history."""

    node: str
    id: str
    target: str
    classifications: tuple[Classification, ...] = ()
    message: str = ""
    source: str
    since: float  # when it was last raised
    last_at: float  # of the newest report that the condition is present
    count: int = 1  # reports since it was first raised
    cleared_at: float = 0.0  # 0: it is active
    cleared_why: str = ""
    raises: tuple[float, ...] = ()  # the latest times at which it was raised, oldest first
    flapping: bool = False  # raised repeatedly: it stays active until it has been quiet for a while
    quiet_since: float = 0.0  # of a flapping one: when it was last reported as over; 0: it was not

    @property
    def key(self) -> tuple[str, str, str]:
        """Return the identity of the alert: node, id and target."""
        return (self.node, self.id, self.target)

    @property
    def active(self) -> bool:
        """Return whether the alert is active, which means not cleared."""
        return self.cleared_at == 0.0


class Override(Record):
    """An operator's decision that an alert has no effect until a given time. It expires by
    itself.
    """

    node: str
    id: str  # or ANY
    target: str  # or ANY
    by: str
    why: str
    made_at: float
    until: float


class Subscription(Record):
    """An event subscription of ours at a BMC, written before it is made so that none is lost."""

    id: str  # last part of the destination, unguessable
    node: str
    bmc: str
    path: str = ""  # at the BMC; "": it may or may not have been made
    context: str  # SHA-256 of the secret that the BMC sends with every event
    destination: str
    made_at: float
    delivers: bool = False  # an event arrived since it was made, and since it was last tested
