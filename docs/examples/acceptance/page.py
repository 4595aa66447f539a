"""The generated page of results (docs/reference_tables.py), drawn from the result of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unoffered import OF_PLAN

HEAD = """# Results of NVIDIA's acceptance suite

Made from `docs/examples/acceptance/result.json`, which `make acceptance` writes. How the suite is
run and read is in [the acceptance suite](../acceptance-suite.md). A pass counts only if the step
fails once the thing behind it is broken, which is the counter-proof. Rows of `own` are checks of
ours for ids of the suite's plan that it has no check for.
"""
PLAN = """

Ids of the plan without a check that are not answered:

| id | reason |
|---|---|"""
RESULT = """
Run on {date} with version {suite_version} and {nodes} simulated hosts, suites {suites}:
of {of} ids {passed} passed, {failed} failed, and {skipped} were skipped.
"""
ALONE = """
These parts were run alone, some with fewer hosts, the last of them on that date: {parts}.
"""


def draw_page(result: Mapping[str, Any]) -> str:
    """Return the page as Markdown."""
    summary = result["summary"]
    suites = sorted({v["suite"] for v in result["verdicts"].values()})
    again = ", ".join(f"`{part}`" for part in result.get("only", ()))
    lines = [
        HEAD,
        RESULT.format(
            **{k: result[k] for k in ("date", "suite_version", "nodes")},
            suites=", ".join(suites),
            of=summary["of"],
            passed=summary["passed"],
            failed=len(summary["failed"]),
            skipped=len(summary["skipped"]),
        ),
        ALONE.format(parts=again) if again else "",
        "\n| id | suite | result | message | counter-proof |",
        "\n|---|---|---|---|---|",
    ]
    for test_id, verdict in result["verdicts"].items():
        state = "skipped" if test_id in summary["skipped"] else verdict["state"]
        message = summary["skipped"].get(test_id, verdict["message"])
        proof = result["counterproofs"].get(test_id)
        text = "" if proof is None else f"{proof['broken']}: {proof['verdict']}"
        lines.append(
            f"\n| {test_id} | {verdict['suite']} | {state} | {_cell(message)} | {_cell(text)} |"
        )
    lines.append(PLAN)
    lines += [f"\n| {ids} | {reason} |" for ids, reason in OF_PLAN.items()]
    return "".join(lines) + "\n"


def _cell(text: str) -> str:
    """Return a text as one cell of a table, at most so long."""
    line = " ".join(text.split()).replace("|", "/")
    return line if len(line) < 200 else line[:197] + "..."
