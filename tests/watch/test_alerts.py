"""The life of an alert, case by case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.alert import ANY, Alert, Classification, Override, Signal
from provisioner.model.outcome import Reason
from provisioner.planning.watch import alerts

C = Classification
NOW = 1_790_000_000.0


def said(at: float = 0.0, *, active: bool = True, **changes: object) -> Signal:
    fields = {"node": "n1", "id": "SensorReading", "target": "Fan_1", "source": "redfish/host",
              "classifications": (C.SENSOR_CRITICAL,), "message": "hot"}  # fmt: skip
    return Signal.model_validate({**fields, "at": NOW + at, "active": active, **changes})


def after(*signals: Signal) -> Alert | None:
    alert = None
    for signal in signals:
        alert = alerts.apply_signal(alert, signal) or alert
    return alert


def test_a_report_raises_an_alert():
    alert = after(said(0))

    assert alert is not None
    assert (alert.active, alert.count, alert.since, alert.raises) == (True, 1, NOW, (NOW,))


def test_a_repeat_counts_and_keeps_the_time_it_was_raised():
    alert = after(said(0), said(5), said(9, message="hotter"))

    assert alert is not None
    assert (alert.count, alert.since, alert.last_at, alert.message) == (3, NOW, NOW + 9, "hotter")


def test_a_clear_ends_it():
    alert = after(said(0), said(5, active=False, message="cool"))

    assert alert is not None
    assert (alert.active, alert.cleared_at, alert.cleared_why) == (False, NOW + 5, "cool")


@pytest.mark.parametrize(
    ("signals", "active"),
    [
        ((said(5), said(3, active=False)), True),  # the end of something earlier
        ((said(0), said(5, active=False), said(3)), False),  # came late: that one is over
        ((said(0), said(5, active=False), said(6)), True),
        ((said(0, active=False),), None),  # the end of nothing
    ],
)
def test_reports_out_of_order_change_nothing_that_is_newer(signals, active):
    alert = after(*signals)

    assert (None if alert is None else alert.active) is active


def test_three_raises_within_an_hour_are_flapping_and_a_clear_waits_for_quiet():
    turns = [
        said(t, active=up)
        for t, up in ((0, True), (10, False), (20, True), (30, False), (40, True), (50, False))
    ]
    alert = after(*turns)

    assert alert is not None
    assert (alert.flapping, alert.active, alert.quiet_since) == (True, True, NOW + 50)
    assert alerts.settle_flapping(alert, NOW + 649) is None
    done = alerts.settle_flapping(alert, NOW + 650)
    assert done is not None
    assert (done.active, done.flapping) == (False, False)


def test_a_report_in_the_quiet_begins_it_anew():
    turns = [said(t, active=t % 20 == 0) for t in (0, 10, 20, 30, 40, 50)]
    alert = after(*turns, said(60))

    assert alert is not None
    assert alert.quiet_since == 0
    assert alerts.settle_flapping(alert, NOW + 10_000) is None


def test_raises_far_apart_are_no_flapping():
    alert = after(*(said(t, active=t % 4000 == 0) for t in (0, 10, 4000, 4010, 8000)))

    assert alert is not None
    assert not alert.flapping


def test_a_level_that_is_seen_again_unchanged_changes_nothing():
    first = alerts.level_source((), "watch", [said(source="watch")], NOW)

    assert len(first) == 1
    assert alerts.level_source(first, "watch", [said(99, source="watch")], NOW + 99) == ()


def test_a_level_that_is_gone_is_over_and_others_alerts_stay():
    mine = alerts.level_source((), "watch", [said(source="watch")], NOW)
    others = alerts.apply_signal(None, said(target="Fan_2"))
    assert others is not None

    (gone,) = alerts.level_source((*mine, others), "watch", [], NOW + 9)

    assert (gone.target, gone.active) == ("Fan_1", False)


def test_two_rules_that_say_the_same_do_not_take_turns():
    two = [said(source="watch", message="one"), said(source="watch", message="two")]
    first = alerts.level_source((), "watch", two, NOW)

    assert [a.message for a in first] == ["one"]
    assert alerts.level_source(first, "watch", two, NOW + 5) == ()


@pytest.mark.parametrize(
    ("classification", "reason"),
    [
        (C.FATAL_EVENT, Reason.CHECK_FAILED),
        (C.DRIFT, Reason.DRIFT),
        (C.PART_SWAP, Reason.DRIFT),
        (C.SENSOR_CRITICAL, None),
        (C.HARDWARE, None),
        (C.LINK, None),
        (C.PREVENT_ALLOCATIONS, None),
        (C.CERTIFICATE_AGE, None),
        (C.UNOBSERVED, None),
        (C.SENSOR_WARNING, None),
        (C.SENSOR_FAILURE, None),
    ],
)
def test_only_what_a_certificate_speaks_of_revokes_it(classification, reason):
    alert = after(said(0, classifications=(classification,)))
    assert alert is not None

    found = alerts.list_revocations((alert,), (), NOW - 1, NOW + 1)

    assert [b.reason for b in found] == ([] if reason is None else [reason])
    assert alerts.is_held((alert,), (), NOW) is (
        reason is not None or classification is C.PREVENT_ALLOCATIONS
    )


def test_what_came_before_the_certificates_checks_is_answered_by_them():
    alert = after(said(0, classifications=(C.FATAL_EVENT,)))
    assert alert is not None

    assert alerts.list_revocations((alert,), (), NOW + 5, NOW + 6) == ()
    over = alerts.supersede_alert(alert, NOW + 5, NOW + 6)
    assert over is not None
    assert not over.active
    assert alerts.supersede_alert(alert, NOW - 5, NOW + 6) is None
    drift = alert.model_copy(
        update={"id": "MembershipDrift", "classifications": (C.PREVENT_ALLOCATIONS,)}
    )
    assert alerts.supersede_alert(drift, NOW + 5, NOW + 6) is None  # no certificate judges that


@pytest.mark.parametrize(
    ("changes", "at", "applies"),
    [
        ({}, 1, True),
        ({"id": ANY}, 1, True),
        ({"target": ANY}, 1, True),
        ({"target": "Fan_2"}, 1, False),
        ({"id": "Drift"}, 1, False),
        ({"node": "n2"}, 1, False),
        ({}, 60, False),  # it ended
        ({}, -1, False),  # it was not made yet
    ],
)
def test_an_override_counts_for_what_it_names_and_until_its_end(changes, at, applies):
    fields = {"node": "n1", "id": "SensorReading", "target": "Fan_1", "by": "me", "why": "known",
              "made_at": NOW, "until": NOW + 60}  # fmt: skip
    override = Override.model_validate({**fields, **changes})
    alert = after(said(0))
    assert alert is not None

    assert (alerts.list_effective((alert,), (override,), NOW + at) == ()) is applies


def test_a_bmc_that_invents_alerts_gets_one_for_all_of_them():
    known: dict[tuple[str, str, str], Alert] = {}
    for number in range(alerts.ALERTS_MAX + 50):
        signal = said(number, id=f"Made.{number}", classifications=(C.FATAL_EVENT,))
        signal = alerts.bound_signal(known, signal)
        key = (signal.node, signal.id, signal.target)
        known[key] = alerts.apply_signal(known.get(key), signal) or known[key]

    assert len(known) == alerts.ALERTS_MAX + 1
    assert known["n1", alerts.OVERFLOW, ""].count == 50
    assert C.FATAL_EVENT in known["n1", alerts.OVERFLOW, ""].classifications


steps = st.lists(st.tuples(st.integers(0, 7200), st.booleans()), max_size=40)


@given(steps)
def test_whatever_is_reported_an_alert_stays_whole(turns):
    alert = None
    for at, active in turns:
        changed = alerts.apply_signal(alert, said(at, active=active))
        if changed is not None and alert is not None:
            assert changed != alert
        alert = changed or alert
        if alert is not None:
            assert alert.last_at >= alert.since
            assert alert.active or alert.cleared_at >= alert.since
            assert not (alert.flapping and not alert.active)
            assert 0 < len(alert.raises) <= alerts.RAISES_MAX
