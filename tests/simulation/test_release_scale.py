"""What a release of many nodes at once may cost; `make bench-release` does it for 512."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from bench_release import measure
from virtual_time import run


def test_many_nodes_cost_one_revision_a_leaf_and_little_more_than_the_switches_own_time() -> None:
    told = run(measure(40))

    assert told["leaves"] == 16
    for act, each in (("fence", 1), ("release", 1), ("reclaim", 2)):
        assert told[act]["revisions"] == 16 * each
        assert told[act]["ratio"] <= 1.2
