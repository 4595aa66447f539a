"""Recorded outputs and the verdict on each: one folder per case, one case per way to go wrong.

A folder holds `<command>.txt` and `expected.json`. The texts are our own, in the tools' formats.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner import checks
from provisioner.checks.check import BEFORE, Check, CheckContext
from provisioner.model.cohort import Evidence, Severity, Verdict

ROOT = Path(__file__).parent.parent / "golden" / "checks"
CASES = sorted(p.parent for p in ROOT.glob("*/*/expected.json"))
CONTEXT = CheckContext.model_validate_json((ROOT / "context.json").read_text())
BY_NAME = {check.name: check for check in checks.ALL}
LINES = {command.name: command.line for check in checks.ALL for command in check.commands}


def outputs(case: Path) -> dict[str, Evidence]:
    """The evidence that a folder holds."""
    return dict(read_outputs(case))


@cache
def read_outputs(case: Path) -> Mapping[str, Evidence]:
    """Each folder is read once: properties ask for it with every example."""
    codes = json.loads((case / "expected.json").read_text())["exit_codes"]
    return {
        file.stem: Evidence(
            source=LINES[file.stem.removesuffix(BEFORE)],
            exit_code=codes.get(file.stem, 0),
            text=file.read_bytes().decode(),
        )
        for file in case.glob("*.txt")
    }


def good(check: Check) -> dict[str, Evidence]:
    return outputs(ROOT / check.name / "good")


@pytest.mark.parametrize("name", BY_NAME)
def test_the_verdict_on_a_recorded_output(name: str) -> None:
    cases = [c for c in CASES if c.parent.name == name]
    for case in cases:
        expected = json.loads((case / "expected.json").read_text())

        result = BY_NAME[name].judge(outputs(case), CONTEXT)

        assert result.verdict.value == expected["verdict"], (case.name, result.findings)
        found = [[f.part, f.severity.value] for f in result.findings]
        assert found == expected["findings"], case.name

    assert {c.name.split("_")[0] for c in cases} == {"good", "bad", "garbled"}


WRONG: dict[str, dict[str, object] | None] = {
    "not run": None,
    "did not end": {"exit_code": None},
    "cut off": {"truncated": True},
    "printed nothing": {"text": ""},
    "printed nothing but the end": {"text": "end-of-output\n"},
    "deep": {"text": "[" * 100_000},
    "deeper": {"text": '{"a":' * 100_000},
    "huge number": {"text": "{" + '"a":1' + "0" * 10_000 + "}"},
    "long number": {"text": "9" * 100_000 + ", " * 5},
    "deep XML": {"text": "<Devices>" + "<Device>" * 50_000},
}


@pytest.mark.parametrize("check", checks.ALL, ids=lambda c: c.name)
def test_a_silent_or_hostile_command_never_passes(check: Check) -> None:
    well = good(check)
    for name, (words, wrong) in product(well, WRONG.items()):
        evidence = dict(well)
        if wrong is None:
            del evidence[name]
        else:
            evidence[name] = evidence[name].model_copy(update=wrong)

        result = check.judge(evidence, CONTEXT)

        assert result.verdict is Verdict.FAIL, (name, words)
        assert result.findings, (name, words)


# a kernel log's beginning is a kernel log
@pytest.mark.parametrize(
    "check", [c for c in checks.ALL if c.name != "kernel_log"], ids=lambda c: c.name
)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_good_output_that_is_cut_short_never_passes(check: Check, data: st.DataObject) -> None:
    evidence = good(check)
    for name, whole in list(evidence.items()):
        end = data.draw(st.integers(0, len(whole.text.rstrip()) - 1))
        cut = {**evidence, name: whole.model_copy(update={"text": whole.text[:end]})}

        assert check.judge(cut, CONTEXT).verdict is not Verdict.PASS, whole.text[:end][-80:]


@pytest.mark.parametrize("check", checks.ALL, ids=lambda c: c.name)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_damaged_output_never_raises(check: Check, data: st.DataObject) -> None:
    evidence = good(check)
    for name, whole in list(evidence.items()):
        at = data.draw(st.integers(0, len(whole.text)))
        length = data.draw(st.integers(0, 30))
        noise = data.draw(st.text(max_size=30))
        text = whole.text[:at] + noise + whole.text[at + length :]
        evidence[name] = whole.model_copy(update={"text": text})

    result = check.judge(evidence, CONTEXT)

    assert (result.verdict is Verdict.PASS) == (not result.findings)


def test_an_unknown_floor_is_skipped_and_names_itself() -> None:
    b200 = CONTEXT.model_copy(update={"gpu_model": "B200"})

    for name in ("nvbandwidth", "nccl_single"):
        result = BY_NAME[name].judge(good(BY_NAME[name]), b200)

        assert result.verdict is Verdict.SKIPPED
        assert "no published floor" in result.findings[0].detail


def test_wrong_values_isolate_the_node_also_where_no_floor_is_known() -> None:
    b200 = CONTEXT.model_copy(update={"gpu_model": "B200"})
    check = BY_NAME["nccl_single"]

    result = check.judge(outputs(ROOT / "nccl_single" / "bad_wrong_values"), b200)

    assert result.verdict is Verdict.FAIL
    assert result.findings[0].severity is Severity.ISOLATE


def test_the_table_of_contents_has_each_name_once() -> None:
    names = [check.name for check in checks.ALL]

    assert len(set(names)) == len(names)


def test_a_device_cannot_write_to_a_terminal_through_a_finding() -> None:
    check = BY_NAME["services"]
    evidence = {"services": Evidence(source="x", exit_code=3, text="\x1b[2Jdead\nactive\n")}

    result = check.judge(evidence, CONTEXT)

    assert result.findings[0].measured == " [2Jdead"


def test_every_check_says_when_it_passes() -> None:
    said = checks.read_passes_when()

    assert list(said) == [check.name for check in checks.ALL]
    assert [name for name, words in said.items() if len(words) < 12] == []
