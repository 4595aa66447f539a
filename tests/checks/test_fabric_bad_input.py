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
