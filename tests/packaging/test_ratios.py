"""The page of ratios is the one that its command writes."""

from __future__ import annotations

import csv
import importlib
from pathlib import Path
from typing import Any

import pytest

BENCHES = Path(__file__).parents[1] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHES)
    return importlib.import_module("bench_ratios")


def read(page: Path) -> list[list[str]]:
    with page.open(encoding="utf-8", newline="") as lines:
        return list(csv.reader(lines))


def test_the_page_has_the_ratios_that_are_measured_with_their_commands_and_targets(bench: Any):
    wanted = [[one.says, one.command, f"{one.most:g}"] for one in bench.RATIOS]

    assert [row[:3] for row in read(bench.PAGE)[1:]] == wanted
    for one in bench.RATIOS:
        assert (BENCHES / f"bench_{one.bench.replace('-', '_')}.py").is_file()


def test_what_was_measured_is_written_with_its_date_and_the_rest_stays(bench: Any, tmp_path: Path):
    page = tmp_path / "ratios.csv"
    bench.renew({"polled": 2.0, "intake": 2.96}, page)
    first = {row[0]: row[3:] for row in read(page)}
    bench.renew({"polled": 1.7}, page)
    second = {row[0]: row[3:] for row in read(page)}

    polled, event, intake = (one.says for one in bench.RATIOS[:3])
    assert first[polled][0] == "**2**"
    assert second[polled][0] == "1.7"
    assert "load" in second[polled][1]
    assert second[intake] == first[intake]
    assert second[intake][0] == "2.96"
    assert second[event] == ["not run", ""]


def test_a_run_made_before_is_taken_by_its_last_line(bench: Any, tmp_path: Path, capsys: Any):
    said = tmp_path / "scale-out.log"
    said.write_text('made 8 nodes\n{"share_of_3": 0.35, "reached": true}\n')

    code = bench.main(["--only", "daemons", "--dry", "--told", f"daemons={said}"])

    assert code == 0
    assert '"ratios": {"daemons": 0.35}' in capsys.readouterr().out


def test_of_several_runs_the_median_counts(bench: Any, monkeypatch: pytest.MonkeyPatch):
    said = iter(['{"a": 3.0}', '{"a": 9.0}', '{"a": 2.0}'])
    run = "import sys; print(sys.argv[1])"
    popen = bench.subprocess.Popen

    def one(_command: list[str], **how: Any) -> Any:
        return popen([bench.sys.executable, "-c", run, next(said)], **how)

    monkeypatch.setattr(bench.subprocess, "Popen", one)

    assert bench.measure(bench.Ratio("x", "", "idle", (), "a", 1.0, times=3)) == 3.0


def test_a_benchmark_without_the_figure_gives_none(bench: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bench.sys, "executable", "/bin/echo")

    assert bench.measure(bench.RATIOS[0]) is None
