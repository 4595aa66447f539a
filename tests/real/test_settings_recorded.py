"""Every attribute of the recorded trees is listed by `provisioner inspect --settings`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from static_tree import recorded_tree, serving
from typer.testing import CliRunner

from provisioner.cli import app


@pytest.mark.parametrize(
    ("name", "shown", "listed"),
    [
        ("dell", 455, 682),
        pytest.param("nvidia_viking", 223, 223, marks=pytest.mark.long),
        ("nvidia_dpu", 28, 28),
    ],
)
def test_inspect_lists_every_attribute_of_a_recorded_tree(
    name: str, shown: int, listed: int, tmp_path: Path
) -> None:
    with serving(recorded_tree(name, tmp_path)) as url:
        result = CliRunner().invoke(app, ["inspect", url, "--settings", "--json"])

    settings = json.loads(result.stdout)["settings"]
    (bios,) = settings["bios"]
    assert sum(row["shown"] for row in bios["attributes"]) == shown
    assert len(bios["attributes"]) == listed
    assert bios["registry_read"] is (listed > shown)
    assert [row for row in bios["attributes"] if row["is_pending"]] == []
    assert len(settings["secure_boot"]) == 1
    assert settings["bmcs"]
