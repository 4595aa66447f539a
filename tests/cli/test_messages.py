"""Messages that a person acts on: what is wrong, where, and what to do."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from program import run

from provisioner.adapters.redfish.messages import read_refusal
from provisioner.cli.client.output import show_problem
from provisioner.cli.options.tables import Table, open_console
from provisioner.daemon.data import open_data
from provisioner.ports import Reply
from provisioner.ports.wire import plain_text, status_words
from provisioner.store.database import database

LISTS = (
    "node list", "tenant list", "case list", "notice list", "campaign list",
    "webhook list", "alert list", "token list", "pin list", "agents list", "drift", "debt",
)  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with an empty data directory `var`."""

    async def make() -> None:
        async with open_data(tmp_path / "var", 1.0):
            pass

    asyncio.run(make())
    return tmp_path


@pytest.mark.parametrize("words", LISTS)
def test_an_empty_list_is_a_sentence(place: Path, words: str) -> None:
    shown = run(words.split(), place)

    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count("\n") == 1
    assert shown.stdout.endswith(".\n")


def test_a_locked_database_is_not_called_damaged(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 10)
    holder = sqlite3.connect(place / "var" / "provisioner.db", isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        refused = run(["node", "list", "--offline"], place)
    finally:
        holder.close()

    said = refused.stdout + refused.stderr
    assert refused.returncode in (1, 2)
    assert "restore it from a backup" not in said
    assert "another process" in said


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_without_a_detail_ends_with_its_title(
    status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for document in (None, {"title": "Not allowed", "detail": ""}, {"title": "Not allowed"}):
        show_problem(document, status, "table")

    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"error: status {status}", "error: Not allowed", "error: Not allowed"]


def test_what_a_device_says_in_plain_text_or_html_is_said() -> None:
    text = Reply(400, {}, b"Image is too old\r\n")
    html = Reply(403, {}, b"<html><head><title>x</title></head><body><h1>Forbidden</h1></body>")
    silent = Reply(403, {}, b"")

    assert read_refusal(text, "s", "u").detail == "HTTP status 400: Image is too old"
    assert plain_text(html) == "Forbidden"
    assert status_words(silent) == "status 403"
    assert read_refusal(silent, "s", "u").detail == "HTTP status 403: no message"


@pytest.mark.parametrize(
    "code", ["\x1b[2J", "\x1b]0;x\x07", "\x9b31m", "\r", "\x08", "\u202e", "\x7f"]
)
def test_no_control_code_of_a_device_reaches_a_terminal_by_a_line_or_a_table(
    code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    console = open_console(80)
    table = Table(f"head{code}", title=f"title{code}")
    table.add_row(f"cell{code} [red]x[/red]")
    console.print(table)
    console.print(f"line{code}\nnext")

    shown = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert "[red]x[/red]" in shown
    assert "\nnext" in shown


def test_an_optimized_python_which_leaves_out_checks_is_refused() -> None:
    command = [sys.executable, "-O", "-m", "provisioner", "serve"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert told.returncode == 2
    assert "Python runs optimized (-O)" in told.stderr
    assert "Unset it" in told.stderr
