"""`provisioner checks`: any output is judged offline, and the exit code says how."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from program import Done, run

from provisioner import checks
from provisioner.model.cohort import Evidence

GOLDEN = Path(__file__).parents[1] / "golden" / "checks"


def judge(where: Path, check: str, *words: str, code: int) -> dict[str, Any]:
    done = run(["checks", "judge", check, *words, "--json"], where)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def refused(where: Path, *words: str) -> str:
    done: Done = run(["checks", *words], where)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.fixture
def nccl(tmp_path: Path) -> Path:
    shutil.copy(GOLDEN / "nccl_single" / "good" / "nccl.txt", tmp_path / "out.txt")
    return tmp_path


def test_the_list_has_every_check_with_commands_limits_and_sources(tmp_path: Path) -> None:
    rows = {r["check"]: r for r in json.loads(run(["checks", "list", "--json"], tmp_path).stdout)}

    assert list(rows) == [check.name for check in checks.ALL]
    assert rows["nccl_single"]["runs"] == "every validation"
    assert rows["dcgm_long"]["runs"] == "where selected"
    assert {t["value"] for t in rows["hbm"]["thresholds"]} == {1905000, 2332500, 4072500}
    assert all(c["limit_s"] > 0 and c["line"] for r in rows.values() for c in r["commands"])
    assert "nvbandwidth -j" in run(["checks", "list"], tmp_path).stdout


def test_a_bare_output_that_is_good_ends_with_zero(nccl: Path) -> None:
    told = judge(nccl, "nccl_single", "--evidence", "out.txt", code=0)

    assert (told["verdict"], told["findings"]) == ("pass", [])
    assert told["judged_as"]["gpu_model"] == "H100"  # the output names its GPUs
    assert told["measured"]["all_reduce_gb_s/host"] == pytest.approx(478.17)


def test_what_a_tool_printed_is_judged_without_the_words_that_end_our_lines(
    tmp_path: Path,
) -> None:
    whole = (GOLDEN / "clocks" / "good" / "smi_query.txt").read_text()
    (tmp_path / "bare.txt").write_text(whole.removesuffix("end-of-output\n"))

    assert "end-of-output" not in (tmp_path / "bare.txt").read_text()
    judge(tmp_path, "clocks", "--evidence", "bare.txt", code=0)


def test_a_bad_output_ends_with_one_and_says_what_is_wanted(nccl: Path) -> None:
    told = judge(nccl, "nccl_single", "--evidence", "out.txt", "--gpus", "16", code=1)

    assert told["findings"][0]["wanted"] == "16"
    done = run(["checks", "judge", "nccl_single", "--evidence", "out.txt", "--gpus", "4"], nccl)
    assert done.returncode == 1
    assert "ranks in the all-reduce" in done.stdout


def test_without_a_floor_there_is_no_verdict_and_no_pass(nccl: Path) -> None:
    words = ("--evidence", "out.txt", "--gpu-model", "B200")

    told = judge(nccl, "nccl_single", *words, code=1)

    assert told["verdict"] == "skipped"
    assert "learned baseline needed" in told["findings"][0]["detail"]


def test_a_sites_own_threshold_decides(nccl: Path) -> None:
    own = nccl / "own.yaml"
    words = ("--evidence", "out.txt", "--gpu-model", "B200", "--thresholds", "own.yaml")
    for value, code in ((470, 0), (480, 1)):
        own.write_text(f'all_reduce_gb_s:\n  B200: {{value: {value}, source: "acceptance"}}\n')

        judge(nccl, "nccl_single", *words, code=code)


def test_a_profile_of_the_matrix_says_the_model(nccl: Path) -> None:
    told = judge(nccl, "nccl_single", "--evidence", "out.txt", "--profile", "hgx-h200-bf3", code=0)

    assert told["judged_as"] == {"gpu_model": "H200", "gpus": 8, "profile": "hgx-h200-bf3"}


def test_what_we_stored_is_judged_with_how_it_ended(nccl: Path) -> None:
    text = (nccl / "out.txt").read_text()
    stored = {"nccl": Evidence(source="all_reduce_perf", exit_code=0, text=text, truncated=True)}
    whole = {name: e.model_dump(mode="json") for name, e in stored.items()}
    (nccl / "stored.json").write_text(json.dumps(whole))
    (nccl / "one.json").write_text(json.dumps(whole["nccl"]))

    for file in ("stored.json", "one.json"):
        told = judge(nccl, "nccl_single", "--evidence", file, code=1)

        assert "cut off" in told["findings"][0]["detail"]


def test_a_check_of_several_commands_takes_each_by_name(tmp_path: Path) -> None:
    folder = GOLDEN / "nccl_collectives" / "good"
    files = [
        word
        for file in sorted(folder.glob("*.txt"))
        for word in ("--evidence", f"{file.stem}={file}")
    ]
    context = GOLDEN / "context.json"

    judge(tmp_path, "nccl_collectives", *files, "--context", str(context), code=0)
    said = refused(tmp_path, "judge", "nccl_collectives", "--evidence", files[1].partition("=")[2])
    assert "NAME=FILE" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["judge", "nccl_singel", "--evidence", "out.txt"], "Did you mean nccl_single"),
        (["judge", "nccl_single", "--evidence", "nothing.txt"], "No such file"),
        (
            ["judge", "nccl_single", "--evidence", "out.txt", "--gpu-model", "X1"],
            "Known models: H100",
        ),
        (["judge", "nccl_single", "--evidence", "out.txt", "--profile", "x"], "profile"),
        (["judge", "ecc", "--evidence", "out.txt", "--thresholds", "out.txt"], "no thresholds"),
        (["judge", "nccl_single", "--evidence", "out.txt", "--context", "out.txt"], "no context"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_two(
    nccl: Path, words: list[str], says: str
) -> None:
    assert says in refused(nccl, *words)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("all_reduce_gbs:\n  H100: {value: 1, source: x}\n", "no threshold 'all_reduce_gbs'"),
        ("all_reduce_gb_s:\n  H100: {value: 1}\n", "line 2"),
        ("all_reduce_gb_s:\n  H100: {value: -1, source: x}\n", "greater than or equal to 0"),
        ("all_reduce_gb_s:\n  H100: {value: nan, source: x}\n", "finite"),
        ("all_reduce_gb_s:\n  H300: {value: 1, source: x}\n", "no GPU model"),
        ("all_reduce_gb_s:\n  H100: {source: x}\n", "no value"),
        ("[1, 2]\n", "no thresholds"),
    ],
)
def test_a_wrong_thresholds_file_is_refused_with_its_place(
    nccl: Path, text: str, says: str
) -> None:
    (nccl / "own.yaml").write_text(text)

    said = refused(
        nccl, "judge", "nccl_single", "--evidence", "out.txt", "--thresholds", "own.yaml"
    )

    assert says in said
    assert "own.yaml" in said
