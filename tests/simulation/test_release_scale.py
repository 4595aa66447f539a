"""What a release of many nodes at once may cost; `make bench NAME=release` does it for 512."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from bench_release import measure
from virtual_time import run


def test_many_nodes_cost_one_revision_a_leaf_and_little_more_than_the_switches_own_time() -> None:
    told = run(measure(40))

    assert told["leaves"] == 16
    # looking, saving and the wire weigh more where eight rails are not added up
    for act, each, most in (("fence", 1, 1.4), ("release", 1, 1.2), ("reclaim", 2, 1.6)):
        assert told[act]["revisions"] == 16 * each
        assert told[act]["ratio"] <= most
    assert told["fence"]["wall_s"] < told["release"]["wall_s"] / 4
