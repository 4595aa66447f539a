"""The list of commands says what the commands say, and loads nothing to say it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from program import alone

from provisioner.cli.commands import COMMANDS, load


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_has_the_first_paragraph_of_each_command(name: str) -> None:
    first = (load(name).help or "").split("\n\n")[0]

    assert " ".join(first.split()) == COMMANDS[name].about


HEAVY = {"sqlalchemy", "alembic", "asyncssh", "provisioner.integrations.demo.running"}
# what the daemon works with: a command that sends one request needs none of it
DAEMON = {"aiohttp", "lxml", "provisioner.checks", "provisioner.ports", "provisioner.settings"}
LOADED = (
    (["--help"], {*HEAVY, *DAEMON, "importlib.metadata", "pydantic"}),
    (["wher"], {*HEAVY, *DAEMON}),
    (["xid", "79"], HEAVY),
    (["node", "--help"], {*HEAVY, *DAEMON}),
    (["node", "list", "--data", "/nowhere"], {*HEAVY, *DAEMON}),
)


@pytest.mark.parametrize(("words", "unneeded"), LOADED)
def test_what_was_not_asked_for_is_not_loaded(words: list[str], unneeded: set[str]) -> None:
    script = (
        "import sys; from provisioner.cli import main\n"
        f"sys.argv = ['provisioner', *{words!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        f"print(sorted({unneeded!r} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )

    assert done.stdout.splitlines()[-1] == "[]"


def test_a_misspelled_command_is_answered_with_what_was_meant() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "provisioner", "wher"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "Did you mean 'where'?" in done.stderr


@pytest.mark.long
def test_a_daemon_without_nodes_loads_nothing_that_it_has_no_use_for(tmp_path: Path) -> None:
    """Also not while it makes its database. The simulator, extras, and clients without a device."""
    script = (
        "import asyncio, sys, provisioner.cli.serve.serve\n"
        "from provisioner.store import open_store\n"
        f"asyncio.run(open_store({str(tmp_path / 'store.db')!r}).close())\n"
        "unneeded = {'provisioner.integrations.sim.site.site',\n"
        "            'provisioner.integrations.demo.running',\n"
        "            'provisioner.integrations.twin.fleet_twin',\n"
        "            'provisioner.integrations.cumulus.cumulus_switch',\n"
        "            'provisioner.integrations.sonic.sonic_switch', 'rich',\n"
        "            'alembic', 'ansible_runner', 'dbos', 'lxml', 'opentelemetry', 'pysnmp',\n"
        "            'signxml', 'asyncssh', 'jwt', 'redfish', 'requests', 'urllib3',\n"
        "            'prometheus_client', 'smtplib', 'sqlalchemy.orm',\n"
        "            'sqlalchemy.dialects.postgresql', 'kopf', 'tarfile', 'xml.etree',\n"
        "            'provisioner.api.openapi',\n"
        "            'provisioner.integrations.matrix_tools.deciding.review'}\n"
        "print(sorted(unneeded & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )

    assert done.stdout == "[]\n"


def listed_helps() -> list[tuple[str, str, str]]:
    """Return (command, parameter or "", help) of every command with its verbs."""
    found: list[tuple[str, str, str]] = []

    def walk(path: str, command: Any) -> None:
        about = (command.help or "").split("\n\n")[0]
        found.append((path, "", " ".join(about.split())))
        found.extend((path, p.name, getattr(p, "help", None) or "") for p in command.params)
        for name, verb in getattr(command, "commands", {}).items():
            walk(f"{path} {name}", verb)

    for name in COMMANDS:
        walk(name, load(name))
    return found


def test_every_command_and_every_option_has_a_help_that_ends_as_a_sentence() -> None:
    helps = listed_helps()

    assert len(helps) > 2000
    assert [h for h in helps if not h[2].rstrip().endswith((".", ")", "?"))] == []
    assert [h for h in helps if "…" in h[2] or ", ...)" in h[2]] == []


@pytest.mark.parametrize("words", [[], ["tenant"], ["campaign"], ["matrix"], ["sim"], ["node"]])
def test_no_word_of_a_list_of_commands_is_cut_at_eighty_columns(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")

    done = alone([*words, "--help"], tmp_path)

    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) in range(70, 81)
    assert "…" not in done.stdout
    assert " ".join(COMMANDS["doctor"].about.split()[:3]) in done.stdout or words
