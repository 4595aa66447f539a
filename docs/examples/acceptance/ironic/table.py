"""The table of docs/comparison.md about NVIDIA's acceptance suite, written from result.json."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

BEGIN = "<!-- written by docs/examples/acceptance/ironic/table.py from the result beside it -->"
END = "<!-- end of what table.py writes -->"
TEXT = """
Run on {date} with version {suite_version} of `NVIDIA/ai-cloud-validation`, suite bare_metal.
{versions} from PyPI were started: one process with SQLite, without authentication and message bus,
and with 40 rounds of its password hash (see the figures above).
Its Redfish driver drove {hosts} hosts of our simulator over HTTPS (certificates not verified).
Of {of} ids {passed} passed, {failed} failed, and {skipped} were skipped.

| id | result | message |
|---|---|---|
"""


def draw_table(result: Mapping[str, Any]) -> str:
    """Return what stands between the two marks of the page."""
    verdicts = result["verdicts"]
    states = [verdict["state"] for verdict in verdicts.values()]
    counted = {state: states.count(state) for state in ("passed", "failed", "skipped")}
    versions = " and ".join(name.replace("==", " ") for name in result["packages"])
    facts = {key: result[key] for key in ("date", "suite_version", "hosts")}
    text = TEXT.format(of=len(states), versions=versions, **facts, **counted)
    grouped: dict[tuple[str, str], list[str]] = {}
    for test_id, verdict in verdicts.items():
        grouped.setdefault((verdict["state"], verdict["message"]), []).append(test_id)
    order = ("passed", "failed", "skipped")
    rows = sorted(grouped.items(), key=lambda row: (order.index(row[0][0]), row[1]))
    lines = [f"| {', '.join(ids)} | {state} | {message} |" for (state, message), ids in rows]
    return text + "\n".join(lines) + "\n"


def write_table(result: Mapping[str, Any], page: Path) -> None:
    """Replace the table of the page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has not both marks of the table")
    page.write_text(before + BEGIN + "\n" + draw_table(result) + "\n" + END + after, "utf-8")
