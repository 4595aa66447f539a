"""No judge raises, and none passes garbage, whatever a host, a card or a BMC prints.

Three ways to lie: any text, any JSON, and a good output in which lines or values were changed. The
last may still be good (a comment was changed); it must give a verdict with its reason.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_golden import CONTEXT, good

from provisioner import checks
from provisioner.checks.check import BEFORE, Check
from provisioner.model.cohort import CheckResult, Evidence, Verdict

WORDS = st.sampled_from(
    ["", "0", "-1", "N/A", "[Not Supported]", "1e999", "NaN", "9" * 40, "\x00", "\x1b[2J", "Yes"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=20)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=12) | WORDS, inner, max_size=4)
    ),
    max_leaves=20,
)
EVERY = pytest.mark.parametrize("check", checks.ALL, ids=lambda c: c.name)


def sound(result: CheckResult) -> None:
    """A pass has no findings, and everything else has a reason that can be printed."""
    assert (result.verdict is Verdict.PASS) == (not result.findings)
    assert all(f.detail and f.detail.isprintable() for f in result.findings)
    assert all(name.isprintable() for name in result.measured)


def changed(evidence: dict[str, Evidence], text: str) -> dict[str, Evidence]:
    return {name: e.model_copy(update={"text": text}) for name, e in evidence.items()}


@EVERY
@settings(max_examples=15, deadline=None)
@given(document=JSON)
def test_any_json_is_never_a_pass(check: Check, document: Any) -> None:
    result = check.judge(changed(good(check), json.dumps(document)), CONTEXT)

    sound(result)
    assert result.verdict is not Verdict.PASS


@EVERY
@settings(max_examples=15, deadline=None)
@given(noise=st.text(max_size=300), garbage=st.binary(max_size=300))
def test_any_text_is_never_a_pass_also_as_the_look_before_a_load(
    check: Check, noise: str, garbage: bytes
) -> None:
    outputs = good(check)
    for text in (noise, garbage.decode("utf-8", errors="replace"), garbage.decode("latin-1")):
        result = check.judge(changed(outputs, text), CONTEXT)

        sound(result)
        assert result.verdict is Verdict.FAIL

    before = {f"{name}{BEFORE}": e for name, e in changed(outputs, noise).items()}
    sound(check.judge({**outputs, **before}, CONTEXT))


@EVERY
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_a_good_output_with_changed_values_has_a_verdict(check: Check, data: st.DataObject) -> None:
    outputs = good(check)
    name = data.draw(st.sampled_from(sorted(outputs)))
    text = outputs[name].text
    wrong = _json(text, data) if text.lstrip().startswith("{") else _lines(text, data)
    look = outputs[name].model_copy(update={"text": wrong})

    sound(check.judge({**outputs, name: look}, CONTEXT))
    sound(check.judge({**outputs, f"{name}{BEFORE}": look}, CONTEXT))
    sound(check.judge({**outputs, name: look, f"{name}{BEFORE}": outputs[name]}, CONTEXT))


def _json(text: str, data: st.DataObject) -> str:
    """One value somewhere in a document is another one, or is gone."""
    document, end = json.JSONDecoder().raw_decode(text.lstrip())
    places = _places(document)
    holder, key = places[data.draw(st.integers(0, len(places) - 1))]
    if data.draw(st.booleans()):
        holder[key] = data.draw(JSON)
    else:
        del holder[key]
    return json.dumps(document) + text.lstrip()[end:]


def _places(document: Any) -> list[tuple[Any, Any]]:
    """Every (object or list, key or index) of a document."""
    found: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        holder = waiting.pop()
        keys = holder if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found


def _lines(text: str, data: st.DataObject) -> str:
    """A line is gone, is there twice, stands elsewhere, or one of its words is another."""
    lines = text.split("\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    how = data.draw(st.sampled_from(["gone", "twice", "moved", "word"]))
    if how == "gone":
        del lines[at]
    elif how == "twice":
        lines.insert(at, lines[at])
    elif how == "moved":
        lines.insert(data.draw(st.integers(0, len(lines) - 1)), lines.pop(at))
    else:
        words = lines[at].split(" ")
        words[data.draw(st.integers(0, len(words) - 1))] = data.draw(WORDS)
        lines[at] = " ".join(words)
    return "\n".join(lines)
