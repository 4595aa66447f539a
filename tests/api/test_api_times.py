"""Times of the API: RFC 3339 in UTC, null for none, in every answer and in every body."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from api_document import read_document
from given_events import event_of
from hypothesis import given
from hypothesis import strategies as st
from served import NOW, serving

from provisioner.model.case import Case, Origin, Service
from provisioner.model.times.instant import (
    AT_EDGE,
    format_instant,
    is_time,
    parse_instant,
    write_instants,
)

DOCUMENT = read_document()
# times whose names do not say so
UNNAMED = {"now", "judged_from", "raises", "leaves", "leaf_ports_read", "times"}
NO_TIMES = {"broken_at"}  # a row's number


def list_fields() -> Iterator[tuple[str, str, Any]]:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for field, inner in schema.get("properties", {}).items():
            yield name, field, inner


def has_form(schema: Any, word: str) -> bool:
    return word in json.dumps({k: v for k, v in schema.items() if k != "description"})


def test_every_time_of_the_document_has_the_form_and_the_name_of_one():
    times = [(c, f) for c, f, s in list_fields() if has_form(s, '"date-time"')]
    assert len(times) > 100
    assert {f for _, f in times if not is_time(f)} == UNNAMED
    numbers = [
        (c, f)
        for c, f, s in list_fields()
        if is_time(f) and (has_form(s, '"number"') or has_form(s, '"integer"'))
    ]
    assert {f for _, f in numbers} == NO_TIMES


def test_an_unset_time_is_null_by_default_in_the_document():
    for name, field, schema in list_fields():
        if has_form(schema, '"date-time"') and "default" in schema:
            assert schema["default"] in (None, []), (name, field)


@given(st.integers(0, 253_402_214_400_000))
def test_a_time_is_read_back_to_the_millisecond(milliseconds: int):
    at = milliseconds / 1000
    text = format_instant(at)
    assert len(text) == len("2026-12-24T18:00:00.000Z")
    assert abs(parse_instant(text) - at) <= 0.001


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-12-24T18:00:00Z", 1_798_135_200.0),
        ("2026-12-24T19:00:00.5+01:00", 1_798_135_200.5),
        ("2026-12-24t18:00:00z", 1_798_135_200.0),
    ],
)
def test_times_with_offsets_are_read(text: str, at: float):
    assert parse_instant(text) == at


@pytest.mark.parametrize(
    "text", ["", "now", "1798135200", "2026-12-24", "2026-12-24T18:00:00", "2026-13-01T00:00:00Z",
             "1969-12-31T23:59:59Z", "٢٠٢٦-12-24T18:00:00Z", "2026-12-24T18:00:00Z "]
)  # fmt: skip
def test_other_texts_are_no_times(text: str):
    with pytest.raises(ValueError, match=r"time|month|1970|iso"):
        parse_instant(text)


def test_untyped_values_are_converted_by_their_names():
    inner = {"until": NOW, "settled_at": 0.0, "count": 3, "spans": [{"since": NOW, "on_at": True}]}
    text = format_instant(NOW)
    assert write_instants(inner) == {
        "until": text,
        "settled_at": None,
        "count": 3,
        "spans": [{"since": text, "on_at": True}],
    }


def test_a_stored_record_has_numbers_and_the_same_digest_and_both_forms_are_read():
    about = {"id": "n1-c0001", "node": "n1", "reason": "x"}
    case = Case(**about, origin=Origin.EVENT, service=Service.KEEP, opened_at=NOW)
    stored = json.loads(case.model_dump_json())
    shown = json.loads(case.model_dump_json(context=AT_EDGE))
    assert (stored["opened_at"], stored["closed_at"]) == (NOW, 0.0)
    assert (shown["opened_at"], shown["closed_at"]) == (format_instant(NOW), None)
    again = Case.model_validate_json(json.dumps(shown))
    assert again == Case.model_validate_json(json.dumps(stored)) == case
    assert again.digest() == case.digest()


def test_answers_events_and_bodies_have_texts():
    async def run() -> None:
        async with serving() as served:
            await served.store.journal.append(
                event_of("case_deferred", "su0-n01", {"case": "x", "until": NOW + 60, "by": "ada"}),
                NOW,
            )
            _, node = await served.ask("viewer", "GET", "/nodes/su0-n01")
            assert node["entered_at"] == format_instant(NOW - 100.0)
            _, page = await served.ask("viewer", "GET", "/events?kind=case_deferred")
            row = page["items"][-1]
            assert row["at"] == format_instant(NOW)
            assert row["detail"]["until"] == format_instant(NOW + 60)
            pin = {"scope": "node", "name": "su0-n01", "release": "spectrum-x-1.2.0", "reason": "x"}
            status, refused = await served.ask("operator", "PUT", "/pins", pin | {"until": NOW + 9})
            assert (status, "RFC 3339" in refused["detail"]) == (400, True)
            body = pin | {"until": format_instant(NOW + 9)}
            status, done = await served.ask("operator", "PUT", "/pins", body)
            assert (status, done["arguments"]["until"]) == (200, body["until"])
            _, pins = await served.ask("viewer", "GET", "/pins")
            assert pins["items"][0]["expires_at"] == body["until"]

    asyncio.run(run())
