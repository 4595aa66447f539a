"""Outputs of tests among nodes in another language, cut, or with lines of others between: no pass.

Optics without readings, of copper, breakouts, zero limits, -40 dBm and "N/A" are in tests/optics,
tests/watch/test_link_readings.py and tests/golden/checks/optics.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner import checks
from provisioner.checks.check import CheckContext
from provisioner.checks.fabric.nccl_path import Wanted, list_unknown
from provisioner.checks.readers.nccl_log import read_log
from provisioner.integrations.sim.outputs.outputs_training import print_training
from provisioner.model.cohort import CheckResult, Evidence, Verdict

GOLDEN = Path(__file__).parents[1] / "golden" / "checks"
CONTEXT = CheckContext.model_validate_json((GOLDEN / "context.json").read_text())
BY_NAME = {check.name: check for check in checks.ALL}
LINES = {command.name: command.line for check in checks.ALL for command in check.commands}
GOOD = {
    "nccl_pair": (GOLDEN / "nccl_pair/good/nccl_pair.txt").read_text(),
    "nccl_path": (GOLDEN / "nccl_path/good/nccl_log.txt").read_text(),
    "training_step": print_training([(f"n{n}", 2, frozenset()) for n in range(4)]),
}
COMMAND = {"nccl_pair": "nccl_pair", "nccl_path": "nccl_log", "training_step": "training_step"}


def judge(name: str, text: str) -> CheckResult:
    evidence = Evidence(source=LINES[COMMAND[name]], exit_code=0, text=text)
    return BY_NAME[name].judge({COMMAND[name]: evidence}, CONTEXT)


def with_commas(text: str) -> str:
    return re.sub(r"(\d)\.(\d)", r"\1,\2", text)


def cut_in_the_middle(text: str) -> str:
    return text[: len(text) // 2]


def only_its_beginning(text: str) -> str:
    return text[:200]


def in_wide_digits(text: str) -> str:
    return text.translate({ord(str(n)): chr(0xFF10 + n) for n in range(10)})


def with_a_hole(text: str) -> str:
    """Bytes of a file that were never written: a full disk, or a copy of one that still grows."""
    middle = text.index("\n", len(text) // 2) - 20
    return text[:middle] + "\0" * 64 + text[middle + 64 :]


def with_nul_in_numbers(text: str) -> str:
    return re.sub(r"(\d)(\d)", "\\1\0\\2", text)


def interleaved(text: str) -> str:
    """Two ranks that write one file: the second line begins within the first."""
    lines = text.splitlines()
    at = len(lines) // 2
    one, other = lines[at], lines[at + 1]
    lines[at : at + 2] = [one[: len(one) // 2] + other, one[len(one) // 2 :]]
    return "\n".join(lines) + "\n"


def as_wide_text(text: str) -> str:
    """UTF-16, as a shell of another system redirects it, read as bytes."""
    return text.encode("utf-16").decode("latin-1")


NEVER = [with_a_hole, with_nul_in_numbers, interleaved, as_wide_text]


@pytest.mark.parametrize("spoil", NEVER)
@pytest.mark.parametrize("name", sorted(GOOD))
def test_holes_mixed_lines_and_wide_letters_never_pass(
    name: str, spoil: Callable[[str], str]
) -> None:
    assert judge(name, spoil(GOOD[name])).verdict is not Verdict.PASS


@pytest.mark.parametrize("name", sorted(GOOD))
def test_lines_that_end_as_in_a_terminals_record_say_the_same(name: str) -> None:
    assert judge(name, GOOD[name].replace("\n", "\r\n")).verdict is Verdict.PASS


@pytest.mark.parametrize("name", sorted(GOOD))
def test_what_is_whole_passes(name: str) -> None:
    assert judge(name, GOOD[name]).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "spoil", [with_commas, cut_in_the_middle, only_its_beginning, in_wide_digits]
)
@pytest.mark.parametrize("name", ["nccl_pair", "training_step"])
def test_numbers_of_another_language_and_halves_never_pass(
    name: str, spoil: Callable[[str], str]
) -> None:
    assert judge(name, spoil(GOOD[name])).verdict is not Verdict.PASS


@pytest.mark.parametrize("spoil", [cut_in_the_middle, only_its_beginning, in_wide_digits])
def test_a_log_of_nccl_that_is_not_whole_never_passes(spoil: Callable[[str], str]) -> None:
    assert judge("nccl_path", spoil(GOOD["nccl_path"])).verdict is not Verdict.PASS


def test_a_launchers_words_in_another_language_between_the_lines_change_nothing() -> None:
    """mpirun speaks its user's language, on lines of its own; within a line they are damage."""
    lines = GOOD["nccl_path"].splitlines(keepends=True)
    said = "Warnung: der Rechner knoten-7 hat sich neu verbunden (Zeitüberschreitung)\n"
    between = "".join(x for line in lines for x in (line, said))
    within = GOOD["nccl_path"].replace(" [send] via", f" {said.strip()} [send] via", 1)

    assert judge("nccl_path", between).verdict is Verdict.PASS
    assert list_unknown(read_log([within.encode()]), Wanted(ranks=16))
    assert judge("nccl_path", within).verdict is not Verdict.PASS
