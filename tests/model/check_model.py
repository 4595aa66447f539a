"""Search the handover model exhaustively, then leave its protections out; `make soak NAME=model`.

    python tests/model/check_model.py [--quick] [--size NODES,LEAVES,TENANTS,DAEMONS,FAULTS]

Prints each search, each protection with the violation that its absence leads to, and as the last
line JSON. Exit status 0: no violation of the whole model, and one for each protection left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from handover_actions import Handover
from handover_faults import PLANTED
from handover_search import Outcome, Search, list_labels
from handover_state import Size, make_first_state

FULL = (Size(2, 2, 2, 2, 1), Size(1, 2, 2, 2, 3))
QUICK = (Size(2, 2, 2, 2, 0), Size(1, 2, 2, 2, 1))
# The smallest size that shows what each absent protection leads to.
ONE_NODE = Size(1, 2, 2, 1, 1)
SIZE_OF = {
    "fence": Size(1, 1, 1, 1, 0),
    "row_first": Size(1, 1, 1, 1, 0),
    "objections": Size(1, 1, 1, 1, 0),
    "standing": Size(1, 1, 1, 1, 0),
    "take_back": Size(1, 1, 1, 1, 0),
    "coming": Size(1, 1, 1, 1, 1),
    "startup": Size(1, 1, 1, 1, 1),
    "save": Size(1, 1, 1, 1, 1),
    "watch": Size(1, 1, 1, 1, 1),
    "takeover": Size(1, 2, 1, 2, 0),
    "lease": Size(1, 2, 1, 2, 1),
    "await": Size(2, 1, 1, 1, 1),
    "turn": Size(2, 1, 1, 2, 0),
}


def search(size: Size, without: str = "") -> Outcome:
    """Search one size, with all protections or all but one."""
    left_out = frozenset([without]) if without else frozenset()
    return Search(Handover(size, left_out), make_first_state(size)).run()


def search_planted(name: str) -> Outcome:
    """Search the size in which the absence of this protection shows."""
    return search(SIZE_OF.get(name, ONE_NODE), name)


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def describe(size: Size) -> str:
    """Return a size as words."""
    names = ("nodes", "leaves", "tenants", "daemons", "faults")
    return " × ".join(f"{count} {name}" for count, name in zip(size, names, strict=True))


def search_sizes(sizes: tuple[Size, ...]) -> dict[str, Any]:
    """Search all sizes; their sums."""
    total: dict[str, Any] = {"states": 0, "transitions": 0, "violations": 0}
    for size in sizes:
        began = time.monotonic()
        outcome = search(size)
        total["states"] += outcome.states
        total["transitions"] += outcome.transitions
        total["violations"] += len(outcome.violations)
        say(
            f"{describe(size)}: {outcome.states} states, {outcome.transitions} transitions, "
            f"depth {outcome.depth}, {time.monotonic() - began:.0f} s"
        )
        for sentence in outcome.violations:
            say("\n".join([f"VIOLATION: {sentence}", *list_labels(outcome.trace)]))
    return total


def main() -> int:
    """0: the model holds, and fails without each protection."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the sizes that CI searches")
    parser.add_argument("--size", help="one size: nodes,leaves,tenants,daemons,faults")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    if options.size:
        sizes = (Size(*map(int, options.size.split(","))),)
    report = search_sizes(sizes)
    caught = []
    for name, sentence in PLANTED.items():
        outcome = search_planted(name)
        steps = (
            f"{len(outcome.trace)} steps: {outcome.violations[0]}" if outcome.violations else "-"
        )
        say(f"without {name} ({sentence}): {steps}")
        caught += [name] if outcome.violations else []
    missed = sorted(PLANTED.keys() - set(caught))
    report |= {
        "sizes": [list(size) for size in sizes],
        "planted": len(PLANTED),
        "caught": len(caught),
        "not_caught": missed,
    }
    say(json.dumps(report))
    return 1 if report["violations"] or missed else 0


if __name__ == "__main__":
    sys.exit(main())
