"""One release for all tests of a process: its wheel is the one that the others install and open."""

from __future__ import annotations

from pathlib import Path

import pytest

from delivery.release import build_release, write_sums

EPOCH = 1_700_000_000


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with its list of digests, which no test changes."""
    folder = tmp_path_factory.mktemp("release")
    build_release(folder, EPOCH)
    write_sums(folder)
    return folder


@pytest.fixture(scope="session")
def wheel(release: Path) -> Path:
    """Built from a copy, so that nothing is left in the checkout; no network."""
    (wheel,) = release.glob("*.whl")
    return wheel
