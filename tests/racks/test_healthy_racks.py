"""Many healthy racks, each with timings of its own: nothing is held, cycled or written twice."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from rack_rig import TARGETS, finish, make

from provisioner.integrations.sim.racks.rack import Times


@pytest.mark.parametrize(
    "seeds", [range(6), pytest.param(range(6, 100), marks=(pytest.mark.slow, pytest.mark.long))]
)
def test_a_hundred_healthy_racks_of_other_timings_are_neither_held_nor_cycled_twice(
    tmp_path: Path, seeds: range
) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        trays = 1 + seed % 2
        rig = make(folder, TARGETS, trays=trays)
        times = {k: v * rng.uniform(0.6, 1.4) for k, v in vars(Times()).items()}
        rig.rack.times = Times(**times)
        finish(rig)
        assert len(rig.rack.find("aux")) == trays, times
        assert len(rig.rack.find("switch reboot")) == 1, times
        pushes = [event.unit for event in rig.rack.find("push")]
        written = {f"t{n}": 2 for n in range(trays)} | {"p0": 4}
        assert Counter(pushes) == written, times
