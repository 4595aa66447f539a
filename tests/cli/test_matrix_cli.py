"""`provisioner matrix` as a person or a script meets it: output and exit code."""

from __future__ import annotations

import json
from pathlib import Path

import program
from typer.testing import CliRunner

from provisioner.cli import app

ROOT = Path(__file__).parents[2]
SHIPPED = str(ROOT / "firmware_matrix.yaml")


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["matrix", *words])
    return result.exit_code, result.stdout


def test_check_of_the_shipped_file_is_good_for_a_laboratory():
    code, out = run("check", "--matrix", SHIPPED)

    assert code == 0
    assert "every release is reachable" in out


def test_check_for_production_blocks_and_says_why():
    code, out = run("check", "--matrix", SHIPPED, "--production", "--json")
    report = json.loads(out)

    assert code == 1
    assert report["ok"] is False
    assert any("host.driver" in r["where"] for r in report["remarks"])


def test_check_says_of_each_profile_whether_it_is_usable_and_its_gaps(tmp_path: Path):
    closed = 'version: "1", artifact: a.bin, sha256: "%s", evidence: "https://e"' % ("0" * 64)
    matrix = tmp_path / "m.yaml"
    matrix.write_text(
        "schema: 1\nreleases:\n  r:\n    profiles:\n"
        f"      whole: {{match: {{gpu_models: [H100]}}, pins: {{nic.cx7: {{{closed}}}}}}}\n"
        "      open:\n        match: {gpu_models: [H200]}\n        pins:\n"
        '          nic.cx7: {version: "2", artifact: b.bin}\n'
        "          host.bios: {version: unknown}\n"
    )

    report = json.loads(run("check", "--matrix", str(matrix), "--json")[1])
    table = run("check", "--matrix", str(matrix))[1]

    assert [(r["profile"], r["production_ready"], r["missing"]) for r in report["releases"]] == [
        ("whole", True, []),
        (
            "open",
            False,
            [
                {
                    "problem": "no published version",
                    "remedy": "Close the pin in an overlay.",
                    "kinds": ["host.bios"],
                },
                {
                    "problem": "no file name or no SHA-256",
                    "remedy": "Add `artifact` and `sha256`.",
                    "kinds": ["nic.cx7"],
                },
                {
                    "problem": "the pin names no source",
                    "remedy": "Add `evidence`.",
                    "kinds": ["nic.cx7"],
                },
            ],
        ),
    ]
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines()]
    assert [row for row in rows if row][:4] == [
        ["r", "whole", "yes", "1 of 1", ""],
        ["r", "open", "no", "0 of 2", "no published version: host.bios"],
        ["", "", "", "", "no file name or no SHA-256: nic.cx7"],
        ["", "", "", "", "the pin names no source: nic.cx7"],
    ]


def test_show_lists_the_pins_of_a_release():
    code, out = run("show", "spectrum-x-1.3.0", "--matrix", SHIPPED, "--json")
    profiles = json.loads(out)["releases"]["spectrum-x-1.3.0"]["profiles"]

    assert code == 0
    assert profiles["sn5600"]["pins"]["switch.os"]["version"] == "5.12.1.100"


def test_graph_draws_in_the_terminal_and_into_a_file(tmp_path: Path):
    picture = tmp_path / "paths.svg"

    assert run("graph", "--matrix", SHIPPED)[0] == 0
    assert run("graph", "--matrix", SHIPPED, "--svg", str(picture))[0] == 0
    assert picture.read_text().startswith("<svg")


def test_bad_input_is_one_line_and_exit_code_two(tmp_path: Path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("schema: 1\nreleases: {}\nwrong: 1\n")
    broken = tmp_path / "broken.yaml"
    broken.write_bytes(b"schema: \xff\xfe\n")
    cases = [
        ["check", "--matrix", str(bad)],
        ["check", "--matrix", str(broken)],
        ["check", "--matrix", str(tmp_path / "absent.yaml")],
        ["check", "--matrix", str(tmp_path)],
        ["show", "no-such-release"],
        ["graph", "--svg", str(tmp_path / "absent" / "x.svg")],
    ]
    for words in cases:
        done = program.run(["matrix", *words], ROOT)
        assert done.returncode == 2, words
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        assert done.stderr.startswith("error: ")


CLOSES = """\
releases:
  spectrum-x-1.3.0:
    profiles:
      hgx-h100-bf3:
        pins:
          host.bios: {version: "2.4", evidence: our own}
"""


def test_an_overlay_alone_is_laid_over_the_shipped_matrix_from_any_folder(tmp_path: Path):
    (tmp_path / "site.yaml").write_text(CLOSES)
    (tmp_path / "with_schema.yaml").write_text("schema: 1\n" + CLOSES)
    (tmp_path / "edges_only.yaml").write_text("edges: {}\n")

    for files in (
        ["site.yaml"],
        ["with_schema.yaml"],
        ["edges_only.yaml", "site.yaml"],
        ["firmware_matrix.yaml", "site.yaml"],
    ):
        words = [word for file in files for word in ("--matrix", file)]
        done = program.run(["matrix", "show", "spectrum-x-1.3.0", "--json", *words], tmp_path)
        assert done.returncode == 0, (files, done.stderr)
        profiles = json.loads(done.stdout)["releases"]["spectrum-x-1.3.0"]["profiles"]
        assert profiles["hgx-h100-bf3"]["pins"]["host.bios"]["version"] == "2.4", files
        assert profiles["sn5600"]["pins"]["switch.os"]["version"] == "5.12.1.100"


def test_a_matrix_of_its_own_takes_the_place_of_the_shipped_one(tmp_path: Path):
    own = tmp_path / "own.yaml"
    own.write_text(
        "schema: 1\nreleases:\n  r:\n    profiles:\n"
        "      p: {match: {gpu_models: [H100]}, pins: {host.bios: {version: unknown}}}\n"
    )

    assert list(json.loads(run("show", "--matrix", str(own), "--json")[1])["releases"]) == ["r"]


def test_export_writes_the_shipped_matrix_and_replaces_no_file(tmp_path: Path):
    out = tmp_path / "firmware_matrix.yaml"

    assert run("export", str(out))[0] == 0
    assert out.read_text() == run("export")[1] == Path(SHIPPED).read_text()
    again = program.run(["matrix", "export", str(out)], tmp_path)
    assert again.returncode == 2
    assert "it is there already" in again.stderr


def test_check_of_one_release_and_profile_is_silent_about_all_others(tmp_path: Path):
    words = ("check", "--production", "--json", "--release", "spectrum-x-1.3.0")
    code, out = run(*words, "--profile", "sn5600")
    whole = json.loads(run(*words)[1])
    report = json.loads(out)

    assert code == 1  # no site has built the image yet
    assert {(r["release"], r["profile"]) for r in report["releases"]} == {
        ("spectrum-x-1.3.0", "sn5600")
    }
    assert {r["where"] for r in report["remarks"] if r["weight"] == "production"} == {
        "images.maintenance",
        "spectrum-x-1.3.0/sn5600: switch.os",
    }
    assert len(whole["remarks"]) > len(report["remarks"])
    assert not any("doca-3.2.2" in r["where"] for r in whole["remarks"])


def test_check_refuses_names_that_the_matrix_does_not_have():
    for words, told in (
        (["--release", "none"], "there is no such release"),
        (["--profile", "none"], "there is no such profile"),
        (["--release", "spectrum-x-1.3.0", "--profile", "gb200-compute"], "no such profile"),
    ):
        done = program.run(["matrix", "check", *words], ROOT)
        assert done.returncode == 2, words
        assert told in done.stderr


def test_check_plans_nodes_as_they_were_inspected_and_names_every_refusal_at_once(tmp_path: Path):
    inventory = tmp_path / "node.json"
    seen = {
        "node": "n0",
        "vendor": "supermicro",
        "model": "SYS-821GE-TNHR",
        "components": [
            {"kind": kind, "slot": kind, "version": "0.0.1", "source": "bmc"}
            for kind in ("host.bios", "host.bmc", "hgx.bundle")
        ],
        "devices": [
            {"kind": "gpu", "slot": f"GPU_SXM_{n}", "model": "NVIDIA H100 80GB HBM3"}
            for n in range(1, 9)
        ],
    }
    inventory.write_text(json.dumps(seen))

    words = ("check", "--json", "--release", "spectrum-x-1.3.0", "--inventory", str(inventory))
    code, out = run(*words)
    mine = [r for r in json.loads(out)["remarks"] if r["where"].startswith("node.json: ")]

    assert code == 1
    assert mine
    assert all(r["weight"] == "blocks" and r["remedy"] for r in mine)
    assert program.run(["matrix", "check", "--inventory", str(inventory)], ROOT).returncode == 2
