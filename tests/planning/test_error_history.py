"""Errors of earlier boots count, those of a part that is no longer present do not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.cohort import CheckResult, Gate, HealthReport, Verdict
from provisioner.planning.certification.escalation import (
    evidence_of,
    judge_history,
    list_restarts,
    read_history,
    select_since_parts_changed,
)

DAY = 86400.0
NOW = 1_800_000_000.0
SLOTS = {"0000:1b:00": "GPU_SXM_1"}


def line(at: float, code: int, words: str = "pid=1, name=x, Contained error") -> str:
    from datetime import UTC, datetime

    stamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S,%f+00:00")
    return f"{stamp} NVRM: Xid (PCI:0000:1b:00): {code}, {words}"


def raw(*lines: str) -> str:
    return json.dumps({"kernel_log": {"text": "\n".join(lines) + "\n", "exit_code": 0}})


def report(started_at: float, evidence: str = "", causes: tuple[str, ...] = ()) -> HealthReport:
    result = CheckResult(check="kernel_log", gate=Gate.A, verdict=Verdict.PASS, evidence=evidence)
    return HealthReport(
        node="n1", inventory_digest="d", started_at=started_at, ended_at=started_at + 60,
        results=(result,), causes=causes,
    )  # fmt: skip


def test_history_ends_where_parts_were_exchanged():
    reports = [report(3.0), report(2.0, causes=("repaired",)), report(1.0)]

    assert select_since_parts_changed(reports) == tuple(reports[:2])
    assert evidence_of([report(1.0, "a"), report(2.0, "a"), report(3.0, "b")]) == ("a", "b")


def test_an_error_that_many_boots_had_condemns_although_each_log_is_short():
    texts = [raw(line(NOW - n * 3600, 79, "GPU has fallen off the bus.")) for n in range(1, 6)]
    past = read_history(texts, SLOTS)
    reports = [report(NOW - n * 3600) for n in range(1, 6)]

    found = judge_history(report(NOW), past, list_restarts(reports), NOW)

    assert len(past) == 5
    assert found.results[0].verdict is Verdict.FAIL
    assert found.results[0].findings[0].part in ("GPU_SXM_1", "PCI 0000:1b:00")
    assert "history asks to" in found.results[0].findings[0].detail


def test_a_single_error_of_an_earlier_boot_was_dealt_with_there():
    past = read_history([raw(line(NOW - 3600, 79, "GPU has fallen off the bus."))], SLOTS)

    assert judge_history(
        report(NOW), past, list_restarts([report(NOW - 3600), report(NOW)]), NOW
    ) == report(NOW)


def test_the_same_log_read_twice_counts_once():
    text = raw(line(NOW - 60, 94))

    assert len(read_history([text, text], SLOTS)) == 1


def test_a_quiet_history_changes_nothing():
    quiet = report(NOW)

    assert (
        judge_history(
            quiet, read_history([raw("2026-11-20T10:00:00,0+00:00 usb 1-1: hello")], SLOTS), (), NOW
        )
        == quiet
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a": 1}', '{"a": {"text": 7}}'])
def test_what_cannot_be_read_tells_nothing(text):
    assert read_history([text], SLOTS) == ()


@given(st.text(max_size=300))
def test_no_text_makes_it_fail(text):
    read_history([text, raw(text)], SLOTS)
