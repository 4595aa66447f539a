"""Cable or optic: named by the counters of both ends, else it stays a link."""

from __future__ import annotations

import pytest

from provisioner.planning.fault_location.fabric_verdicts import BothEnds, EndCounters, name_part
from provisioner.planning.fault_location.isolation_words import Blame, Culprit

LINK = Blame(culprit=Culprit.LINK, node="n0001", rail=2, confidence=0.999, reason="it fails")


def counters(received: int, downs: int = 0, began_at: float = 0.0) -> EndCounters:
    return EndCounters(
        uncorrectable=received, link_downs=downs, began_at=began_at, ended_at=began_at + 60
    )


@pytest.mark.parametrize(
    ("ends", "culprit", "end"),
    [
        (BothEnds(node=counters(900), leaf=counters(0)), Culprit.OPTIC, "leaf"),
        (BothEnds(node=counters(0), leaf=counters(900)), Culprit.OPTIC, "node"),
        (BothEnds(node=counters(900), leaf=counters(700)), Culprit.CABLE, ""),
        (
            BothEnds(node=counters(900), leaf=counters(0), detachable=False),
            Culprit.CABLE,
            "",
        ),
        (BothEnds(node=counters(0), leaf=counters(0, downs=3)), Culprit.LINK, ""),
        (BothEnds(node=counters(900)), Culprit.LINK, ""),
        (BothEnds(leaf=counters(900)), Culprit.LINK, ""),
        (BothEnds(node=counters(900), leaf=counters(9, began_at=60.0)), Culprit.LINK, ""),
    ],
)
def test_cable_or_optic_is_named_only_with_both_ends(
    ends: BothEnds, culprit: Culprit, end: str
) -> None:
    named = name_part(LINK, {("n0001", 2): ends})

    assert (named.culprit, named.end) == (culprit, end)


def test_what_is_no_condemned_link_keeps_its_name() -> None:
    ends = {("n0001", 2): BothEnds(node=counters(9), leaf=counters(0))}
    for kept in (
        LINK.model_copy(update={"culprit": Culprit.NODE}),
        LINK.model_copy(update={"confidence": 0.0}),
    ):
        assert name_part(kept, ends) == kept
