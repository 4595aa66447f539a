"""Two exchanged cables that no LLDP shows are named, in a daemon that observes, by their MACs."""

from __future__ import annotations

from pathlib import Path

from hand_built import HandBuilt
from test_intake_cables import LEAF
from virtual_time import run

from provisioner.model.node import NodeKind
from provisioner.model.outcome import Reason

OBSERVED_S = 600.0


async def watch(directory: Path) -> None:
    site = HandBuilt(directory, 4)
    await site.build()
    planted = site.planted
    leaf = site.world.site.switches[LEAF]
    one, other = (site.world.site.places[name].interface for name in planted.cables)
    cards = leaf.neighbours
    cards[one], cards[other] = cards[other], cards[one]
    leaf.planted.silent |= {one, other}
    site.place(planted.vrf, [5], site.vrf_of(planted.vrf))
    corrected = await site.list_nodes(other_password=True)
    await site.adopt(corrected, NodeKind.SWITCH)
    await site.adopt(corrected, NodeKind.HOST)
    recorded, before = site.watch_writes()

    readings = await site.observe(OBSERVED_S)

    wrong = {name: o.cabling for name, o in readings.items() if o.cabling}
    assert set(wrong) == set(planted.cables)
    for blockers in wrong.values():
        assert {b.reason for b in blockers} == {Reason.CABLING}
        assert all("by its MAC; LLDP is silent" in b.detail for b in blockers)
        assert all(f"{LEAF}/{port}" in blockers[0].unblock for port in (one, other))
    assert recorded.methods <= {"GET", "HEAD"}
    assert site.read_state() == before


def test_cables_that_lldp_is_silent_about_are_named_by_their_macs(tmp_path: Path) -> None:
    run(watch(tmp_path))
