"""The ratios that say how near to the limit the program is, each of one run; renews their page.

    make bench NAME=ratios                     (all: three hours on a quiet machine)
    make bench NAME=ratios ARGS="--only intake polled --dry"
    make bench NAME=ratios ARGS="--only daemons --told daemons=build/scale-out.log"

Each is a figure out of the last line of another benchmark, which runs in a process of its own, some
of them several times: the median counts. `--told` takes the last line of a run that was made
before, by the same command, out of what it printed. `docs/ratios.csv` gets the figure with the date
and the load; rows of benchmarks that did not run stay as they were. `--dry` writes nothing. The
last line is JSON; exit code 1 if one is beyond its target.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import this_machine

PAGE = Path(__file__).parents[2] / "docs" / "ratios.csv"
COLUMNS = ("figure", "command", "at most", "last result", "taken")


@dataclass(frozen=True)
class Ratio:
    """`figure`: where the last line of a benchmark has it, by names with dots between."""

    name: str
    says: str
    bench: str
    arguments: tuple[str, ...]
    figure: str
    most: float
    times: int = 1  # it is run

    @property
    def command(self) -> str:
        given = f' ARGS="{" ".join(self.arguments)}"' if self.arguments else ""
        return f"`make bench NAME={self.bench}{given}`"


RATIOS = (
    Ratio(
        "polled",
        "a watch that polls all BMCs, over the TLS handshakes in it",
        "watch",
        (),
        "polled_ratio",
        1.75,
    ),
    Ratio(
        "event",
        "an event over a connection of its own, over our part of its handshake",
        "watch-whole",
        ("--nodes", "256", "--events", "100000", "--minutes", "2"),
        "event_in_handshakes",
        2.0,
    ),
    Ratio(
        "intake",
        "CPU of an intake, over a bare client's for the same requests and handshakes",
        "intake",
        ("--only", "ours"),
        "ours.cpu_ratio_bare",
        3.0,
        times=5,
    ),
    Ratio(
        "stops",
        "the longest hold of the event loop while 1,614 hosts are read first, ms of CPU",
        "fleet-up",
        ("--stops",),
        "loop_held_max_ms",
        100.0,
    ),
    Ratio(
        "decision",
        "a decision of a campaign at 65,536 nodes: ms in the event loop",
        "scale",
        ("16384", "65536"),
        "costs.campaign_decision_in_loop_ms.65536",
        50.0,
    ),
    Ratio("memory", "memory of an idle daemon, MiB", "idle", (), "rss_mb", 100.0),
    Ratio(
        "daemons",
        "CPU of the busiest of three daemons at 65,536 nodes, over that of one alone",
        "scale-out",
        ("--nodes", "65536", "--daemons", "1", "2", "3", "--minutes", "2"),
        "share_of_3",
        0.40,
    ),
)


def measure(ratio: Ratio) -> float | None:
    """Run its benchmark, whose output is shown; return the median figure, None if there is none."""
    script = Path(__file__).with_name(f"bench_{ratio.bench.replace('-', '_')}.py")
    figures = []
    for _ in range(ratio.times):
        last = ""
        command = [sys.executable, str(script), *ratio.arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                sys.stdout.write(line)
                sys.stdout.flush()
                last = line
        if (figure := find_figure(ratio, last)) is not None:
            figures.append(figure)
    return statistics.median(figures) if len(figures) == ratio.times else None


def find_figure(ratio: Ratio, last: str) -> float | None:
    """Return the figure in the last line of its benchmark, None if it is not there."""
    try:
        told: Any = json.loads(last)
        return float(reduce(lambda part, name: part[name], ratio.figure.split("."), told))
    except (ValueError, KeyError, TypeError):
        return None


def renew(
    found: dict[str, float], page: Path = PAGE, loads: Mapping[str, float] | None = None
) -> None:
    """Write the figures into the page; the other rows stay. `loads`: of runs made before."""
    rows: dict[str, list[str]] = {}
    if page.is_file():
        with page.open(encoding="utf-8", newline="") as lines:
            rows = {row[0]: row for row in list(csv.reader(lines))[1:]}
    day, load = time.strftime("%d %B %Y").lstrip("0"), this_machine.told()["load"]
    with page.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for ratio in RATIOS:
            start = [ratio.says, ratio.command, f"{ratio.most:g}"]
            before = rows.get(ratio.says, [*start, "not run", ""])[3:]
            if (value := found.get(ratio.name)) is not None:
                shown = f"{value:.3g}"
                taken = f"{day}, load {(loads or {}).get(ratio.name, load)}"
                before = [shown if value <= ratio.most else f"**{shown}**", taken]
            writer.writerow([*start, *before])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, renew the page, print the JSON."""
    ask = argparse.ArgumentParser(description=__doc__)
    names = [ratio.name for ratio in RATIOS]
    ask.add_argument("--only", nargs="+", choices=names, default=names)
    ask.add_argument("--dry", action="store_true", help="leave the page as it is")
    ask.add_argument("--told", nargs="+", default=[], metavar="NAME=FILE", help="runs made before")
    asked = ask.parse_args(arguments)
    texts = {name: Path(file).read_text() for name, file in (t.split("=", 1) for t in asked.told)}
    told_by = {name: text.strip().splitlines()[-1] for name, text in texts.items()}
    measured = {
        one.name: find_figure(one, told_by[one.name]) if one.name in told_by else measure(one)
        for one in RATIOS
        if one.name in asked.only
    }
    found = {name: value for name, value in measured.items() if value is not None}
    if not asked.dry:
        loads = {name: json.loads(last)["load"] for name, last in told_by.items() if name in found}
        renew(found, loads=loads)
    most = {ratio.name: ratio.most for ratio in RATIOS}
    beyond = [name for name, value in measured.items() if value is None or value > most[name]]
    told = {**this_machine.told(), "ratios": measured, "beyond": beyond, "reached": not beyond}
    sys.stdout.write(json.dumps(told) + "\n")
    return 0 if told["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
