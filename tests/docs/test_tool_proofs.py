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
        if isinstance(words, ast.BinOp):  # in a folder: folder + "/tool"
            words = words.right
        if isinstance(words, ast.Constant) and isinstance(words.value, str):
            yield words.value.rpartition("/")[2]


def is_path(node: ast.AST) -> bool:
    """Whether it is the path of a program: folder + "/tool"."""
    right = node.right if isinstance(node, ast.BinOp) else None
    return isinstance(right, ast.Constant) and str(right.value).startswith("/")


def tools_of_modules() -> set[str]:
    found = set()
    for file in PLUGINS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            is_call = isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "tools.read",
                "tools.write",
                "read",
                "write",
            )
            is_line = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in (
                "line",
                "argv",
                "simulation",
                "words",
            )
            is_line |= isinstance(node, ast.List) and bool(node.elts) and is_path(node.elts[0])
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


RUNNERS = ("command", "shell", "raw", "script", "expect", "win_command")
# where a failure of the tool may stand, with the reason; anywhere else it is a failure of the task
FAILURES_READ = {
    "Read the running driver": "before the first reboot none runs: the result then asks for one",
}


def tasks_in(value: object) -> Iterator[dict[str, object]]:
    """Yield every task of a file, those of blocks and handlers too."""
    if isinstance(value, list):
        for part in value:
            yield from tasks_in(part)
    elif isinstance(value, dict):
        yield value
        for key in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks", "handlers"):
            yield from tasks_in(value.get(key, []))


def command_tasks() -> list[tuple[str, str, dict[str, object]]]:
    """(file, runner, task) of each task of playbooks, roles and the collection that runs a tool."""
    return [
        (str(file.relative_to(ROOT)), runner, task)
        for file in (*(ROOT / "ansible").rglob("*.yml"), *(ROOT / "ansible").rglob("*.yaml"))
        if ".venv" not in file.parts
        for task in tasks_in(yaml.safe_load(file.read_text(encoding="utf-8")))
        for runner in RUNNERS
        for key in (runner, f"ansible.builtin.{runner}", f"ansible.legacy.{runner}", "action",
                    "local_action")
        if key in task and (key not in ("action", "local_action") or runner in str(task[key]))
    ]  # fmt: skip


def test_each_task_runs_its_tool_by_a_list_of_words_whose_first_has_a_row() -> None:
    """No shell, and no line of text: `tools_of_roles` sees each tool, and so has each a row."""
    seen = tools_of_roles()
    tasks = command_tasks()

    assert len(tasks) > 10
    for file, runner, task in tasks:
        told = task.get(f"ansible.builtin.{runner}")
        assert runner == "command", (file, task["name"])
        assert isinstance(told, dict), (file, task["name"])
        assert set(told) <= {"argv", "chdir", "creates", "removes"}, (file, task["name"])
        words = told["argv"]
        tool = words[0] if isinstance(words, list) else re.findall(r"\['([^']+)'", str(words))[0]
        assert tool in seen, (file, task["name"], tool)


def test_no_task_takes_every_failure_of_its_tool_for_an_answer() -> None:
    """Codes by which a tool says that there is none are named; another one fails the task."""
    deaf = {
        str(task["name"])
        for _, _, task in command_tasks()
        if task.get("failed_when") in (False, "false") or task.get("ignore_errors")
    }

    assert deaf == set(FAILURES_READ)


def test_only_what_the_table_reads_starts_a_process() -> None:
    """A module or a part of the agent that starts one itself would have no row."""
    words = re.compile(
        r"run_command\(|subprocess\.\w+\(|os\.(?:system|popen|exec|spawn)|create_subprocess"
        r"|processutils\.|pty\.spawn"
    )
    starts = {
        file.name
        for folder in (PLUGINS, AGENT)
        for file in folder.rglob("*.py")
        if words.search(file.read_text(encoding="utf-8"))
    }

    # `dms` starts the server of DOCA, which has a row; `commands` is of the agent
    assert starts == {"tools.py", "dms.py", "commands.py"}


def test_no_module_takes_whatever_exit_code_for_an_answer() -> None:
    """Codes by which a tool answers are named one by one: another one proves no absence."""
    reads = [
        node
        for file in PLUGINS.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("tools.read", "read")
    ]

    words = {keyword.arg for node in reads for keyword in node.keywords}

    assert len(reads) > 20
    assert words <= {"limit_s", "exits"}
