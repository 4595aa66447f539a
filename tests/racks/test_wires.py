"""No request, restore policy or cold reboot gives power to what is wet or unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from wires_walk import WiresWalk

from provisioner.integrations.racks import water_commands


def test_nothing_that_is_wet_or_unknown_gets_power_at_the_wires_whoever_dies(
    tmp_path: Path,
) -> None:
    """`make soak NAME=racks ARGS="wires 10000000"` walks on."""
    walk = WiresWalk(tmp_path, 4)
    walk.run(90)

    assert walk.counts["Critical"]
    assert walk.counts["deaths"]
    assert walk.counts["powered by on"]


def test_a_gate_that_refuses_nothing_is_found_at_the_wires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(water_commands, "find_power_refusals", lambda *_, **__: ())
    with pytest.raises(AssertionError):
        WiresWalk(tmp_path, 4).run(400)
