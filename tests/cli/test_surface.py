"""The command line is made of the API's routes: every verb, its help, and the file it loads."""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from local_daemon import daemon

from provisioner.api import table
from provisioner.api.commands import COMMANDS, WITHOUT_COMMAND, describe
from provisioner.cli import commands as program
from provisioner.cli.client.output import count_columns, measure_columns
from provisioner.cli.client.surface import FILE, LOCAL, build, read_specs
from provisioner.cli.commands import COMMANDS as PROGRAM
from provisioner.cli.commands import INTEGRATION, ROUTES, open_offline

ROOT = Path(__file__).parents[2]
ANSWERS = [name for name in read_specs() if name not in LOCAL]


def test_the_program_loads_what_the_routes_describe() -> None:
    text = json.dumps(describe(table.ALL), indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("RECORD_GOLDEN"):
        FILE.write_text(text, encoding="utf-8")

    assert FILE.read_text(encoding="utf-8") == text, "RECORD_GOLDEN=1 writes it anew"


def test_every_route_has_a_command_or_is_for_a_browser() -> None:
    names = {route.name for route in table.ALL}

    assert names == set(COMMANDS) | WITHOUT_COMMAND
    assert not set(COMMANDS) & WITHOUT_COMMAND


def test_every_noun_is_listed_with_what_it_is_about() -> None:
    nouns = {name.partition(" ")[0] for name in (*read_specs(), *LOCAL)}

    assert nouns <= set(PROGRAM)


@pytest.mark.parametrize("name", ANSWERS)
def test_every_verb_takes_the_same_options_and_teaches_by_an_example(name: str) -> None:
    command, spec = build(name, open_offline), read_specs()[name]
    options = {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)}

    assert {"--output", "-o", "--json", "--context", "--data", "--server"} <= options
    assert f"Example: provisioner {name}" in command.help
    assert ("list" in spec) == ({"--where", "--sort", "--limit"} <= options)
    assert bool(spec.get("destructive")) == ("--yes" in options)
    assert bool(spec.get("recorded")) == ("--dry-run" in options)
    assert bool(spec.get("changes")) != ("--offline" in options) or "media" in spec


def test_whatever_takes_something_away_can_be_tried_first() -> None:
    destructive = [name for name, spec in read_specs().items() if spec.get("destructive")]

    assert len(destructive) > 15
    assert all(read_specs()[name].get("recorded") for name in destructive)


def test_examples_are_taken_by_their_own_commands() -> None:
    for name in ANSWERS:
        words = read_specs()[name]["example"].removeprefix(name)
        flags = re.findall(r"--[a-z-]+", words)
        options = {flag for p in build(name, open_offline).params for flag in p.opts}

        assert set(flags) <= options, name


def seconds_of_cpu(words: list[str], folder: Path) -> float:
    """The processor time of one command in a process of its own: the least of several runs."""
    used = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "provisioner", *words], cwd=folder, capture_output=True,
            check=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(used)


@pytest.mark.long
def test_a_list_costs_at_most_twice_as_much_as_the_help(tmp_path: Path) -> None:
    with daemon(tmp_path / "var"):
        listed = seconds_of_cpu(["node", "list"], tmp_path)

        assert listed <= 2 * seconds_of_cpu(["--help"], tmp_path)


def test_every_command_that_the_program_names_is_one() -> None:
    """Refusals say what would unblock them, and the console what to type."""
    known = {*read_specs(), *LOCAL, *PROGRAM}
    wrong = []
    for file in (ROOT / "provisioner").rglob("*.*"):
        if file.suffix not in (".py", ".js") or "content" in file.parts:
            continue
        for words in re.findall(r"`provisioner ([a-z-]+(?: [a-z-]+)?)", file.read_text("utf-8")):
            first, _, verb = words.partition(" ")
            group = any(name.startswith(f"{first} ") for name in known)
            if first not in PROGRAM or (group and verb and words not in known):
                wrong.append(f"{file.name}: {words}")

    assert wrong == []


def test_the_programs_help_has_each_command_in_one_group() -> None:
    file = Path(program.__file__).with_name("commands.csv")
    names = [line.partition(",")[0] for line in file.read_text("utf-8").splitlines()[1:]]

    assert names == list(PROGRAM)  # a name that stands twice would be lost in it
    groups = [group for group, _ in itertools.groupby(each.group for each in PROGRAM.values())]
    assert len(groups) == len(set(groups)), "the commands of a group stand together"
    assert all(
        each.about and (each.function or each.module in {ROUTES, INTEGRATION})
        for each in PROGRAM.values()
    )


def test_a_narrow_terminal_gets_fewer_columns_and_no_broken_word() -> None:
    rows = [["node", "since", "why"], ["su0-n00", "2026-11-29 10:02", "its fan is slow"]]
    widths = measure_columns(rows, [False, True, False])

    assert widths == [7, 16, 4]
    assert [count_columns(widths, width) for width in (80, 37, 36, 20, 1)] == [3, 3, 2, 2, 2]
