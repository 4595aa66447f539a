"""Alerts about serving nodes, identified by (id, target, classification) as in NICo.

An alert states an observed condition and its source. Consequences are derived from its
classifications alone (`planning/watch/alerts.py`), never from its message.
"""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.base import Record

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
