"""What a body of JSON loses by bytes and words that are none: a field, and nothing else."""

from __future__ import annotations

import itertools
import json

import pytest

from provisioner.adapters.redfish.parsing import parse_fields

SOUND = b'{"a": "l\\nl", "b": [1, {"c": -1.5e3}], "d": null}'
HOSTILE = [
    b'{"a": "' + b'\\"' * 200_000,
    b'{"a": ' + b"x " * 200_000,
    b"{" + b'"a": 0x1, ' * 50_000,
    b'{"a": "\\',
    b"[" * 100_000,
    SOUND[:-1],
    b'{"a": "rack "7""}',
    b"<html>",
    b"NaNo",
]


@pytest.mark.parametrize(
    "body", [SOUND + b"\0\0\r\n", SOUND[:-1] + b",}", SOUND.replace(b"}]", b",},]")]
)
def test_a_comma_or_zero_bytes_too_many_cost_no_field(body: bytes) -> None:
    assert parse_fields(body) == ({"a": "l\nl", "b": [1, {"c": -1500.0}], "d": None}, ())


@pytest.mark.parametrize(
    ("body", "lost"),
    [
        (b'{"a": 1,, "b": 2}', ()),
        (b'{, "a": 1, "b": 2}', ()),
        (b'{"a": 1, \xff"b": 2}', ()),
        (b'{"a": 1, "c": {}\xff "b": 2}', ()),  # in a comma's place
        (b'{"a": 1, "c"\xff {}, "b": 2}', ()),  # in a colon's
        (b'{"a": 1, "b": 2\n}\x1a', ()),
        (b'{"a": 1, "b": 2, "c": \xff}', ("c",)),
        (b'{"a": 1, "b": 2, "c": 1\xff5}', ("c",)),  # never 1, and never 15
        (b'{"a": 1, "b": 2, "c": 1\xff}', ("c",)),
        (b'{"a": 1, "b": 2, "c": [1,,2]}', ("c",)),  # a list that lacks one is no shorter list
        (b'{"a": 1, "b": 2, "c": [1, \xff]}', ("c",)),
        (b'{"a": 1, "b": 2, "c": [\xff]}', ("c",)),
        (b'{"a": 1, "b": 2, "c": [, 2]}', ("c",)),
        (b'{"a": 1, "b": 2, "c": {"d": \xff}}', ("d",)),
    ],
)
def test_bytes_of_no_text_between_two_tokens_cost_a_value_only_in_its_place(
    body: bytes, lost: tuple[str, ...]
) -> None:
    value, told = parse_fields(body)

    assert (value["a"], value["b"], told) == (1, 2, lost)
    assert value.get("c", {}) == {}


@pytest.mark.parametrize("byte", [b"\0", b"\x1a", b"\xff"])
def test_a_bad_byte_anywhere_makes_no_other_value_and_is_told(byte: bytes) -> None:
    sound = {"Name": "x", "Size": 15, "State": "Off", "List": [1, "two"], "On": True}
    body = json.dumps(sound).encode()
    whole = {True: 0, False: 0}
    for place, insert in itertools.product(range(len(body) + 1), (True, False)):
        damaged = body[:place] + byte + body[place + (not insert) :]
        try:
            value, lost = parse_fields(damaged)
        except ValueError:
            whole[insert] += 1
            continue
        assert value.items() <= sound.items(), damaged
        assert len(value) >= len(sound) - 1, damaged
        assert lost or value == sound, damaged

    assert whole[True] <= 1  # before all of it
    # who can tell where a text without its mark ends, or a number that the next key was joined to?
    assert whole[False] <= 2 + body.count(b'"') + body.count(b" ")


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_json_at_all_is_refused(body: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        parse_fields(body)


def test_sound_json_loses_nothing() -> None:
    assert parse_fields(b'{"a": "l\\nl", "b":\t1}') == ({"a": "l\nl", "b": 1}, ())
    assert parse_fields(b'\xef\xbb\xbf{"a": 1,\r\n "a": 1}') == ({"a": 1}, ())
    assert parse_fields(b'{"a": null, "b": {}}') == ({"a": None, "b": {}}, ())
