"""A whole campaign through store, scheduler and engine; the benchmark takes up to 65,536 nodes."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from bench_fleet_campaign import measure


def test_a_campaign_brings_every_node_to_the_release_with_one_in_twenty_out_at_most() -> None:
    told = measure(48)

    assert (told["nodes"], told["violations"]) == (48, 0), told["first_violations"]
    assert told["out_at_once"] == told["may_be_out"] == 2
    assert 1.0 <= told["makespan_over_bound"] < 1.25
