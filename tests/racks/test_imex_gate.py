"""IMEX daemons of a partition: what each says of all, and what is no whole domain."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from provisioner.integrations.racks.fabric.imex_gate import ImexView, judge_imex, read_imex
from provisioner.integrations.racks.rack_commands import app

TRAYS = ("t0", "t1", "t2")


def make(hosts: int = 3) -> dict[str, Any]:
    """Return what `nvidia-imex-ctl -N -j` prints of a domain that is up, in its public shape."""
    names = [f"10.0.0.{n}" for n in range(1, hosts + 1)]
    links = {
        str(n): {"host": h, "status": "CONNECTED", "changed": True} for n, h in enumerate(names)
    }
    nodes = {
        str(n): {"status": "READY", "host": host, "hostName": f"t{n}", "connections": dict(links)}
        for n, host in enumerate(names)
    }
    return {"nodes": nodes, "timestamp": "9/4/2026 00:00:00.000", "status": "UP"}


def judge(change: Callable[[dict[str, Any]], object] = lambda _: None) -> list[str]:
    """Judge three trays of which the last one says what `change` makes of it."""
    views: dict[str, ImexView | None] = {name: read_imex(json.dumps(make())) for name in TRAYS}
    changed = json.loads(json.dumps(make()))
    change(changed)
    views["t2"] = read_imex(json.dumps(changed))
    return [f"{one.subject}: {one.detail}" for one in judge_imex(views)]


def test_a_domain_whose_hosts_all_see_one_another_passes() -> None:
    assert judge() == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d.update(status="DEGRADED"), "t2: its IMEX domain is DEGRADED"),
        (lambda d: d.pop("status"), "t2: its IMEX domain is not said"),
        (lambda d: d["nodes"]["1"].update(status="UNAVAILABLE"), "t2: 10.0.0.2 is UNAVAILABLE"),
        (
            lambda d: d["nodes"]["0"]["connections"]["1"].update(status="INVALID"),
            "t2: 10.0.0.1 to 10.0.0.2: INVALID",
        ),
        (
            lambda d: d["nodes"]["0"]["connections"].pop("1"),
            "t2: 10.0.0.1: 2 of 3 connections are listed",
        ),
        (lambda d: d["nodes"].pop("2"), "t2: its IMEX domain has 2 members of 3 trays"),
        (
            lambda d: d["nodes"]["2"].update(host="10.0.9.9"),
            "t2: it names other members than most of the others",
        ),
        (
            lambda d: d["nodes"]["2"].update(host="10.0.0.1"),
            "t2: its view of the IMEX domain was not read",
        ),
        (lambda d: d.update(nodes=[]), "t2: its view of the IMEX domain was not read"),
    ],
)
def test_whatever_is_not_whole_is_told_with_the_tray(
    change: Callable[[dict[str, Any]], object], says: str
) -> None:
    assert says in judge(change)


@pytest.mark.parametrize("printed", ["", "[]", "null", "{", '{"nodes": {"0": 7}}', "[" * 100_000])
def test_what_is_no_such_json_says_nothing(printed: str) -> None:
    assert read_imex(printed).nodes is None
    assert judge_imex({"t0": read_imex(printed)})


def test_a_tray_without_a_file_fails_the_command(tmp_path: Path) -> None:
    units = [
        {"name": name, "kind": "compute-tray", "u": 11 + n, "slot": 10 + n, "tray_index": n}
        for n, name in enumerate(TRAYS)
    ]
    racks = [{"name": "r01", "chassis_serial": "18", "domain": "d01", "units": units}]
    (tmp_path / "racks.yaml").write_text(json.dumps({"racks": racks}))
    for name in TRAYS[:2]:
        (tmp_path / f"{name}.imex.json").write_text(json.dumps(make()))
    words = ["fabric", str(tmp_path / "racks.yaml"), "r01", str(tmp_path), "--imex"]
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 1
    assert "t2: its view of the IMEX domain was not read" in told.stdout
    assert "t0: its view" not in told.stdout
