"""Rows stored beside a campaign: one for each of its nodes, and the releases that are pinned."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from provisioner.model.base import Record
from provisioner.model.campaign import CampaignNode, NodeProgress
from provisioner.model.node import NodeKind
from provisioner.model.times.instant import InstantOrNone


class CampaignRow(Record):
    """One node of one campaign. `facts` are those of the start, because a plan shrinks as it is
    carried out.
    """

    campaign: str
    progress: NodeProgress
    facts: CampaignNode
    kind: NodeKind = NodeKind.HOST
    release_before: str = ""
    profile_before: str = ""
    before: Mapping[str, float] = {}  # measured when it was last judged: "name/part"
    after: Mapping[str, float] = {}  # ... and when it was certified with the campaign's release
    rolled_back: bool = False  # it has gone back to the release that it came from

    @property
    def node(self) -> str:
        return self.progress.node


class PinScope(StrEnum):
    """The scope of a pin, the narrowest first: a node's own pin takes precedence over its
    rack's.
    """

    NODE = "node"
    RACK = "rack"
    FLEET = "fleet"  # the baseline: everything without a pin of its own


class ReleasePin(Record):
    """The release that a node, a rack or the fleet is meant to run, and the reason."""

    scope: PinScope
    name: str  # of the node or rack; "" for the fleet
    release: str
    reason: str
    by: str = ""
    at: InstantOrNone = 0.0
    expires_at: InstantOrNone = 0.0  # 0: never (the fleet's baseline only)

    @property
    def key(self) -> str:
        return f"{self.scope}:{self.name}"

    def is_in_force(self, now: float) -> bool:
        """Return whether the pin is in force at `now`, which means that it has not expired."""
        return not self.expires_at or now < self.expires_at
