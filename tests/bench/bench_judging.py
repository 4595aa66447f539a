"""How much CPU it takes to judge one node's full evidence: run with `.venv/bin/python`.

The evidence is what the recorded good outputs hold, for every check of a plain validation and for
the checks that are judged again after each load test, as the validator stores it: one JSON text a
result. The last line is JSON; times are CPU milliseconds of one node.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from provisioner import checks
from provisioner.checks.check import Check, CheckContext
from provisioner.model.cohort import Evidence, Verdict
from provisioner.model.node import NodeKind
from provisioner.planning.certification.regression import parse_outputs

ROOT = Path(__file__).parents[1] / "golden" / "checks"
CONTEXT = CheckContext.model_validate_json((ROOT / "context.json").read_text())
LINES = {c.name: c.line for check in checks.ALL for c in check.commands}
LIMIT_MS = 100.0
LOG_LINES = 3000
ORDINARY = (
    "2026-01-05T10:00:00,000000+00:00 pci 0000:1b:00.0: BAR 2 [mem 0x22e040000000-0x22e041ffffff"
    " 64bit pref]: assigned\n"
)


def stored(check: Check) -> str:
    """The evidence of one check as it stands in the store."""
    outputs = {
        file.stem: Evidence(
            source=LINES[file.stem.partition("@")[0]], exit_code=0, text=file.read_text()
        )
        for file in (ROOT / check.name / "good").glob("*.txt")
    }
    if "kernel_log" in outputs:  # the recorded one is a few lines; a boot prints thousands
        log = outputs["kernel_log"]
        text = log.text + ORDINARY * LOG_LINES
        outputs["kernel_log"] = log.model_copy(update={"text": text})
    return json.dumps({name: e.model_dump(mode="json") for name, e in outputs.items()})


def work() -> Sequence[tuple[Check, str]]:
    """Every result of a report, in order, with its evidence."""
    by_name = {check.name: check for check in checks.ALL}
    texts = {check.name: stored(check) for check in checks.ALL}
    names = [name.partition(" after ")[0] for name in checks.list_required_results(NodeKind.HOST)]
    return [(by_name[name], texts[name]) for name in names]


def judge_node(listed: Sequence[tuple[Check, str]]) -> int:
    """Read and judge all of it; how many passed."""
    passed = 0
    for check, text in listed:
        outputs = parse_outputs(text)
        assert outputs is not None
        passed += check.judge(outputs, CONTEXT).verdict is Verdict.PASS
    return passed


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    listed = work()
    judge_node(listed)  # patterns are compiled on first use
    times, passed = [], 0
    for _ in range(nodes):
        begun = time.process_time()
        passed = judge_node(listed)
        times.append((time.process_time() - begun) * 1000)
    each = {
        check.name: (len(text), min(_spent(check, text) for _ in range(3)))
        for check, text in dict(listed).items()
    }
    dearest = sorted(each.items(), key=lambda row: -row[1][1])[:8]
    for name, (size, spent) in dearest:
        sys.stdout.write(f"{name:24s} {size:9d} bytes {spent:8.3f} ms\n")
    found = {
        "results": len(listed),
        "passed": passed,
        "evidence_bytes": sum(len(text) for _, text in listed),
        "node_ms": round(statistics.median(times), 2),
        "node_ms_worst": round(max(times), 2),
        "limit_ms": LIMIT_MS,
        "under_limit": statistics.median(times) < LIMIT_MS,
    }
    sys.stdout.write(json.dumps(found) + "\n")


def _spent(check: Check, text: str) -> float:
    begun = time.process_time()
    outputs = parse_outputs(text)
    assert outputs is not None
    check.judge(outputs, CONTEXT)
    return (time.process_time() - begun) * 1000


if __name__ == "__main__":
    main()
