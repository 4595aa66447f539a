"""Naming of the faulty part of a condemned link, by counters from both ends of the cable.

A receiver counts data that arrives damaged: errors that only one end receives point at the sender,
which is the other end's optic or that half of the cable; errors at both ends point at the cable
(both-ends rule). Without both ends, or without errors, the culprit stays "link".
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from provisioner.model.base import Record
from provisioner.planning.fault_location.isolation_words import Blame, Cell, Culprit

# One uncorrectable block in a test of minutes is above any healthy link's rate; a lower threshold
# would let the noise of a single event choose a part.
ERRORS_MIN = 2


class EndCounters(Record):
    """Counters of one end of a cable while the tests ran (differences, not totals)."""

    uncorrectable: int = Field(ge=0)  # FEC blocks that could not be corrected, received
    symbol_errors: int = Field(default=0, ge=0)  # after FEC, received
    crc_errors: int = Field(default=0, ge=0)  # frames with a bad checksum, received
    link_downs: int = Field(default=0, ge=0)
    began_at: float  # Unix seconds
    ended_at: float

    @property
    def received_damaged(self) -> int:
        """Return the damaged data received; one event may be counted in several counters."""
        return max(self.uncorrectable, self.symbol_errors, self.crc_errors)


class BothEnds(Record):
    """Counters of one cable, for one interval: at the node's port and at the leaf's."""

    node: EndCounters | None = None
    leaf: EndCounters | None = None
    detachable: bool = True  # optics can be taken off the cable; False: copper or active cable

    @property
    def complete(self) -> bool:
        """Return whether both ends were read, for overlapping times."""
        if self.node is None or self.leaf is None:
            return False
        began = max(self.node.began_at, self.leaf.began_at)
        return began < min(self.node.ended_at, self.leaf.ended_at)


def name_part(blame: Blame, ends: Mapping[Cell, BothEnds]) -> Blame:
    """Return a condemned link with its part, if both ends show it; any other blame unchanged."""
    both = ends.get((blame.node, blame.rail))
    if blame.culprit is not Culprit.LINK or blame.confidence <= 0.0 or both is None:
        return blame
    if both.node is None or both.leaf is None or not both.complete:
        return blame
    at_node = both.node.received_damaged >= ERRORS_MIN
    at_leaf = both.leaf.received_damaged >= ERRORS_MIN
    counted = (
        f"damaged blocks or frames received: {both.node.received_damaged} at the node,"
        f" {both.leaf.received_damaged} at the leaf"
    )
    if not at_node and not at_leaf:
        downs = both.node.link_downs + both.leaf.link_downs
        link_downs = f", but it went down {downs} times" if downs else ""
        conclusion = f"{counted}; so the signal is not at fault{link_downs}"
        return blame.model_copy(update={"reason": f"{blame.reason}; {conclusion}"})
    if (at_node and at_leaf) or not both.detachable:
        return blame.model_copy(
            update={"culprit": Culprit.CABLE, "reason": f"{blame.reason}; {counted}"}
        )
    sender = "leaf" if at_node else "node"
    conclusion = f"{counted}; so the optic at the {sender}'s end, or its half of the cable"
    return blame.model_copy(
        update={"culprit": Culprit.OPTIC, "end": sender, "reason": f"{blame.reason}; {conclusion}"}
    )
