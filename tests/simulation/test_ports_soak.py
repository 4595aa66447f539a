"""Releases and reclaims while everything fails: no port is ever where it must not be.

`make soak-ports` takes the same life to ten million steps (docs/release.md).
"""

from __future__ import annotations

import pytest
from port_soak import ACTS, Soak
from virtual_time import run


@pytest.mark.parametrize("seed", [2, 7])
def test_no_port_is_where_it_must_not_be_whatever_fails(seed: int) -> None:
    soak = Soak(seed)

    run(soak.live(400))

    assert soak.steps.total() >= 400
    assert soak.truth.entered > 40  # and it was not for want of releases
    assert set(ACTS) | {"lost answer", "lost request"} == set(soak.steps)
