"""The mutation probe finds what no test notices, and the table names what there is."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import run_mutants
from judging_mutants import KILLED, NOT_RUN, OUT_OF_TIME, SURVIVED, find_targets
from mutant_table import EQUIVALENT, TABLE, Row
from mutations import mutate
from run_mutants import ROOT, judge_results, judge_row
from slow_tests import is_slow

DOOR = '''
"""A door that is planted for the probe."""


class Door:
    @property
    def open_from(self):
        return 18

    def admit(self, age, ticket):
        if age < self.open_from:
            return "too young"
        return "in" if ticket else "no ticket"


GUESTS = frozenset({"anna", "bert"})


def is_guest(name):
    return name in GUESTS


def wait(count):
    while count > 0:
        count -= 1
    return count


def never_called():
    return 1 + 1
'''
TESTS = """
import asyncio

from planted_door import Door, is_guest, wait


def test_a_child_stays_outside():
    assert Door().admit(17, True) == "too young"


def test_an_adult_needs_a_ticket():
    assert Door().admit(40, True) == "in"
    assert Door().admit(40, False) == "no ticket"


def test_anna_is_a_guest():
    assert is_guest("anna")


def test_a_wait_ends():
    assert wait(3) == 0
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Row:
    """A module with a test that forgets a bound."""
    (tmp_path / "planted_door.py").write_text(DOOR)
    (tmp_path / "test_planted_door.py").write_text(TESTS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Row("a door", ("planted_door:*",), (str(tmp_path / "test_planted_door.py"),))


def test_the_probe_kills_a_planted_mutant_and_finds_a_planted_survivor(planted: Row) -> None:
    results = dict(judge_row(planted))

    admit, wait = "planted_door:Door.admit: ", "planted_door:wait: "
    assert results[admit + "if age < self.open_from => False"] == KILLED
    assert results[admit + "age < self.open_from => age <= self.open_from"] == SURVIVED
    assert results["planted_door:Door.open_from: 18 => 19"] == SURVIVED
    guests = "planted_door:GUESTS: {'anna', 'bert'} => without "
    assert (results[guests + "'anna'"], results[guests + "'bert'"]) == (KILLED, SURVIVED)
    assert results[wait + "count -= 1 => pass"] == OUT_OF_TIME
    assert results["planted_door:never_called: return 1 + 1 => return None"] == NOT_RUN
    assert set(results.values()) == {KILLED, SURVIVED, OUT_OF_TIME, NOT_RUN}


def test_a_row_whose_tests_fail_on_the_code_as_it_is_is_not_judged(
    planted: Row, tmp_path: Path
) -> None:
    (tmp_path / "test_planted_door.py").write_text(TESTS + "    assert wait(3) == 1\n")

    with pytest.raises(RuntimeError, match="a door"):
        list(judge_row(planted))


class Colour(Enum):
    RED = 1
    BLUE = 2


def changes(source: str, names: Mapping[str, Any] | None = None) -> list[str]:
    """What is changed in the one function of a module, in the order of the source."""
    module = ast.parse(source)
    (function,) = module.body
    assert isinstance(function, ast.FunctionDef)
    return [m.change for m in mutate(module, "m:f", function, names or {})]


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("return a and b", ["return a and b => return None", "a and b => b", "a and b => a"]),
        ("x = a <= b", ["a <= b => a < b"]),
        ("if a < 3: f()", ["if a < 3 => True", "if a < 3 => False", "a < 3 => a <= 3",
                           "3 in a < 3 => 4", "f() => pass"]),
        ("x = Colour.BLUE", ["Colour.BLUE => Colour.RED"]),
        ("x = {'a': b, **c}", ["'a': b => no entry", "**c => no entry"]),
        ("x = a in (b, c)", ["a in (b, c) => a not in (b, c)", "(b, c) => without b",
                             "(b, c) => without c"]),
        ("x = a == 'b'", ["a == 'b' => a != 'b'", "'b' in a == 'b' => 'bX'"]),
        ("x = f(y=2, detail='text')", ["f(y=2) => no argument", "2 in y=2 => 3"]),
        ("x = min(a, b)", ["min(a, b) => max"]),
        ("x = [a for a in b if a]", ["a => True"]),
        ("raise E('text')", ["raise E('text') => pass"]),
        ("log.info('text')", []),
        ("assert a == b", []),
        ("x = f'{a + 1}'", []),
        ("x = text[:300]", []),
    ],
)  # fmt: skip
def test_each_kind_of_change(source: str, made: list[str]) -> None:
    assert changes(f"def f():\n    {source}", {"Colour": Colour}) == made


def test_equal_changes_of_one_function_have_numbers() -> None:
    module = ast.parse("def f():\n    return g(True, True)")
    (function,) = module.body
    assert isinstance(function, ast.FunctionDef)
    names = [m.name for m in mutate(module, "m:f", function, {}) if "True" in m.name]

    assert names[1:] == [
        "m:f: True in g(True, True) => False",
        "m:f: True in g(True, True) => False #2",
    ]


@pytest.mark.long
def test_of_every_twentieth_mutant_of_each_row_the_goal_is_killed() -> None:
    assert run_mutants.main(["--every", "20"]) == 0


def test_every_function_and_every_test_of_the_table_exists() -> None:
    for row in TABLE:
        assert find_targets(row.targets)
        assert [t for t in row.tests if not (ROOT / t).exists()] == []


def test_no_row_rests_on_a_test_that_make_test_leaves_to_ci() -> None:
    tests = {ROOT / name for row in TABLE for name in row.tests}
    marked = [str(t) for t in tests if is_slow(t) or "mark.slow" in t.read_text()]

    assert marked == []


def test_every_equivalent_mutant_is_still_made_and_says_why() -> None:
    made = {m.name for row in TABLE for t in find_targets(row.targets) for m in t.mutants()}

    assert sorted(set(EQUIVALENT) - made) == []
    assert [name for name, why in EQUIVALENT.items() if len(why.split()) < 5] == []


@pytest.mark.parametrize(
    ("results", "told"),
    [
        (
            {"a": KILLED, "b": OUT_OF_TIME, "c": SURVIVED, "d": NOT_RUN},
            {"mutants": 4, "killed": 2, "survivors": ["c", "d"]},
        ),
        ({"a": KILLED, "equal": SURVIVED}, {"mutants": 2, "killed": 1, "survivors": []}),
    ],
)
def test_the_last_line_counts_every_mutant(results: dict[str, str], told: dict[str, Any]) -> None:
    report = judge_results(results, {"equal": "because"})

    assert {k: report[k] for k in told} == told
