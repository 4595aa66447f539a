"""Holds journals of one daemon and of two against the model (`make soak NAME=journals`).

    python check_journals.py [COUNT]      (so many seeds of each kind; 40 without it)

The last line is JSON; the exit status is 1 where an entry was no step of the model.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import this_machine
from handover_journal import Recorder
from handover_pair import PairRecorder
from handover_trace import Journal, check_journal
from port_given import TENANTS
from virtual_time import run

ACTS = 20
COUNT = 40
FIRST = 1000  # the tests follow seeds below


def record_one(seed: int) -> Journal:
    return run(Recorder(seed).record(ACTS))


def record_two(seed: int) -> Journal:
    return run(PairRecorder(seed).record(ACTS))


def judge(name: str, record: Callable[[int], Journal], seeds: range) -> dict[str, object]:
    """The figures of one kind of journal."""
    entries = 0
    taken: set[str] = set()
    refused: list[str] = []
    for seed in seeds:
        journal = record(seed)
        verdict = check_journal(journal, len(TENANTS))
        entries += len(journal.entries)
        taken |= verdict.taken
        if verdict.refused:
            refused.append(f"seed {seed}: {verdict.refused}")
    counts = f"{len(seeds)} journals, {entries} entries, {len(refused)} refused"
    sys.stdout.write(f"{name}: {counts}\n")
    figures = {"journals": len(seeds), "entries": entries, "steps": len(taken), "refused": refused}
    return {f"{name}_{key}": value for key, value in figures.items()}


def main(arguments: list[str]) -> int:
    seeds = range(FIRST, FIRST + int(arguments[0] if arguments else COUNT))
    figures = judge("one_daemon", record_one, seeds) | judge("two_daemons", record_two, seeds)
    sys.stdout.write(json.dumps(figures | this_machine.told()) + "\n")
    return 1 if figures["one_daemon_refused"] or figures["two_daemons_refused"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
