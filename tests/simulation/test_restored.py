"""Backups of random age against random histories: nobody is cut off, nothing comes unerased."""

from __future__ import annotations

from pathlib import Path

import pytest
import virtual_time
from restoring import Restored


@pytest.mark.slow
def test_after_a_restore_nobody_is_cut_off_and_nothing_is_handed_over_unerased(
    tmp_path: Path,
) -> None:
    wrong = virtual_time.run(Restored(tmp_path, seed=1, nodes=1).play())

    assert wrong == []


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 41))
def test_the_same_of_many_histories(tmp_path: Path, seed: int) -> None:
    wrong = virtual_time.run(Restored(tmp_path, seed).play())

    assert wrong == []


@pytest.mark.long
def test_without_a_survey_the_same_histories_hurt(tmp_path: Path) -> None:
    """The worlds of the test above are able to show what it says never happens."""
    found = []
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        found += virtual_time.run(Restored(folder, seed, nodes=1, surveys=False).play())

    assert found
