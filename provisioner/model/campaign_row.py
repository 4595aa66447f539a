"""What is kept beside the campaign itself: one row a node, and the releases that are pinned."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from provisioner.model.base import Record
from provisioner.model.campaign import CampaignNode, NodeProgress
from provisioner.model.node import NodeKind


class CampaignRow(Record):
    """One node of one campaign. `facts` are those of the start: a plan shrinks while it is done."""

    campaign: str
    progress: NodeProgress
    facts: CampaignNode
    kind: NodeKind = NodeKind.HOST
    release_before: str = ""
    profile_before: str = ""
    before: Mapping[str, float] = {}  # what it measured when it was last judged: "name/part"
    after: Mapping[str, float] = {}  # ... and when it was certified with the campaign's release
    rolled_back: bool = False  # it has gone back to the release that it came from

    @property
    def node(self) -> str:
        return self.progress.node


class PinScope(StrEnum):
    """What a pin is about, the narrowest first: a node's own pin wins over its rack's."""

    NODE = "node"
    RACK = "rack"
    FLEET = "fleet"  # the baseline: everything that has no pin of its own


class ReleasePin(Record):
    """The release that a node, a rack or the fleet is to run, and why."""

    scope: PinScope
    name: str  # of the node or rack; "" for the fleet
    release: str
    reason: str
    by: str = ""
    at: float = 0.0
    expires_at: float = 0.0  # 0: never (the fleet's baseline only)

    @property
    def key(self) -> str:
        return f"{self.scope}:{self.name}"

    def holds(self, now: float) -> bool:
        """Whether it has not expired."""
        return not self.expires_at or now < self.expires_at
