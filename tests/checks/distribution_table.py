"""What the tools of each check were tried by, for each supported distribution, as a table.

`make docs` makes a page of it. `tests/golden/distributions.toml` names the origin of each command,
`tests/golden/tools/versions.json` the versions that were run in Debian's suites.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import tool_roots

from provisioner import checks
from provisioner.checks.check import Check
from provisioner.model.node import NodeKind

GOLDEN = Path(__file__).parents[1] / "golden" / "tools"
TABLE = tomllib.loads((GOLDEN.parent / "distributions.toml").read_text())
HOST = [c for c in checks.ALL if c.kind is NodeKind.HOST]
DISTRIBUTIONS = ("Debian 12", "Ubuntu 22.04", "Ubuntu 24.04")


def nearest(tool: str, version: str) -> str:
    """Return the suite whose version of a tool is this one or the next older one."""
    ran = json.loads((GOLDEN / "versions.json").read_text())
    older = [s for s in tool_roots.SUITES if key(ran[s][tool]) <= key(version)]
    return older[-1] if older else tool_roots.SUITES[0]


def key(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def suites_of(distribution: str, tool: str) -> list[str]:
    """Return the suites whose runs stand for a distribution's tool: one, or the two around it."""
    suites = list(tool_roots.SUITES)
    number = DISTRIBUTIONS.index(distribution)
    if number == 0:
        return ["bookworm"]
    ran = json.loads((GOLDEN / "versions.json").read_text())
    versions = TABLE["versions"][tool]
    if not versions:
        return suites[number - 1 : number + 1]
    version = versions[number - 1]
    first = suites.index(nearest(tool, version))
    if ran[suites[first]][tool] == version:
        return [suites[first]]
    return suites[first : first + 2]


def write_table() -> str:
    rows = [
        f"| gate, check | {' | '.join(DISTRIBUTIONS)} |",
        f"|---|{'---|' * len(DISTRIBUTIONS)}",
    ]
    for check in HOST:
        cells = [write_cell(check, distribution) for distribution in DISTRIBUTIONS]
        cells = [cells[0], *("the same" if c == cells[0] else c for c in cells[1:])]
        rows.append(f"| {check.gate.value.upper()} `{check.name}` | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def write_cell(check: Check, distribution: str) -> str:
    ran = json.loads((GOLDEN / "versions.json").read_text())
    words = []
    for name in dict.fromkeys(c.name for c in check.commands):
        if tool := TABLE["run"].get(name):
            versions = [ran[s][tool] for s in suites_of(distribution, tool)]
            words.append(f"run: {tool} {' and '.join(dict.fromkeys(versions))}")
        elif name in TABLE["files"]:
            words.append(f"run over files; {TABLE['files'][name]}")
        elif name in TABLE["published"]:
            words.append(f"published: {TABLE['published'][name]}")
        else:
            words.append(f"**nothing at hand** but {TABLE['nothing'][name]}")
    return "; ".join(dict.fromkeys(words))
