"""Each tool that roles, modules and the agent of the maintenance image run has a row with the
proof of its success, and each verdict field of the vendors' tools a reader that judges it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PLUGINS = ROOT / "ansible/collections/ansible_collections/provisioner/fleet/plugins"
AGENT = ROOT / "images/hardware_manager/provisioner_hardware_manager"
ROWS = ROOT / "ansible/tool_proofs.yaml"
_TOOL = re.compile(r"[a-z][A-Za-z0-9_+.-]{1,30}")
_ARGV = re.compile(r"argv:\s*(?:\[\s*|\"\{\{ \[')([a-z][A-Za-z0-9_.-]+)")


def read_rows() -> list[dict[str, str]]:
    """Return the rows; `make docs` makes a page of them."""
    rows: list[dict[str, str]] = yaml.safe_load(ROWS.read_text(encoding="utf-8"))
    return rows


def first_words(node: ast.AST) -> Iterator[str]:
    """Yield the tool of a list of words, or of a call of the agent's `run`."""
    for part in ast.walk(node):
        words: ast.AST | None = None
        if isinstance(part, ast.List) and part.elts:
            words = part.elts[0]
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.args:
            words = part.args[0] if part.func.id == "run" else None
        if isinstance(words, ast.Constant) and isinstance(words.value, str):
            yield words.value


def tools_of_modules() -> set[str]:
    found = set()
    for file in PLUGINS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            is_call = isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "tools.read",
                "tools.write",
            )
            is_line = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in (
                "line",
                "argv",
                "simulation",
                "words",
            )
            if is_call or is_line:
                found |= {w for w in first_words(node) if _TOOL.fullmatch(w)}
    return found


def tools_of_agent() -> set[str]:
    found = set()
    for file in AGENT.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call):
                found |= {
                    word
                    for word in first_words(node)
                    if isinstance(node.func, ast.Name) and node.func.id == "run"
                }
    return found


def tools_of_roles() -> set[str]:
    return {
        tool
        for file in (ROOT / "ansible").rglob("*.yml")
        if "collections" not in file.parts
        for tool in _ARGV.findall(file.read_text())
    }


NO_TOOLS = {"-k", "installed", "provisioner"}


@pytest.mark.parametrize("find", [tools_of_modules, tools_of_agent, tools_of_roles])
def test_each_tool_that_is_run_has_a_row_with_its_proof_of_success(find) -> None:
    rows = read_rows()
    listed = {tool for row in rows for tool in re.findall(r"`([^` ]+)[^`]*`", row["tools"])}

    run = find() - NO_TOOLS

    assert len(run) > 3
    assert run <= listed, f"no row in {ROWS}: {sorted(run - listed)}"
    assert all(len(row["proof"]) > 10 and row["where"] for row in rows)


def test_each_row_names_a_tool_that_is_run() -> None:
    rows = read_rows()
    listed = {tool for row in rows for tool in re.findall(r"`([^` ]+)[^`]*`", row["tools"])}

    assert listed <= tools_of_modules() | tools_of_agent() | tools_of_roles()


def test_no_module_takes_whatever_exit_code_for_an_answer() -> None:
    """Codes by which a tool answers are named one by one: another one proves no absence."""
    reads = [
        node
        for file in PLUGINS.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tools.read"
    ]

    words = {keyword.arg for node in reads for keyword in node.keywords}

    assert len(reads) > 20
    assert words <= {"limit_s", "exits"}
