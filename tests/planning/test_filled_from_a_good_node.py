"""A release made complete for production by one command, from a node of the simulated site."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import test_observing
import yaml
from import_files import HGX_VERSION, pldm_package
from rig import World
from typer.testing import CliRunner
from virtual_time import run

from provisioner.cli import app
from provisioner.integrations.published_versions import import_commands
from provisioner.model.inventory import Inventory

RELEASE, PROFILE = "spectrum-x-1.3.0", "hgx-h100-bf3"
IMAGE = f"""
images:
  maintenance: {{version: {"ab" * 32}, artifact: m.iso, sha256: "{"cd" * 32}", evidence: ours}}
"""
# of the makers' portals, by component; the HGX package is found by its contents
FILES = {
    "bluefield.bundle": "bf-bundle.bin",
    "bluefield.nic": "fw-BlueField-3.bin",
    "supernic.nic": "fw-BlueField-3.bin",
    "bluefield.bmc": "bf3-bmc.bin",
    "nic.cx7": "fw-ConnectX7.bin",
    "host.bmc": "BMC_11.01.01.bin",
    "host.bios": "BIOS_1.4.bin",
}


@pytest.fixture
def good_node(tmp_path: Path) -> Path:
    """The inventory of a host that a daemon has read, as `node inventory -o json` prints it."""

    async def look() -> Inventory | None:
        world = World(tmp_path / "site", 1, 7)
        await world.take_in()
        await world.build()
        await test_observing.observe(world, 600.0)
        return await world.store.evidence.get_inventory("su0-n00")

    (tmp_path / "site").mkdir()
    seen = run(look())
    assert seen is not None
    file = tmp_path / "node.json"
    file.write_text(seen.model_dump_json())
    return file


def prepare(folder: Path) -> list[str]:
    """The files of the portals in a folder, and the words that name them."""
    artifacts = folder / "artifacts"
    artifacts.mkdir()
    for name in FILES.values():
        (artifacts / name).write_bytes(name.encode())
    (artifacts / "nvfw_HGX.fwpkg").write_bytes(pldm_package())
    (folder / "image.yaml").write_text(IMAGE)
    named = [word for kind, name in FILES.items() for word in ("--file", f"{kind}={name}")]
    return ["--artifacts", str(artifacts), *named]


def matrix(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["matrix", *words])
    return done.exit_code, done.stdout


def test_one_command_makes_a_release_complete_for_production(
    good_node: Path, tmp_path: Path
) -> None:
    files, image, site = prepare(tmp_path), str(tmp_path / "image.yaml"), tmp_path / "site.yaml"
    judged = [
        "check",
        "--release",
        RELEASE,
        "--profile",
        PROFILE,
        "--production",
        "--matrix",
        image,
    ]
    before = matrix(*judged)[0]

    filled, _ = matrix(
        *("fill", "--from", str(good_node), "--release", RELEASE, "--by", "ada"),
        *("--vouch", "three nodes were moved by hand", "--matrix", image, "--out", str(site)),
        *files,
    )

    after, said = matrix(*judged, "--matrix", str(site), "--json")
    assert (before, filled, after) == (1, 0, 0), said
    (state,) = json.loads(said)["releases"]
    assert state["production_ready"]
    pins = yaml.safe_load(site.read_text())["releases"][RELEASE]["profiles"][PROFILE]["pins"]
    assert pins["hgx.bundle"]["version"] == HGX_VERSION
    assert pins["hgx.bundle"]["sha256"] == hashlib.sha256(pldm_package()).hexdigest()
    assert pins["host.bios"]["version"] == "BIOS Date: 08/04/2023 Ver 1.4"
    assert all("ada" in p["evidence"] for p in pins.values() if "version" in p)


def test_what_keeps_it_from_production_and_what_differs_is_told(
    good_node: Path, tmp_path: Path
) -> None:
    prepare(tmp_path)
    words = ("fill", str(good_node), "--release", RELEASE, "--by", "ada", "--json")

    notes = json.loads(matrix(*words)[1])["notes"]

    assert any("bluefield.nic/DPU_0 runs 32.43.1014, and 32.44.1036 is pinned" in n for n in notes)
    assert any("the edge has no evidence" in n and "nic.cx7" in n for n in notes)
    assert any("no file name or no SHA-256" in n and "host.bios" in n for n in notes)
    assert any("images.maintenance" in n for n in notes)


def test_a_node_is_asked_of_the_daemon_by_its_name(
    good_node: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PROVISIONER_DATA", str(tmp_path / "no-daemon"))
    done = CliRunner().invoke(
        app, ["matrix", "fill", "--from", "su0-n00", "--release", RELEASE, "--by", "ada"]
    )

    assert "no daemon answers" in str(done.exception)
    assert import_commands._read_good_node(str(good_node)).node == "su0-n00"
