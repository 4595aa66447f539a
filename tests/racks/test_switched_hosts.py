"""Hosts of a rack are switched by one act: a death in its middle leaves none behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from rack_rig import make
from test_update import kill


@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("which", ["off", "on"])
def test_a_death_among_the_hosts_that_are_switched_leaves_none_of_them_so(
    tmp_path: Path, nth: int, which: str
) -> None:
    """Before and after each of three requests: the next process switches those that are left."""
    asked: list[str] = []
    skipped = 0 if which == "off" else 6

    def hit(what: str) -> bool:
        asked.extend([what] if what.endswith("ComputerSystem.Reset") else [])
        return len(asked) == skipped + nth and asked[-1] == what

    rig = make(tmp_path, {"power-shelf": {"psu": "0104"}}, trays=3)
    assert kill(rig, hit) == 1
    assert rig.violations() == []
    assert set(rig.shelf("p0").supplies.values()) == {"0104"}
    assert {rig.tray(f"t{n}").power for n in range(3)} == {"On"}
    for way in ("ForceOff", "On"):
        told = [event.unit for event in rig.rack.find("reset") if event.detail == way]
        assert sorted(told) == ["t0", "t1", "t2"]  # none is switched twice
