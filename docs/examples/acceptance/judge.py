#!/usr/bin/env python3
"""Judge answers of steps by the suite's own checks; runs with the suite's Python.

    judge.py SUITE < [{"id": ..., "suite": ..., "answer": {...}, "step": ...}, ...]

The output is one JSON list: `passed`, `failed` or `skipped` and the message of each check. The
suite's runner itself gives the verdicts that count; this one is for counter-proofs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

OWN = "own"  # checks that are not in the suite: our file has them itself


def list_checks(suite: Path, name: str) -> list[tuple[str, str, str, dict[str, Any]]]:
    """Return (id, step, check, parameters) of each check of a suite."""
    own = Path(__file__).with_name(f"{name}.yaml")
    file = own if name == OWN else suite / "isvctl" / "configs" / "suites" / own.name
    groups = yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]["validations"]
    return [
        (str(fields.get("test_id", "")), fields.get("step") or group.get("step", ""), check, fields)
        for group in groups.values()
        for check, fields in group["checks"].items()
    ]


def judge(check: str, fields: dict[str, Any], answer: dict[str, Any]) -> tuple[str, str]:
    """Return the verdict of one check on one answer."""
    from isvtest.core.composite import CompositeCheck
    from isvtest.core.validation import get_validation_class

    kind = CompositeCheck if "compose" in fields else get_validation_class(check)
    skipped = pytest.skip.Exception
    try:
        result = kind(config={**fields, "step_output": answer}).execute()
    except skipped as reason:
        return "skipped", str(reason)
    passed = result["passed"]
    return ("passed" if passed else "failed"), str(result["output"] or result["error"])


def main() -> int:
    """Judge the answers on standard input."""
    suite = Path(sys.argv[1])
    verdicts = []
    for row in json.load(sys.stdin):
        own = [c for c in list_checks(suite, row["suite"]) if c[0] == row["id"]]
        of_step = [c for c in own if c[1] == row["step"]]  # none, if our step has another name
        for _id, _step, check, fields in of_step or own:
            verdict, message = judge(check, fields, row["answer"])
            verdicts.append({**row, "check": check, "verdict": verdict, "message": message})
            verdicts[-1].pop("answer")
    json.dump(verdicts, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
