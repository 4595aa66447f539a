"""Verdicts from event lines: what each event means, and that nothing hostile gets through."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.integrations.playbooks.events import (
    DETAIL_MAX,
    LINE_MAX,
    Events,
    list_tasks,
    make_readable,
)
from provisioner.ports import PlaybookResult

GOOD = {"event": "result", "host": "a", "fact": {"v": "1"}}
STATS = {"ok": 1, "failures": 0, "unreachable": 0, "changed": 0, "rescued": 0, "ignored": 0}


def lines(*events: object) -> bytes:
    return b"".join(json.dumps(e).encode() + b"\n" for e in events)


def verdicts(*events: object, hosts: str = "a", output: str | None = None) -> dict[str, str]:
    told = Events(hosts)
    found = told.feed(lines(*events)) + told.end_run(output)
    return {host: f"{r.status}: {r.detail}" for host, r in found}


def task(name: str, host: str = "a") -> dict[str, str]:
    return {"event": "task", "host": host, "task": name}


def failed(message: object, *, final: bool, host: str = "a") -> dict[str, object]:
    return {
        "event": "failed", "host": host, "task": "T", "message": message, "final": final
    }  # fmt: skip


@pytest.mark.parametrize(
    ("events", "verdict"),
    [
        ([], "unknown: the run ended without a verdict"),
        ([task("Burn")], "unknown: the run ended in the task Burn without a verdict"),
        ([task("Burn"), failed("no", final=True)], "failed: T: no"),
        ([failed("no", final=False)], "unknown: T: no"),
        (
            [failed("no", final=False), {"event": "end", "hosts": {"a": STATS}}],
            "failed: the play ended without a result",
        ),
        (
            [failed("no", final=False), {"event": "end", "hosts": {"a": STATS | {"failures": 1}}}],
            "failed: T: no",
        ),
        (
            [{"event": "item_failed", "host": "a", "message": "item 2"}, failed("All", final=True)],
            "failed: T: item 2",
        ),
        (
            [{"event": "unreachable", "host": "a", "message": "gone", "final": True}],
            "unreachable: gone",
        ),
        (
            [{"event": "end", "hosts": {"a": STATS | {"unreachable": 1, "failures": 1}}}],
            "unreachable: ",
        ),
        ([{"event": "end", "hosts": {}}], "unknown: the run ended without a verdict"),
        ([{"event": "end", "hosts": [1]}], "unknown: the run ended without a verdict"),
        (
            [{"event": "end", "hosts": {"a": {"failures": None}}}],
            "unknown: the run ended without a verdict",
        ),
        (
            [{"event": "result", "host": "a", "fact": [1]}],
            "failed: malformed provisioner_result: it is no object",
        ),
        (
            [{"event": "result", "host": "a", "problem": "too\u001b[2J large"}],
            "failed: malformed provisioner_result: too [2J large",
        ),
        ([failed(7, final=True)], "failed: T: "),
    ],
)
def test_what_events_mean(events: list[object], verdict: str) -> None:
    assert verdicts(*events) == {"a": verdict}


def test_a_result_is_final_and_what_comes_after_it_changes_nothing() -> None:
    told = Events("a")

    assert told.feed(lines(GOOD)) == [("a", PlaybookResult("ok", {"v": "1"}))]
    assert told.feed(lines(failed("late", final=True), GOOD)) == []
    assert told.end_run(None) == []


def test_a_host_that_no_task_touched_failed_for_what_ansible_printed() -> None:
    output = "[WARNING]: old\n\x1b[0;31m[ERROR]: no such role\x1b[0m\n"

    assert verdicts(task("T"), hosts="ab", output=output) == {
        "a": "unknown: the run ended in the task T without a verdict",
        "b": "failed: the play did not begin: [ERROR]: no such role",
    }


def test_a_line_over_its_limit_is_skipped_and_the_next_is_read() -> None:
    told = Events("a")
    for _ in range(3):
        assert told.feed(b"x" * (LINE_MAX - 1)) == []

    assert told.feed(b"\n" + lines(GOOD)) == [("a", PlaybookResult("ok", {"v": "1"}))]
    assert told.malformed == 1


def test_secrets_are_taken_out_before_anything_is_read() -> None:
    told = Events("a")
    told.hide(['p"ss\u00e9', "abc"])

    ((_, result),) = told.feed(lines(failed('it is p"ss\u00e9 or abc', final=True)))

    assert result.detail == "T: it is (secret) or abc"  # three letters are no secret


@given(st.lists(st.binary(max_size=200)), st.data())
def test_no_bytes_make_a_verdict_of_success_or_an_error(
    parts: list[bytes], data: st.DataObject
) -> None:
    told = Events("ab")
    found = [v for part in parts for v in told.feed(part)] + told.end_run(None)

    assert {host for host, _ in found} == {"a", "b"}
    assert {r.status for _, r in found} <= {"unknown", "failed", "unreachable"}


@given(st.binary(max_size=400).map(lambda b: lines(task("T"), GOOD) + b), st.data())
def test_how_the_bytes_are_cut_does_not_matter(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    whole, piecewise = Events("ab"), Events("ab")
    at_once = whole.feed(stream)
    pieces = [stream[i:j] for i, j in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    assert [v for p in pieces for v in piecewise.feed(p)] == at_once


@given(st.text())
def test_what_a_person_reads_moves_no_cursor_and_is_short(text: str) -> None:
    shown = make_readable(text)

    assert shown.isprintable()
    assert len(shown) <= DETAIL_MAX


def test_each_task_of_a_host_is_told_with_its_end_and_without_secrets() -> None:
    told = [
        {"event": "task", "host": "n1", "task": "install", "at": 10.0},
        {"event": "task", "host": "n2", "task": "install", "at": 10.0},
        {"event": "done", "host": "n1", "task": "install", "status": "changed",
         "message": "with pass-word-1\x1b[31m\x07\nsecond line", "at": 12.0},
        {"event": "task", "host": "n1", "task": "verify", "at": 12.5},
        {"event": "failed", "host": "n1", "task": "verify", "message": "it is gone"},
        {"event": "task", "host": "n1", "task": "rescue", "at": "never"},
        {"event": "done", "host": "n1", "status": "owned", "at": 1},
        ["no event"],
    ]  # fmt: skip
    data = b"\n".join(json.dumps(line).encode() for line in told) + b"\n{\n"

    tasks = list_tasks(data, "n1", ["pass-word-1"])

    assert [(t.task, t.status) for t in tasks] == [
        ("install", "changed"),
        ("verify", "failed"),
        ("rescue", "running"),
    ]
    assert tasks[0].message == "with (secret) \nsecond line"
    assert (tasks[0].began_at, tasks[0].ended_at) == (10.0, 12.0)
    assert tasks[1].message == "it is gone"
