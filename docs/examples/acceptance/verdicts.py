"""The verdict of each id, from the runner's JUnit file and the suite's list of checks."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from unoffered import REASONS

OWN = "own"  # checks that are not in the suite: our file has them itself
NO_HOST = "it wants a host that answers SSH, which needs root and systemd-nspawn here"
UNWIRED = "N/A"  # a check that proves no requirement of the suite's plan


@dataclass(frozen=True)
class Verdict:
    """The verdict of one id: of the worst of its checks."""

    state: str  # passed, failed or skipped
    message: str
    suite: str
    checks: tuple[str, ...]


def list_checks(suite: Path, name: str) -> dict[str, dict[str, Any]]:
    """Return the checks of a suite by name, with their ids and steps."""
    own = Path(__file__).with_name(f"{name}.yaml")
    file = own if name == OWN else suite / "isvctl" / "configs" / "suites" / own.name
    groups = yaml.safe_load(file.read_text(encoding="utf-8"))["tests"]["validations"]
    return {
        check: {"step": group.get("step", ""), **fields}
        for group in groups.values()
        for check, fields in group["checks"].items()
    }


def read_cases(junit: Path) -> dict[str, tuple[str, str]]:
    """Return the state and the message of each check in a JUnit file."""
    cases = {}
    for case in ET.parse(junit).iter("testcase"):  # noqa: S314 (a file of our own run)
        state = "passed"
        message = ""
        for kind, name in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
            element = case.find(kind)
            if element is not None:
                state = name
                message = element.get("message") or (element.text or "").strip()
        cases[case.get("name", "")] = (state, message)
    return cases


def read_verdicts(
    suite: Path, name: str, junit: Path, only: Collection[str] = ()
) -> dict[str, Verdict]:
    """Return the verdict of each id of a suite, or of those of some of its steps."""
    cases = read_cases(junit)
    rows: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
    for check, fields in list_checks(suite, name).items():
        left_out = only and fields["step"] not in only
        of_guests = fields.get("requires") == ["vm"]  # virtual machines are not in this program
        if left_out or of_guests or fields.get("test_id", UNWIRED) == UNWIRED:
            continue
        state, message = cases.get(check, ("skipped", "the runner did not report it"))
        if "ssh" in fields.get("labels", ()) and state == "skipped":
            gpus = "gpu" in fields["labels"]
            own_reason = REASONS.get(fields["step"], NO_HOST)
            message = "it wants GPUs in a real host" if gpus else own_reason
        rows[fields["test_id"]].append((state, message, check))
    order = {"failed": 0, "skipped": 1, "passed": 2}
    verdicts = {}
    for test_id, own in rows.items():
        state, message, _ = min(own, key=lambda row: order[row[0]])
        checks = tuple(check for _, _, check in own)
        verdicts[test_id] = Verdict(state, message, name, checks)
    return verdicts
