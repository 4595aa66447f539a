"""`provisioner plan` on files: exit code 0 with a plan, 1 when blocked, 2 for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from program import Done, run

MATRIX = """\
schema: 1
releases:
  r:
    profiles:
      p:
        match: {kind: host}
        pins:
          host.bmc: {version: "2.0"}
edges:
  host.bmc:
    - from: ["1.0"]
      to: "2.0"
      activates_by: bmc_reset
      artifact: bmc.fwpkg
      sha256: "%s"
      evidence: "https://example.com/notes"
""" % ("0" * 64)


def provisioner(tmp_path: Path, *arguments: str) -> Done:
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    given = ["plan", "--matrix", "matrix.yaml", *arguments]
    return run(given, tmp_path)


def inspected(tmp_path: Path, version: str | None) -> str:
    """A file in the form that `provisioner inspect --json` prints."""
    part = {"kind": "host.bmc", "slot": "BMC", "version": version, "source": "/x", "bmc": "host"}
    system = {"model": "HGX", "serial": "S1", "uuid": None, "power": "On"}
    whole = {"url": "https://b", "vendor": "V", "quirk": "unknown", "system": system}
    whole |= {"components": [part], "devices": [], "gaps": []}
    (tmp_path / "node.json").write_text(json.dumps(whole))
    return "node.json"


def test_a_plan_is_printed_with_its_reasons(tmp_path: Path) -> None:
    file = inspected(tmp_path, "1.0")
    done = provisioner(tmp_path, "--inventory", file, "--release", "r", "--json")
    found = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    assert [s["kind"] for s in found["steps"]] == ["update", "activate"]
    assert (found["profile"], found["resets"], found["done"]) == ("p", 1, False)
    table = provisioner(tmp_path, "--inventory", file, "--release", "r")
    assert "1 resets" in table.stdout


def test_a_blocked_node_exits_with_one_and_says_why(tmp_path: Path) -> None:
    file = inspected(tmp_path, "[bold]0.1")
    done = provisioner(tmp_path, "--inventory", file, "--release", "r")

    assert done.returncode == 1
    assert "[bold]0.1" in done.stdout


BAD = [
    ("", "not JSON"),
    ("[1]", "not a JSON object"),
    ("{}", "no inventory"),
    ('{"components": 3, "vendor": "v"}', "components"),
    ('{"components": [{"kind": "x"}], "vendor": "v"}', "components.0.slot"),
    ("[" * 100_000, "not JSON"),
    ("\udcff", "not JSON"),
]


@pytest.mark.parametrize(("text", "words"), BAD)
def test_bad_input_is_one_line_and_exit_code_two(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "bad.json").write_text(text, errors="surrogateescape")
    done = provisioner(tmp_path, "--inventory", "bad.json", "--release", "r")

    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--release", "nope"),
        ("--release", "r", "--profile", "nope"),
        ("--release", "r", "--neighbour", "switch.os"),
        ("--release", "r", "--inventory", "missing.json"),
    ],
)
def test_a_wrong_name_is_bad_input(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = provisioner(tmp_path, "--inventory", inspected(tmp_path, "1.0"), *arguments)

    assert done.returncode == 2
    assert "Traceback" not in done.stderr
