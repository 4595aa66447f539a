"""`provisioner matrix refresh` as a person meets it: a draft, a difference, no file replaced."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from provisioner.cli import app

MATRIX = (
    "schema: 1\nreleases:\n  r:\n    profiles:\n      p:\n        match: {gpu_models: [H100]}\n"
    "        pins:\n          host.bios: {version: unknown}\n"
    "          nic.cx7: {version: 28.43.2026, evidence: page}\n"
)


def run(folder: Path, *words: str):
    (folder / "matrix.yaml").write_text(MATRIX)
    (folder / "notes.csv").write_text("component,version,file\nhost.bios,2.10,b.bin\nOther,1,\n")
    matrix = ("--matrix", str(folder / "matrix.yaml"))
    return CliRunner().invoke(
        app, ["matrix", "refresh", str(folder / "notes.csv"), *matrix, *words]
    )


PLACE = ("--release", "r", "--profile", "p", "--evidence", "release notes, read 2026-11-23")


def test_the_draft_is_an_overlay_and_the_difference_stands_beside_it(tmp_path: Path):
    done = run(tmp_path, *PLACE)
    draft = tmp_path / "draft.yaml"
    draft.write_text(done.stdout)

    checked = CliRunner().invoke(
        app,
        ["matrix", "show", "r", "--json"]
        + [w for f in ("matrix.yaml", "draft.yaml") for w in ("--matrix", str(tmp_path / f))],
    )

    assert done.exit_code == 0
    assert "closes" in done.stderr
    assert "unclassified" in done.stderr
    pin = json.loads(checked.stdout)["releases"]["r"]["profiles"]["p"]["pins"]["host.bios"]
    assert pin == {
        "version": "2.10",
        "artifact": "b.bin",
        "evidence": "release notes, read 2026-11-23",
    }
    assert (tmp_path / "matrix.yaml").read_text() == MATRIX


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path):
    out = tmp_path / "site.yaml"

    assert run(tmp_path, *PLACE, "--out", str(out)).exit_code == 0
    first = out.read_text()
    again = run(tmp_path, "--out", str(out))

    assert isinstance(again.exception, Exception)
    assert "nothing is written over" in str(again.exception)
    assert out.read_text() == first


def test_the_difference_is_one_json_object(tmp_path: Path):
    report = json.loads(run(tmp_path, *PLACE, "--map", "Other=host.cpld", "--json").stdout)

    assert [(c["verdict"], c["kind"]) for c in report["changes"]] == [
        ("closes", "host.bios"),
        ("adds", "host.cpld"),
    ]
    assert report["obstacles"] == []
    assert report["text"].startswith("# Drafted by")


def test_wrong_words_are_refused(tmp_path: Path):
    for words in (("--map", "x"), ("--map", "x=no.kind"), ("--release", "r")):
        assert run(tmp_path, *words).exit_code != 0


def test_an_empty_or_absent_file_is_refused(tmp_path: Path):
    (tmp_path / "empty.csv").write_text("")
    for name in ("empty.csv", "absent.csv"):
        done = CliRunner().invoke(app, ["matrix", "refresh", str(tmp_path / name)])

        assert str(tmp_path / name) in str(done.exception)
