"""The capabilities over adopted nodes, and the grants by which people hand them over."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.node import State
from provisioner.model.outcome import Blocker
from provisioner.model.times.instant import Instant, InstantOrNone

# ------------------------------------------------------------------------------
# One reading of a node by a daemon that observes, and the acts that it would carry out.


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


class Capability(StrEnum):
    """A kind of act on an adopted node. Each one is in force only together with all before it."""

    WATCH = "watch"  # subscribe to the events of its BMCs
    TICKETS = "tickets"  # open repair cases and tickets about it
    CREDENTIALS = "credentials"  # change the accounts of its BMCs
    FIRMWARE = "firmware"  # write firmware to it, reset it, let a campaign take it
    CERTIFICATION = "certification"  # change its settings, boot the maintenance image, validate it
    ISOLATION = "isolation"  # move its ports between VRFs; of a switch: change its configuration


LADDER = tuple(Capability)


class GrantScope(StrEnum):
    """The set of nodes that a grant is about, the widest first."""

    SITE = "site"
    UNIT = "unit"
    RACK = "rack"
    NODE = "node"


class Grant(Record):
    """A person's decision on one capability over a set of nodes.

    The narrowest decision that covers a node counts, so that one rack or node can be left out.
    """

    scope: GrantScope = Field(description="Width of the decision: site, unit, rack or node.")
    name: str = Field(
        "", max_length=128, description="Node, rack, or unit (pod0/su0); empty for the site."
    )
    capability: Capability = Field(description="The step that it is about.")
    granted: bool = Field(description="false: it was withdrawn, also where a wider grant has it.")
    by: str = Field("", description="The person who decided it.")
    at: InstantOrNone = Field(0.0, description="Time of the decision.")
    reason: str = Field("", max_length=500, description="The person's reason.")

    @property
    def key(self) -> str:
        """Return the identity of the decision: scope, name and capability."""
        return f"{self.scope}:{self.name}:{self.capability}"
