"""No reader of foreign words is forgotten by the fuzzer, and each keeps what it promises."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import feeding
import pytest
from attempts import promised
from hypothesis import given, settings
from hypothesis import strategies as st
from registry import DECODE_FOR, NOT_ATTEMPTED, PARSERS

from provisioner.api import table

# what takes text or bytes apart: whoever calls it reads what somebody wrote
DECODERS = frozenset({"loads", "fromstring", "model_validate_json", "safe_load", "reader",
                      "DictReader"})  # fmt: skip


def decoding() -> Iterator[str]:
    """Modules that decode."""
    for module, tree in feeding.sources().items():
        calls = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call))
        if any(isinstance(f, ast.Attribute) and f.attr in DECODERS for f in calls):
            yield module


def test_every_function_that_reads_foreign_words_is_attempted_or_says_why_not() -> None:
    names = {parser.name for parser in PARSERS}

    assert sorted(feeding.found() - names - set(NOT_ATTEMPTED)) == [], (
        "list it in tests/fuzz/registry.py: in _LISTED, or in NOT_ATTEMPTED with the reason"
    )
    assert not names & set(NOT_ATTEMPTED)


def test_every_module_that_decodes_has_a_reader_that_is_attempted_or_says_why_not() -> None:
    names = {parser.name for parser in PARSERS}
    reading = {name.partition(":")[0] for name in names}
    others = {m for m in decoding() if not m.startswith("checks.")}  # judges are all attempted

    assert sorted(others - reading - set(DECODE_FOR)) == [], "say in DECODE_FOR who attempts it"
    assert {by for by in DECODE_FOR.values() if ":" in by} <= names


def test_every_body_of_the_api_is_attempted() -> None:
    taken = {route.body for route in table.ALL if route.body is not None}

    assert set(feeding.BODIES) == taken


@pytest.mark.parametrize("parser", PARSERS, ids=lambda p: p.name)
@settings(max_examples=15, deadline=None)
@given(data=st.binary(max_size=400), how=st.integers(0, 255))
def test_a_parser_raises_only_what_it_promises(
    parser: feeding.Parser, data: bytes, how: int
) -> None:
    promised(parser, data, how)


def test_a_parser_that_breaks_its_promise_is_seen() -> None:
    def careless(data: bytes, how: int) -> object:
        return data[how]

    with pytest.raises(IndexError):
        promised(feeding.Parser("careless", careless, (ValueError,)), b"", 1)
