"""No single value of a unit's tree crashes its reading, or makes another kind of machine of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from mutated_trees import GONE, find_crashes, list_spots, load_trees, read, spoil
from rack_trees import ROOT, Tree, liteon, switch, tray

from provisioner.integrations.racks.identity import Kind
from provisioner.integrations.sim.racks.rack import Rack
from provisioner.integrations.sim.racks.shelf import Shelf


def delta() -> Tree:
    return Shelf(Rack(), "p0", "delta", "ECD70000018", "3.2.4", "0104", 6).shown._build()


TREES = {"tray": tray(), "liteon": liteon((True,) * 6), "delta": delta(), "switch": switch()}


@pytest.mark.parametrize("name", TREES)
def test_a_value_that_is_lost_or_of_another_kind_crashes_no_reading_of_a_unit(name: str) -> None:
    """`make soak NAME=racks ARGS="trees FOLDER"` does so with recorded trees."""
    _, found = find_crashes(name, TREES[name], 100)
    assert found == []


def test_a_spoilt_value_is_seen_where_it_matters() -> None:
    place = (f"{ROOT}/Systems/HGX_Baseboard_0/Processors/GPU_1", ("Oem", "Nvidia"))
    assert place in list_spots(TREES["tray"])
    assert len(read(spoil(TREES["tray"], place, GONE)).places) < len(read(TREES["tray"]).places)


def test_recorded_trees_are_loaded_by_their_paths(tmp_path: Path) -> None:
    for path, body in TREES["liteon"].items():
        file = tmp_path / "powershelf_liteon" / path.lstrip("/") / "index.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(body))
    loaded = load_trees(tmp_path)
    assert loaded == {"powershelf_liteon": TREES["liteon"]}
    assert read(loaded["powershelf_liteon"]).kind is Kind.POWER_SHELF
