"""`provisioner plan --requests`: the requests of a whole plan over HTTP; only reads are sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from program import Done, run
from served_tree import serve_tree

DIGEST = "0" * 64
EDGES = {
    "host.bmc": ("23.11.21", "24.01.05", "bmc_reset", "bmc.fwpkg"),
    "host.bios": ("01.01.03", "01.05.03", "cold_boot", "bios.fwpkg"),
    "host.driver": ("535.154.05", "550.90.07", "warm_reboot", ""),
}
WRITE = {"method", "path", "headers", "body", "upload"}


def write_matrix(place: Path) -> None:
    edges = {
        kind: [
            {"from": [start], "to": to, "activates_by": by, "evidence": "https://example.com/n"}
            | ({"artifact": file, "sha256": DIGEST} if file else {})
        ]
        for kind, (start, to, by, file) in EDGES.items()
    }
    pins = {kind: {"version": to} for kind, (_, to, _, _) in EDGES.items()}
    profile = {"match": {"kind": "host"}, "pins": pins}
    matrix = {"schema": 1, "releases": {"r": {"profiles": {"p": profile}}}, "edges": edges}
    (place / "matrix.yaml").write_text(json.dumps(matrix))


def write_inventory(place: Path) -> None:
    slots = {"host.bmc": ("0", "host"), "host.bios": ("0", "host"), "host.driver": ("0", "")}
    components = [
        {"kind": kind, "slot": slot, "version": EDGES[kind][0], "source": f"/{kind}", "bmc": bmc}
        for kind, (slot, bmc) in slots.items()
    ]
    node = {"node": "n1", "vendor": "ami_megarac", "components": components}
    (place / "node.json").write_text(json.dumps(node))


def ask(place: Path, *more: str) -> tuple[Done, dict[str, Any]]:
    write_matrix(place)
    write_inventory(place)
    files = ["--inventory", "node.json", "--matrix", "matrix.yaml", "--release", "r"]
    done = run(["plan", *files, "--requests", *more], place)
    result = json.loads(done.stdout.splitlines()[-1]) if done.returncode < 2 else {}
    return done, result


def test_each_step_has_its_requests_or_the_play_that_does_it(tmp_path: Path) -> None:
    with serve_tree("dgx_h100") as bmc:
        done, result = ask(tmp_path, "--bmc", bmc.url, "--json")

    assert done.returncode == 0, done.stderr
    assert bmc.others == []
    steps = [
        (step["means"], [(r["bmc"], r["method"]) for r in step["requests"]])
        for step in result["steps"]
    ]
    assert steps == [
        ("redfish", [("host", "POST")]),
        ("redfish", [("host", "POST")]),
        ("redfish", [("host", "POST")]),
        ("ansible", []),
        ("redfish", [("host", "POST"), ("host", "POST")]),
    ]
    assert all(set(write) == WRITE for write in result["writes"])
    assert [w["path"].rpartition("/")[2] for w in result["writes"]] == [
        "upload",
        "Manager.Reset",
        "upload",
        "ComputerSystem.Reset",
        "ComputerSystem.Reset",
    ]
    assert [w["upload"] and w["upload"]["name"] for w in result["writes"][:3]] == [
        "bmc.fwpkg",
        None,
        "bios.fwpkg",
    ]
    assert result["refused"] is None


def test_a_file_that_is_not_at_hand_is_described_by_the_matrix(tmp_path: Path) -> None:
    with serve_tree("dgx_h100") as bmc:
        _, result = ask(tmp_path, "--bmc", f"host={bmc.url}")

    upload = result["writes"][0]["upload"]
    assert (upload["size"], upload["sha256"]) == (None, DIGEST)


def test_a_file_of_another_digest_is_refused_before_later_steps(tmp_path: Path) -> None:
    (tmp_path / "bmc.fwpkg").write_bytes(b"another file")
    with serve_tree("dgx_h100") as bmc:
        done, result = ask(tmp_path, "--bmc", bmc.url, "--artifacts", ".", "--json")

    assert done.returncode == 1
    assert result["refused"]["reason"] == "digest_mismatch"
    assert result["writes"] == []
    assert len(result["steps"]) == 1


def test_a_bmc_without_an_address_is_named(tmp_path: Path) -> None:
    done, result = ask(tmp_path, "--bmc", "DPU_1=https://127.0.0.1:1", "--json")

    assert done.returncode == 1
    assert "--bmc host=" in result["refused"]["unblock"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "--requests needs it"),
        (["--bmc", "https://b", "--maintenance-boot", "floppy"], "no such way"),
        (["--bmc", "https://a", "--bmc", "c=https://b", "--pin", "0" * 64], "one BMC only"),
        (["--bmc", "https://user:word@b"], "must not hold credentials"),
        (["--bmc", "https://b", "--artifacts", "nowhere"], "no such folder"),
    ],
)
def test_wrong_options_are_named_before_any_bmc_is_asked(
    options: list[str], named: str, tmp_path: Path
) -> None:
    done, _ = ask(tmp_path, *options)

    assert done.returncode == 2
    assert named in done.stderr
    assert "word" not in done.stderr
