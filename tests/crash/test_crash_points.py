"""Some of the points at which the daemon may die; `make crash-points` dies at all of them."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from lives import explore
from points import Place

DEATHS = 2  # each costs some seconds of a core
POINTS = 700  # of the 900 and more on the way to the first tenant; the last of them differ by run
SEED = int(os.environ.get("SEED", "8"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no os.fork on this system")
def test_whoever_takes_over_after_a_death_ends_the_journey_without_repeating(
    tmp_path: Path,
) -> None:
    numbers = random.Random(SEED).sample(range(1, POINTS), DEATHS)

    def chosen(number: int, _place: Place) -> bool:
        return number in numbers

    run = explore(tmp_path, chosen, jobs=2, legs=1, deaths_max=DEATHS)

    assert run.wrong == ""
    assert [v for v in run.verdicts.values() if v] == [], f"replay: SEED={SEED}"
    assert len(run.verdicts) == DEATHS
    assert len(run.points) >= max(numbers)
