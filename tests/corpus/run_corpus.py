"""`make soak NAME=corpus`: judge and diagnose every labelled output, print how often the program is
right.

The table has one row for each kind of fault; then come the wrong answers. The last line is JSON.
Exit code 1: a target is missed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import fabric_score
from corpus_entries import load_entries
from corpus_score import (
    CULPRIT_MIN,
    PRECISION_MIN,
    RECALL_MIN,
    Score,
    answer,
    count_scores,
    list_misses,
)


def main() -> int:
    """Print the scores."""
    answers = [answer(entry) for entry in load_entries()]
    scores = count_scores(answers)
    _say("kind          entries  accused  right  precision  recall  culprit")
    for s in scores:
        _say(
            f"{s.kind:13} {s.entries:7} {s.accused:8} {s.right:6}  {s.precision:9.3f}"
            f"  {s.recall:6.3f}  {s.culprit:7.3f}"
        )
    for a in list_misses(answers):
        _say(
            f"wrong: {a.entry.id}: {a.kind} {a.part}, labelled {a.entry.kind} {a.entry.part}"
            f" ({a.evidence[:200]})"
        )
    judged = fabric_score.judge_all()
    fabric = [fabric_score.count(kind, said) for kind, said in judged.items()]
    for f in fabric:
        _say(
            f"{f.kind:13} {f.entries:7} {f.accused:8} {f.right:6}  {f.precision:9.3f}"
            f"  {f.recall:6.3f}        –"
        )
    for one in (o for said in judged.values() for o in said if o[1] != o[2]):
        _say(f"wrong: {fabric_score.describe(one)}")
    _say(json.dumps(summarize(scores, len(answers), fabric)))
    every = scores[-1]
    reached = (
        all(f.precision == 1.0 and f.recall >= RECALL_MIN for f in fabric)
        and every.precision >= PRECISION_MIN
        and every.recall >= RECALL_MIN
        and every.culprit >= CULPRIT_MIN
    )
    return 0 if reached else 1


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def summarize(
    scores: tuple[Score, ...], entries: int, fabric: Sequence[Score]
) -> dict[str, object]:
    """Return the last line: the sums, and each kind by its name."""
    every = scores[-1]
    return {
        "entries": entries,
        "faulty": every.entries,
        "healthy": entries - every.entries,
        "precision": round(every.precision, 4),
        "recall": round(every.recall, 4),
        "culprit": round(every.culprit, 4),
        "kinds": {
            s.kind: {
                "entries": s.entries,
                "precision": round(s.precision, 3),
                "recall": round(s.recall, 3),
                "culprit": round(s.culprit, 3),
            }
            for s in scores[:-1]
        },
        "fabric": {
            f.kind: {
                "faulty": f.entries,
                "precision": round(f.precision, 3),
                "recall": round(f.recall, 3),
            }
            for f in fabric
        },
    }


if __name__ == "__main__":
    sys.exit(main())
