"""The generated page of Ironic's results (docs/reference_tables.py), drawn from result.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = """# NVIDIA's acceptance suite, put to Ironic

Made from `docs/examples/acceptance/ironic/result.json`, which `make acceptance-ironic` writes. What
it can show and what not is in [the comparison](../comparison.md).
"""
TEXT = """
Run on {date} with version {suite_version} of `NVIDIA/ai-cloud-validation`, suite bare_metal.
{versions} from PyPI were started: one process with SQLite, without authentication and message bus,
and with 40 rounds of its password hash.
Its Redfish driver drove {hosts} hosts of our simulator over HTTPS (certificates not verified).
Of {of} ids {passed} passed, {failed} failed, and {skipped} were skipped.

| id | result | message |
|---|---|---|
"""


def draw_page(result: Mapping[str, Any]) -> str:
    """Return the page of a run."""
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
    return HEAD + text + "\n".join(lines) + "\n"
