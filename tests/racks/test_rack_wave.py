"""A campaign of the daemon over several racks; the soak `racks` has whole ones, by its `wave`."""

from __future__ import annotations

from pathlib import Path

import pytest
from rack_wave import Wave

from provisioner.integrations.racks.duty.approval import RackCampaignState


@pytest.mark.parametrize(("racks", "deaths"), [(1, 2), pytest.param(2, 0, marks=pytest.mark.long)])
def test_the_daemons_own_loops_carry_a_wave_out_near_its_bound_and_over_deaths(
    tmp_path: Path, racks: int, deaths: int
) -> None:
    shape = {"trays": 1, "switches": 1, "shelves": 1}
    wave = Wave(tmp_path, racks=racks, at_once=2, shape=shape)
    wave.approve()
    began = wave.now()
    state = wave.live(deaths)
    assert state.state is RackCampaignState.DONE, state.says
    assert wave.deaths == deaths
    assert wave.find_faults() == []
    took = wave.now() - began
    assert wave.bound() <= took
    assert deaths or took <= 1.15 * wave.bound()  # of virtual time
