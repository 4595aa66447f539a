"""The log's lines of events: what is told, in which form, and how much of it."""

from __future__ import annotations

import pytest

from provisioner.daemon.telling import choose_lines
from provisioner.model.events.event import EventKind
from provisioner.planning.watch.journal_lines import (
    LINES_MAX,
    TOLD,
    VALUE_MAX,
    LogLine,
    describe_row,
    format_fields,
)

BLOCKER = {
    "reason": "no_path",
    "subject": "host.bios",
    "detail": "no chain of edges",
    "unblock": "Add an edge.",
}


def state(**detail: object) -> dict[str, object]:
    return {"seq": 7, "at": 0.0, "kind": "state", "node": "n0", "detail": detail}


def test_a_change_of_state_is_one_line_and_each_refusal_one_with_its_remedy() -> None:
    row = state(**{"from": "intake", "to": "quarantined", "why": "it waits", "blockers": [BLOCKER]})

    assert list(describe_row(row)) == [
        LogLine('event=state node=n0 from=intake to=quarantined why="it waits" row=7', warns=True),
        LogLine(
            "event=blocked node=n0 reason=no_path subject=host.bios "
            'detail="no chain of edges" unblock="Add an edge."',
            warns=True,
        ),
    ]


def test_a_sound_change_of_state_warns_nobody() -> None:
    (line,) = describe_row(state(to="released"))

    assert not line.warns


def test_of_many_blockers_the_first_are_told_and_the_others_counted() -> None:
    lines = list(describe_row(state(blockers=[BLOCKER] * (LINES_MAX + 3))))

    assert len(lines) == LINES_MAX + 2
    assert lines[-1].text == 'event=blocked node=n0 more=3 all="provisioner explain n0"'


@pytest.mark.parametrize("kind", sorted(set(EventKind) - TOLD))
def test_what_nobody_follows_a_site_by_is_left_to_the_journal(kind: EventKind) -> None:
    assert list(describe_row({"seq": 1, "kind": kind.value, "node": "", "detail": {}})) == []


@pytest.mark.parametrize("detail", [None, [], {"blockers": "x"}, {"blockers": [3, None]}])
def test_a_row_of_any_shape_is_a_line(detail: object) -> None:
    row = {"seq": 1, "kind": "state", "node": None, "detail": detail}

    assert [line.text for line in describe_row(row)] == ["event=state row=1"]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("a", "k=a"),
        ("a b", 'k="a b"'),
        ("a=b", 'k="a=b"'),
        ("a\nb", 'k="a\\nb"'),
        ("\x1b[0m", 'k="\\u001b[0m"'),
        (True, "k=true"),
        (1.5, "k=1.5"),
        ("", ""),
        (None, ""),
        ("x" * 500, "k=" + "x" * (VALUE_MAX - 1) + "…"),
    ],
)
def test_values_are_logfmt_on_one_line(value: object, told: str) -> None:
    assert format_fields({"k": value}) == told


def test_where_there_is_too_much_the_lines_that_warn_stay() -> None:
    lines = [LogLine(str(n), warns=n % 3 == 0) for n in range(9)]

    assert [line.text for line in choose_lines(lines, 4)] == ["0", "1", "3", "6"]
    assert choose_lines(lines, 9) == lines
