"""What histories of Xids and SXids ask for, as a table of sentences."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.checks.xid.error_codes import Family
from provisioner.checks.xid.xid_events import find_events
from provisioner.planning.certification.escalation import (
    DAY_S,
    HOUR_S,
    RULES,
    Occurrence,
    Remedy,
    Step,
    find_escalations,
    list_occurrences,
)

NOW = 1_800_000_000.0
REMAP_BITS = "NVLink: fatal error detected on link 3(0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"


def xid(code: int, hours_ago: float, part: str = "GPU_SXM_1", **more: object) -> Occurrence:
    return Occurrence.model_validate(
        {"at": NOW - hours_ago * HOUR_S, "code": code, "part": part, **more}
    )


def sxid(code: int, hours_ago: float) -> Occurrence:
    at = NOW - hours_ago * HOUR_S
    return Occurrence(at=at, family=Family.SXID, code=code, part="NVSwitch_0")


def done(step: str, hours_ago: float, part: str = "") -> Remedy:
    return Remedy.model_validate({"at": NOW - hours_ago * HOUR_S, "part": part, "step": step})


@pytest.mark.parametrize(
    ("history", "remedies", "step", "rule"),
    [
        pytest.param([xid(43, 1)], [], Step.IGNORE, "by the table", id="an application's end"),
        pytest.param([xid(13, 1)], [], Step.MONITOR, "by the table", id="one graphics exception"),
        pytest.param(
            [xid(13, 3, place="GPC 1, TPC 2"), xid(13, 1, place="GPC 1, TPC 2")],
            [],
            Step.DIAGNOSE,
            "graphics exceptions in one place",
            id="graphics exceptions in one place",
        ),
        pytest.param(
            [xid(13, 3, place="GPC 1, TPC 2"), xid(13, 1, place="GPC 4, TPC 0")],
            [],
            Step.MONITOR,
            "by the table",
            id="graphics exceptions in two places",
        ),
        pytest.param(
            [xid(31, 5), xid(31, 3), xid(31, 1)],
            [],
            Step.DIAGNOSE,
            "page faults on one GPU",
            id="page faults on one GPU",
        ),
        pytest.param(
            [xid(31, h, part) for h in (5, 3, 1) for part in ("GPU_SXM_1", "GPU_SXM_2")],
            [],
            Step.MONITOR,
            "by the table",
            id="page faults on two GPUs are the application's",
        ),
        pytest.param(
            [xid(31, 1), xid(31, 1.01), xid(31, 1.02)],
            [],
            Step.MONITOR,
            "by the table",
            id="one burst is one event",
        ),
        pytest.param(
            [xid(48, 1), xid(63, 1)], [], Step.RESET, "by the table", id="48 with a remapping"
        ),
        pytest.param([xid(48, 1)], [], Step.DIAGNOSE, "48 alone", id="48 alone"),
        pytest.param(
            [xid(48, 9), xid(63, 9), xid(48, 1), xid(63, 1)],
            [done("reset", 5)],
            Step.RMA,
            "memory again after a reset",
            id="48 again although the GPU was reset",
        ),
        pytest.param(
            [xid(48, 9), xid(63, 9)],
            [done("reset", 5)],
            Step.RESET,
            "by the table",
            id="48 before the reset only",
        ),
        pytest.param([xid(64, 1)], [], Step.RMA, "remapping failed", id="no spare row"),
        pytest.param([xid(94, 1)], [], Step.MONITOR, "by the table", id="94 once"),
        pytest.param(
            [xid(94, 9), xid(94, 5), xid(94, 1)],
            [],
            Step.DIAGNOSE,
            "contained errors again and again",
            id="94 three times a day",
        ),
        pytest.param([xid(79, 1)], [], Step.RESTART, "by the table", id="off the bus"),
        pytest.param(
            [xid(79, 30), xid(79, 1)],
            [done("restart", 20)],
            Step.RMA,
            "off the bus again",
            id="off the bus again",
        ),
        pytest.param(
            [xid(74, h, link=3, words=REMAP_BITS) for h in (50, 30, 1)],
            [],
            Step.RMA,
            "one NVLink again",
            id="one NVLink three times",
        ),
        pytest.param(
            [xid(74, h, link=n, words=REMAP_BITS) for n, h in enumerate((50, 30, 1))],
            [],
            Step.RESET,
            "by the table",
            id="three NVLinks once",
        ),
        pytest.param(
            [xid(119, h) for h in (20, 15, 10, 5, 1)],
            [],
            Step.RMA,
            "fatal five times a day",
            id="five fatal ones a day",
        ),
        pytest.param(
            [xid(119, 100), xid(119, 50), xid(119, 1)],
            [done("reset", 90), done("restart", 40)],
            Step.RMA,
            "fatal after two remedies",
            id="again after two remedies",
        ),
        pytest.param([xid(999, 1)], [], Step.DIAGNOSE, "by the table", id="an unknown code"),
        pytest.param(
            [xid(154, 1, words="GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)")],
            [],
            Step.RESTART,
            "by the table",
            id="154 says it itself",
        ),
    ],
)
def test_a_history_asks_for(
    history: list[Occurrence], remedies: list[Remedy], step: Step, rule: str
) -> None:
    found = {e.part: e for e in find_escalations(history, remedies, NOW)}

    assert (found["GPU_SXM_1"].step, found["GPU_SXM_1"].rule) == (step, rule)


def test_a_fatal_switch_error_takes_the_blame_from_the_gpus() -> None:
    words = "NVLink: fatal error detected on link 3(0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x1)"
    found = find_escalations([xid(74, 1, words=words), sxid(12020, 1)], [], NOW)

    assert {e.part: e.step for e in found} == {
        "GPU_SXM_1": Step.RESTART,
        "NVSwitch_0": Step.RESTART,
    }
    assert "the switch is the cause" in next(e for e in found if e.part == "GPU_SXM_1").reason


def test_old_events_ask_for_nothing() -> None:
    assert find_escalations([xid(79, 24 * 30)], [], NOW) == ()


def test_what_is_in_the_future_is_not_seen() -> None:
    assert find_escalations([xid(79, -1)], [], NOW) == ()


def test_a_logs_events_become_history() -> None:
    line = "2026-03-01T10:05:00,500000+00:00 NVRM: Xid (PCI:0000:52:00): 79, pid=1, name=x, gone"

    found = list_occurrences(find_events([line, "[12.5] NVRM: Xid (PCI:0000:52:00): 79, gone"]))

    assert [(o.code, o.part, o.at) for o in found] == [(79, "PCI 0000:52:00", 1772359500.5)]


def test_every_rule_has_a_name_of_its_own_and_a_source() -> None:
    assert len({r.name for r in RULES}) == len(RULES)
    assert all(r.source and r.why and r.window_s <= 366 * DAY_S for r in RULES)


histories = st.lists(
    st.builds(
        xid,
        st.sampled_from([13, 31, 43, 48, 63, 64, 74, 79, 94, 95, 119, 154, 999]),
        st.floats(0, 400),
        st.sampled_from(["GPU_SXM_1", "GPU_SXM_2"]),
    ),
    max_size=12,
)


@given(histories, st.randoms(use_true_random=False))
def test_the_order_of_a_history_means_nothing(
    history: list[Occurrence], rng: random.Random
) -> None:
    mixed = [*history]
    rng.shuffle(mixed)

    assert [(e.part, e.step) for e in find_escalations(mixed, [], NOW)] == [
        (e.part, e.step) for e in find_escalations(history, [], NOW)
    ]
