"""What was noticed of a node while it serves: alerts are (id, target, classification), as in NICo.

Rule: an alert states what was seen and by whom; what follows from it is decided by its
classifications alone (`planning/watch/alerts.py`), never by its words.
"""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.base import Record

ANY = "*"  # of an override: every id, or every target, of the node


class Classification(StrEnum):
    """What an alert means. Closed; the first five are NICo's words, the others are ours."""

    PREVENT_ALLOCATIONS = "PreventAllocations"  # the node is given to no tenant while it stands
    HARDWARE = "Hardware"
    SENSOR_WARNING = "SensorWarning"
    SENSOR_CRITICAL = "SensorCritical"
    SENSOR_FAILURE = "SensorFailure"
    FATAL_EVENT = "FatalEvent"  # an error that a healthy part does not have
    DRIFT = "Drift"  # a pinned version is not what was certified
    PART_SWAP = "PartSwap"  # a part is not the one that was certified
    LINK = "Link"  # a port flaps, drops, or its queue is stuck
    CERTIFICATE_AGE = "CertificateAge"  # it expires soon, or has
    UNOBSERVED = "Unobserved"  # a BMC that was silent for long: nothing is known any more


class Signal(Record):
    """One report of a condition: that it stands, or that it is over. `at` in seconds, Unix."""

    node: str
    id: str
    target: str  # the part: "GPU_SXM_5", "DPU_1/p0", "bluefield.nic/DPU_1"; "" is the node
    classifications: tuple[Classification, ...] = ()
    message: str = ""
    source: str  # "redfish/host", "watch", "alertmanager:site": who reports
    at: float
    active: bool = True


class Alert(Record):
    """One condition of one target of one node, with its history in short."""

    node: str
    id: str
    target: str
    classifications: tuple[Classification, ...] = ()
    message: str = ""
    source: str
    since: float  # when it was raised, the last time
    last_at: float  # of the newest report that it stands
    count: int = 1  # reports since it was first raised
    cleared_at: float = 0.0  # 0: it stands
    cleared_why: str = ""
    raises: tuple[float, ...] = ()  # the latest times at which it was raised, oldest first
    flapping: bool = False  # raised again and again: it stands until it was quiet for a while
    quiet_since: float = 0.0  # of a flapping one: when it was last reported as over; 0: it was not

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it one and the same alert."""
        return (self.node, self.id, self.target)

    @property
    def active(self) -> bool:
        """Whether it stands."""
        return self.cleared_at == 0.0


class Override(Record):
    """A person's word that an alert has no effect until a time. It ends by itself."""

    node: str
    id: str  # or ANY
    target: str  # or ANY
    by: str
    why: str
    made_at: float
    until: float


class Subscription(Record):
    """A subscription of ours at a BMC: written before it is made, so that none is forgotten."""

    id: str  # last part of the destination, unguessable
    node: str
    bmc: str
    path: str = ""  # at the BMC; "": it may or may not have been made
    context: str  # SHA-256 of the secret that the BMC sends with every event
    destination: str
    made_at: float
    delivers: bool = False  # something came through since it was made, and since it was last tried
