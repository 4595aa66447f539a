"""`provisioner matrix fill`: a good node's versions become the site's own evidence."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import program
import pytest
import yaml
from local_daemon import daemon
from typer.testing import CliRunner

from provisioner.cli import app
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.daemon.data import open_data
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind, Placement, State

NOW = 1_700_000_000.0
NODE = Node(
    id="su0-n00",
    kind=NodeKind.HOST,
    state=State.CERTIFIED,
    entered_at=NOW,
    placement=Placement.MAINTENANCE,
)
RELEASE, PROFILE = "spectrum-x-1.3.0", "hgx-h100-bf3"
FILL = ["matrix", "fill", "--release", RELEASE, "--profile", PROFILE, "--by", "ada"]
PINS = read_matrix([]).releases[RELEASE].profiles[PROFILE].pins
UNKNOWN = sorted(kind for kind, pin in PINS.items() if not pin.known)
VERSIONS = {
    "bluefield.bmc": "BF-24.10-17",
    "host.driver": "570.133.20",
    "host.fabric_manager": "570.133.20",
    "host.bios": "2.4",
    "host.bmc": "1.5.0",
}


def write_node(place: Path, **more: Any) -> Path:
    """The inventory of a node with eight H100 and a version of each kind in VERSIONS."""
    components = [
        {"kind": kind, "slot": kind, "version": version, "source": "read"}
        for kind, version in VERSIONS.items()
    ]
    components += more.pop("also", [])
    devices = [
        {"kind": "gpu", "slot": f"GPU_SXM_{n}", "model": "NVIDIA H100 80GB HBM3"}
        for n in range(1, 9)
    ]
    devices.append({"kind": "dpu", "slot": "DPU_0", "model": "BlueField-3"})
    node = {"node": "su0-n00", "vendor": "supermicro", "components": components, "devices": devices}
    file = place / "node.json"
    file.write_text(json.dumps(node | more))
    return file


def fill(file: Path, *words: str) -> tuple[int, dict[str, Any]]:
    done = CliRunner().invoke(app, [*FILL, str(file), "--json", *words])
    return done.exit_code, json.loads(done.stdout)


def test_unknown_pins_are_filled_with_node_name_and_date_as_evidence(tmp_path: Path) -> None:
    _, told = fill(write_node(tmp_path))

    pins = yaml.safe_load(told["text"])["releases"][RELEASE]["profiles"][PROFILE]["pins"]
    assert {kind: pin["version"] for kind, pin in pins.items()} == {
        kind: version for kind, version in VERSIONS.items() if kind in UNKNOWN
    }
    assert len(pins) >= 4
    for pin in pins.values():
        assert pin["evidence"].startswith("node su0-n00, which ada declares good; read 20")


def test_what_the_node_does_not_show_stays_unknown_and_is_named(tmp_path: Path) -> None:
    _, told = fill(write_node(tmp_path))

    for kind in set(UNKNOWN) - VERSIONS.keys():
        assert any(kind in note and "stays unknown" in note for note in told["notes"]), kind


def test_slots_that_differ_contradict_each_other_and_nothing_is_written(tmp_path: Path) -> None:
    other = {"kind": "host.bmc", "slot": "second", "version": "1.6.0", "source": "read"}
    _, told = fill(write_node(tmp_path, also=[other]))

    verdicts = {c["kind"]: c["verdict"] for c in told["changes"]}
    pins = yaml.safe_load(told["text"])["releases"][RELEASE]["profiles"][PROFILE]["pins"]
    assert verdicts["host.bmc"] == "conflict"
    assert "host.bmc" not in pins


def test_a_version_that_waits_for_a_reset_is_no_evidence(tmp_path: Path) -> None:
    staged = {"kind": "hgx.bundle", "slot": "hgx", "version": "1", "staged": "2", "source": "read"}
    _, told = fill(write_node(tmp_path, also=[staged]))

    assert "hgx.bundle" not in {c["kind"] for c in told["changes"]}


def test_a_file_is_written_with_its_digest_and_the_draft_is_an_overlay(tmp_path: Path) -> None:
    (tmp_path / "bios.bin").write_bytes(b"a BIOS")
    out = tmp_path / "site.yaml"

    file = ["--file", "host.bios=bios.bin", "--artifacts", str(tmp_path), "--out", str(out)]
    done = CliRunner().invoke(app, [*FILL, str(write_node(tmp_path)), *file])

    filled = read_matrix([out]).releases[RELEASE].profiles[PROFILE].pins["host.bios"]
    assert "written:" in done.stdout
    assert (filled.version, filled.artifact) == ("2.4", "bios.bin")
    assert filled.sha256 == hashlib.sha256(b"a BIOS").hexdigest()


def test_a_node_is_read_from_the_running_daemon_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def keep() -> None:
        async with open_data(tmp_path / "data", NOW) as opened:
            store = opened.store
            await store.nodes.add(NODE)
            operation = await store.operations.open("su0-n00", "journey", NOW)
            assert operation is not None
            operation = await store.operations.take(operation.id)
            seen = Inventory.model_validate_json(write_node(tmp_path).read_text())
            await store.operations.record(operation, inventory=seen, now=NOW)

    asyncio.run(keep())
    monkeypatch.setenv("PROVISIONER_DATA", str(tmp_path / "data"))
    unserved = CliRunner().invoke(app, [*FILL, "--from", "su0-n00"])
    with daemon(tmp_path / "data"):
        done = CliRunner().invoke(app, [*FILL, "--from", "su0-n00", "--json"])
        absent = CliRunner().invoke(app, [*FILL, "--from", "su0-n01"])

    assert json.loads(done.stdout)["text"] == fill(write_node(tmp_path))[1]["text"]
    assert "no daemon answers" in str(unserved.exception)
    assert "the daemon has no inventory of it" in str(absent.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--by", " "], "Name the person"),
        (["--by", "ada", "--file", "host.bios"], "KIND=NAME"),
        (["--by", "ada", "--file", "host.bios=../x"], "KIND=NAME"),
        (["--by", "ada", "--file", "host.bios=absent.bin"], "cannot be read"),
        (["--by", "ada", "--profile", "no-such"], "no such profile"),
    ],
)
def test_wrong_words_are_one_line_and_nothing_is_written(
    tmp_path: Path, words: list[str], said: str
) -> None:
    asked = ["matrix", "fill", str(write_node(tmp_path)), "--release", RELEASE, "--out", "x.yaml"]

    done = program.run([*asked, *words], tmp_path)

    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "x.yaml").exists()
