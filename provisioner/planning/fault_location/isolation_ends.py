"""Names the part of a condemned link, and only with counters from both ends of the cable.

A receiver counts what arrives damaged: errors that only one end receives point at what sends
towards it, the other end's optic or that half of the cable; errors at both ends point at the cable
(both-ends rule). Without both ends, or without errors, it stays "link".
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from provisioner.model.base import Record
from provisioner.planning.fault_location.isolation_words import Blame, Cell, Culprit

# One uncorrectable block in a test of minutes is above any healthy link's rate; below that, noise
# of a single event would choose a part.
ERRORS_MIN = 2


class EndCounters(Record):
    """What one end of a cable counted while the tests ran (differences, not totals)."""

    uncorrectable: int = Field(ge=0)  # FEC blocks that could not be corrected, received
    symbol_errors: int = Field(default=0, ge=0)  # after FEC, received
    crc_errors: int = Field(default=0, ge=0)  # frames with a bad checksum, received
    link_downs: int = Field(default=0, ge=0)
    began_at: float  # Unix seconds
    ended_at: float

    @property
    def received_damaged(self) -> int:
        """Everything that arrived damaged; one event may count in two of them."""
        return max(self.uncorrectable, self.symbol_errors, self.crc_errors)


class BothEnds(Record):
    """Counters of one cable, for one interval: at the node's port and at the leaf's."""

    node: EndCounters | None = None
    leaf: EndCounters | None = None
    detachable: bool = True  # optics can be taken off the cable; False: copper or active cable

    @property
    def complete(self) -> bool:
        """Both ends were read, and for overlapping times."""
        if self.node is None or self.leaf is None:
            return False
        began = max(self.node.began_at, self.leaf.began_at)
        return began < min(self.node.ended_at, self.leaf.ended_at)


def name_part(blame: Blame, ends: Mapping[Cell, BothEnds]) -> Blame:
    """A condemned link with its part, if both ends say which; any other blame as it is."""
    found = ends.get((blame.node, blame.rail))
    if blame.culprit is not Culprit.LINK or blame.confidence <= 0.0 or found is None:
        return blame
    if found.node is None or found.leaf is None or not found.complete:
        return blame
    at_node = found.node.received_damaged >= ERRORS_MIN
    at_leaf = found.leaf.received_damaged >= ERRORS_MIN
    counted = (
        f"damaged blocks or frames received: {found.node.received_damaged} at the node,"
        f" {found.leaf.received_damaged} at the leaf"
    )
    if not at_node and not at_leaf:
        downs = found.node.link_downs + found.leaf.link_downs
        what = f"{counted}; so not the signal{f', but it went down {downs} times' * bool(downs)}"
        return blame.model_copy(update={"reason": f"{blame.reason}; {what}"})
    if (at_node and at_leaf) or not found.detachable:
        return blame.model_copy(
            update={"culprit": Culprit.CABLE, "reason": f"{blame.reason}; {counted}"}
        )
    sender = "leaf" if at_node else "node"
    what = f"{counted}; so the optic at the {sender}'s end, or its half of the cable"
    return blame.model_copy(
        update={"culprit": Culprit.OPTIC, "end": sender, "reason": f"{blame.reason}; {what}"}
    )
