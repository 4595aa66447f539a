"""Series of optics: verdicts with dates, innocents, causes that are shared, and what they cost."""

from __future__ import annotations

import json
import random
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from optic_alerts import list_alerts
from typer.testing import CliRunner

from provisioner.integrations.optics.optics_commands import optics
from provisioner.integrations.optics.port_routes import read_fleet, read_kept
from provisioner.integrations.optics.series import (
    QUANTITIES,
    LeafSeries,
    OpticSeries,
    decode,
    encode,
    read_days,
    read_frames,
    read_judged,
    read_now,
)
from provisioner.integrations.optics.trends import Day, find_shared, judge_port
from provisioner.model.alert import Alert, Classification
from provisioner.model.link_reading import DARK_DBM, Limits, LinkReading, OpticReading, make_limits
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind

BEGAN = date(2026, 5, 1)


def days(
    rx: list[float | None], bias: float | list[float] = 60.0, serial: str = "A", **more: object
) -> list[Day]:
    out = []
    for n, value in enumerate(rx):
        values = {"bias_ma": bias[n] if isinstance(bias, list) else bias, "tx_dbm": 0.6}
        if value is not None:
            values["rx_dbm"] = value
        known = {"serial": serial, "kind": "optic", "low_alarm_dbm": -9.0, **more}
        out.append(Day(day=BEGAN + timedelta(days=n), values=values, **cast(Any, known)))
    return out


def test_light_that_falls_with_a_steady_sender_is_dirt_with_its_dates() -> None:
    found = judge_port("l/swp1", days([0.8] * 10 + [0.8 - 0.3 * n for n in range(12)]))

    assert (found.state, found.end) == ("dirty", "node")
    assert found.since == BEGAN + timedelta(days=12)
    assert found.until is not None
    assert BEGAN + timedelta(days=35) < found.until < BEGAN + timedelta(days=60)
    assert "Clean both connectors" in found.remedy


def test_a_laser_that_needs_more_current_is_dying_at_the_leafs_end() -> None:
    found = judge_port(
        "l/swp1", days([0.8] * 20, bias=[60.0] * 8 + [60 + 2 * n for n in range(12)])
    )

    assert (found.state, found.end) == ("dying", "leaf")
    assert "Swap the leaf's optic" in found.remedy


@pytest.mark.parametrize(
    ("rx", "state"),
    [
        ([DARK_DBM] * 20, "unknown"),  # an unused port, or a module that shows -40
        ([None] * 20, "unknown"),  # "N/A"
        ([0.8] * 3, "unknown"),
        ([0.8] * 10 + [-4.0] + [0.8] * 9, "good"),  # one bad day
        ([0.8, 0.9, 0.7] * 7, "good"),
        ([0.8] * 19 + [DARK_DBM], "dark"),
        ([0.8] * 18 + [-9.5, -9.6], "dirty"),  # below the module's own limit
    ],
)
def test_a_verdict_needs_a_trend_that_goes_on(rx: list[float | None], state: str) -> None:
    assert judge_port("l/swp1", days(rx)).state == state


def test_copper_and_silence_are_never_swapped() -> None:
    copper = judge_port("l/swp1", [Day(day=BEGAN, kind="copper")])

    assert (copper.state, copper.remedy) == ("good", "")
    assert judge_port("l/swp1", []).state == "unknown"
    # without limits (thresholds of zero) there is a trend, and no date for its end
    falls = days([0.8] * 10 + [0.8 - 0.3 * n for n in range(12)], low_alarm_dbm=None)
    assert judge_port("l/swp1", falls).until is None


def test_a_repair_is_proved_by_its_light_only() -> None:
    fell = [0.8] * 10 + [0.8 - 0.3 * n for n in range(10)]
    good = judge_port("l/swp1", [*days([*fell, *[0.7] * 6])])
    worse = judge_port("l/swp1", [*days([*fell, *[-0.7] * 6])])

    assert (good.state, good.repaired_on, good.proved) == (
        "good", BEGAN + timedelta(days=20), True,
    )  # fmt: skip
    assert worse.proved is False
    swapped = days(fell) + [
        Day(day=BEGAN + timedelta(days=20 + n), values={"rx_dbm": 0.8}, serial="B", kind="optic")
        for n in range(6)
    ]
    assert judge_port("l/swp1", swapped).proved is True


def test_planted_optics_are_found_and_no_innocent_of_ten_thousand() -> None:
    rng = random.Random(7)
    wrong = found = 0
    for number in range(10_000):
        level = rng.uniform(-2.0, 1.5)
        rx = [round(level + rng.gauss(0, 0.15), 2) for _ in range(30)]
        planted = number % 50 == 0
        if planted:
            rx = [v - 0.25 * max(0, n - 14) for n, v in enumerate(rx)]
        state = judge_port("l/p", days(list(rx))).state
        found += planted and state == "dirty"
        wrong += not planted and state != "good"

    assert wrong == 0
    assert found >= 0.98 * 200


def test_a_lot_with_far_more_bad_optics_than_its_share_is_named_and_a_leaf_is_not() -> None:
    groups = {f"l{n % 40}/p{n}": (f"leaf l{n % 40}", f"lot {n % 25}") for n in range(2000)}
    bad = [*[port for port, (_, lot) in groups.items() if lot == "lot 3"][:9], "l1/p1", "l2/p2"]

    causes = find_shared(bad, groups)

    assert [c.group for c in causes] == ["lot 3"]
    spread = [port for n, port in enumerate(groups) if n % 97 == 0]
    assert find_shared(spread, groups) == ()


@pytest.mark.parametrize(
    ("quantity", "value", "near"),
    [
        ("rx_dbm", -3.2, 0.1),
        ("bias_ma", 6.75, 0.12),
        ("bias_ma", 380.0, 7),
        ("temperature_c", 41.0, 0.4),
    ],
)
def test_a_byte_holds_a_value_as_near_as_its_trend_needs(
    quantity: str, value: float, near: float
) -> None:
    back = decode(quantity, encode(quantity, value))

    assert back is not None
    assert abs(back - value) <= near
    assert decode(quantity, encode(quantity, None)) is None
    assert decode("rx_dbm", encode("rx_dbm", DARK_DBM)) == DARK_DBM


def reading(rx: float, serial: str = "A") -> LinkReading:
    lanes = {"rx_dbm": (rx, rx + 0.2), "tx_dbm": (0.6,), "bias_ma": (60.0,)}
    optic = OpticReading("optic", serial, "MMS4X00", "NVIDIA", "240315", lanes,
                         {"rx_dbm": Limits(-9.0, None, None, 7.0)})  # fmt: skip
    return LinkReading(optic)


def feed(series: OpticSeries, number: int, rx: float) -> None:
    at = datetime(2026, 5, 1, 12, tzinfo=UTC) + timedelta(days=number)
    for hour in range(3):
        moment = (at + timedelta(hours=hour)).timestamp()
        series.take("n1", "leaf-1/swp1", reading(rx), moment, changes=number)
        series.take("n2", "leaf-1/swp2", reading(0.8, "B"), moment, changes=0)


def test_a_daemon_names_the_end_on_the_node_and_the_report_says_the_same(tmp_path: Path) -> None:
    series = OpticSeries(tmp_path, days_kept=10)
    for number in range(22):
        feed(series, number, 0.8 if number < 10 else 0.8 - 0.3 * (number - 10))
    series.close()

    assert series.list_standing()["n2"] == {"leaf-1/swp2": None}
    (alert,) = list_alerts(series)
    assert alert.id == "OpticDegrades"
    assert "the node's end since 2026-05-1" in alert.message
    assert len(list((tmp_path / "leaf-1").glob("*.z"))) == 11  # older pieces are gone

    app = typer.Typer()
    app.command()(optics)
    ran = CliRunner().invoke(app, [str(tmp_path), "--json"])
    assert ran.exit_code == 1, ran.output
    (port,) = json.loads(ran.output)["ports"]
    assert (port["port"], port["state"], port["end"]) == ("leaf-1/swp1", "dirty", "node")
    assert port["flaps"] > 0


def fall(series: OpticSeries, first: int, last: int) -> None:
    for number in range(first, last):
        feed(series, number, 0.8 if number < 10 else 0.8 - 0.3 * (number - 10))


def test_what_stood_before_a_restart_stands_from_the_first_look_on(tmp_path: Path) -> None:
    series = OpticSeries(tmp_path, days_kept=10)
    fall(series, 0, 22)
    series.close()
    moment = datetime(2026, 5, 22, 20, tzinfo=UTC).timestamp()

    again = OpticSeries(tmp_path, days_kept=10)
    again.take("n1", "leaf-1/swp1", reading(-2.8), moment)

    again.settle()

    assert [f.id for f in list_alerts(again)] == ["OpticDegrades"]


def test_a_daemon_that_restarts_each_night_loses_no_day_and_judges_each(tmp_path: Path) -> None:
    for number in range(22):
        series = OpticSeries(tmp_path, days_kept=10)
        fall(series, number, number + 1)
        series.close()

    found = read_days(tmp_path / "leaf-1")["swp1"]
    assert [d.day.day for d in found] == list(range(1, 22))  # the last one still runs
    assert [f.id for f in list_alerts(series)] == ["OpticDegrades"]


@pytest.mark.parametrize("at", ["before_the_medians", "before_the_end"])
def test_a_crash_while_a_day_is_closed_loses_and_doubles_no_median(tmp_path: Path, at: str) -> None:
    series = OpticSeries(tmp_path, days_kept=10)
    fall(series, 0, 1)
    series.close()
    day = date(2026, 5, 1)
    kept: list[date] = []

    def die(ended: date, _medians: object) -> None:
        if at == "before_the_end":
            row = {"day": ended.isoformat(), "ports": {"swp1": {"values": {"rx_dbm": 0.8}}}}
            (tmp_path / "leaf-1/days.jsonl").write_text(
                json.dumps(row, separators=(",", ":")) + "\n"
            )
        kept.append(ended)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LeafSeries(tmp_path / "leaf-1").close_day(day, die)
    assert kept == [day]

    again = OpticSeries(tmp_path, days_kept=10)
    fall(again, 1, 3)
    again.close()

    found = read_days(tmp_path / "leaf-1")["swp1"]
    assert [d.day.day for d in found] == [1, 2]
    assert found[0].values["rx_dbm"] == pytest.approx(0.8, abs=0.1)
    assert not list((tmp_path / "leaf-1").glob("2026-05-01.frames"))


def test_many_leaves_that_end_a_day_at_once_are_closed_beside_the_loop(tmp_path: Path) -> None:
    series = OpticSeries(tmp_path, days_kept=10)
    held = threading.Event()
    series._closing.submit(held.wait)  # the thread is busy: nothing of the loop waits for it
    began = datetime(2026, 5, 1, 23, 50, tzinfo=UTC)
    for step in range(4):
        moment = (began + timedelta(minutes=10 * step)).timestamp()
        for leaf in range(20):
            series.take("n1", f"leaf-{leaf}/swp1", reading(0.8), moment)

    assert all((tmp_path / f"leaf-{n}/2026-05-01.frames").exists() for n in range(20))
    held.set()
    series.close()

    assert not list(tmp_path.glob("*/2026-05-01.frames"))
    assert all(len(read_days(tmp_path / f"leaf-{n}")["swp1"]) == 1 for n in range(20))


def test_a_port_that_was_not_read_for_a_month_is_accused_no_more(tmp_path: Path) -> None:
    series = OpticSeries(tmp_path, days_kept=10)
    fall(series, 0, 22)
    for number in range(22, 56):  # it was unplugged; its neighbour goes on
        for hour in (1, 2):
            at = datetime(2026, 5, 1, hour, tzinfo=UTC) + timedelta(days=number)
            series.take("n2", "leaf-1/swp2", reading(0.8, "B"), at.timestamp())
        series.settle()
        accused = bool(list_alerts(series))
        assert accused or number > 50, number  # silence alone clears nobody soon

    assert "n1" not in series.list_standing()  # nor is it called well: what stands elsewhere stands


@pytest.mark.parametrize("later", ["no day yet", "too few days", "no light", "not reported"])
def test_a_daemon_with_nothing_to_tell_of_a_port_does_not_call_it_well(
    tmp_path: Path, later: str
) -> None:
    """A new owner of a node has no days of it; the alert that another raised is not its to end."""
    series = OpticSeries(tmp_path, days_kept=10)
    rx = {"no light": DARK_DBM, "not reported": None}.get(later, 0.8)
    for number in range({"no day yet": 1, "too few days": 3}.get(later, 12)):
        at = (datetime(2026, 5, 1, 12, tzinfo=UTC) + timedelta(days=number)).timestamp()
        told = LinkReading(None) if rx is None else reading(rx)
        series.take("n1", "leaf-1/swp1", told, at)
    series.close()

    assert series.list_standing() == {}


LATER = [("light", True), ("dark", False), ("light and dark", False)]


@pytest.mark.parametrize(("after", "well"), LATER)
def test_an_optic_that_was_repaired_is_well_and_one_that_went_dark_is_not(
    tmp_path: Path, after: str, well: bool
) -> None:
    series = OpticSeries(tmp_path, days_kept=10)
    fall(series, 0, 22)
    series.settle()
    assert list_alerts(series)
    for number in range(22, 26):
        light = after == "light" or (after == "light and dark" and number < 24)
        feed(series, number, 0.8 if light else DARK_DBM)
    series.close()

    assert list_alerts(series) == []
    assert ("leaf-1/swp1" in series.list_standing().get("n1", {})) is well


def test_the_file_of_days_is_bounded_and_a_broken_day_stops_none_after_it(tmp_path: Path) -> None:
    folder = tmp_path / "leaf-1"
    folder.mkdir()
    row = json.dumps({"day": "2025-01-01", "ports": {}}) + "\n"
    (folder / "days.jsonl").write_text(row * 5000)
    (folder / "2026-04-30.frames").write_bytes(b"\0" * 3)  # its .ports is missing
    (folder / "notes.frames").write_bytes(b"")
    series = OpticSeries(tmp_path, days_kept=10)
    fall(series, 0, 3)
    series.close()

    lines = (folder / "days.jsonl").read_text().splitlines()
    assert len(lines) < 450
    assert json.loads(lines[-1])["day"] == "2026-05-02"
    assert sorted(f.name for f in folder.glob("*.broken")) == [
        *("2026-04-30.broken", "notes.broken"),
    ]


def test_frames_after_a_cut_one_are_read_whole(tmp_path: Path) -> None:
    at = datetime(2026, 5, 1, tzinfo=UTC).timestamp()
    series = LeafSeries(tmp_path, QUANTITIES[:1])
    series.append(at, {"swp1": b"\x50", "swp2": b"\x60"})
    file = tmp_path / "2026-05-01.frames"
    file.write_bytes(file.read_bytes() * 2 + file.read_bytes()[:3])

    again = LeafSeries(tmp_path, QUANTITIES[:1])
    for number in range(4):
        again.append(at + 300 * number, {"swp1": b"\x50", "swp2": b"\x60"})

    assert [f for _, f in read_frames(file.read_bytes())] == [b"\x50\x60"] * 6


def test_a_frame_that_a_crash_cut_costs_only_itself(tmp_path: Path) -> None:
    series = LeafSeries(tmp_path, QUANTITIES[:1])
    at = datetime(2026, 5, 1, tzinfo=UTC).timestamp()
    for number in range(5):
        series.append(at + 300 * number, {"swp1": b"\x50", "swp2": b"\x60"})
    file = tmp_path / "2026-05-01.frames"
    file.write_bytes(file.read_bytes()[:-1])

    assert len(list(read_frames(file.read_bytes()))) == 4
    again = LeafSeries(tmp_path, QUANTITIES[:1])
    again.append(at + 86_400, {"swp1": b"\x50"})
    again.close_left(date(2026, 5, 2), lambda *_: None)
    assert (tmp_path / "2026-05-01.z").exists()


def test_days_that_are_damaged_are_left_out(tmp_path: Path) -> None:
    good = {"day": "2026-05-01", "ports": {"swp1": {"values": {"rx_dbm": 0.8}}}}
    (tmp_path / "days.jsonl").write_text(f'{{"day": \n[]\n{json.dumps(good)}\n{{"day": "x"}}\n')

    assert list(read_days(tmp_path)) == ["swp1"]


def test_one_damaged_port_of_a_day_takes_no_other_with_it(tmp_path: Path) -> None:
    sound = {"values": {"rx_dbm": -1.0}}
    damaged: list[object] = [
        None,
        [],
        {"values": {"rx_dbm": float("nan")}},
        {"values": {"rx_dbm": 1.0}, "flaps": float("inf")},
        {"values": {"rx_dbm": 1.0}, "low": float("inf")},
        {"values": {"rx_dbm": "x"}},
    ]
    ports = {f"swp{n}": one for n, one in enumerate(damaged)} | {"swp9": sound}
    deep = '{"day":"2026-05-02","ports":' + "[" * 100_000
    lines = [json.dumps({"day": "2026-05-01", "ports": ports}), deep, '{"ports": {}}', "{", ""]
    (tmp_path / "days.jsonl").write_text("\n".join(lines))
    (tmp_path / "judged.json").write_text("[" * 100_000)

    assert list(read_days(tmp_path)) == ["swp9"]
    assert not read_judged(tmp_path).whole


def fill_days(folder: Path) -> tuple[Node, float]:
    """Keep twenty days of two rails of a node, one with light that falls; return it, and now."""
    series = OpticSeries(folder, days_kept=31)
    at = datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp()
    for number in range(20):
        for look in range(2):
            at = datetime(2026, 5, 1 + number, 12, 5 * look, tzinfo=UTC).timestamp()
            for port, rx in (("swp1", 0.8 - 0.3 * max(0, number - 9)), ("swp2", 0.8)):
                queues = {"pause_received": 300 * look, "watchdog_stuck": 0}
                one = LinkReading(reading(rx).optic, queues)
                series.take("n1", f"leaf-1/{port}", one, at, changes=0)
            series.end_look("leaf-1")
    series.close()
    ports = tuple(Port(switch="leaf-1", interface=f"swp{n}", rail=n - 1, nic_slot=f"NIC_{n}")
                  for n in (1, 2, 3))  # fmt: skip
    return Node(id="n1", kind=NodeKind.HOST, ports=ports), at


def test_a_nodes_rails_are_told_from_what_was_kept(tmp_path: Path) -> None:
    node, at = fill_days(tmp_path)
    alert = Alert(node="n1", id="OpticDegrades", target="leaf-1/swp1",
                  classifications=(Classification.SENSOR_WARNING,), message="", source="watch",
                  since=at, last_at=at)  # fmt: skip

    first, second, third = read_kept(node, tmp_path, [alert])

    assert (first.verdict.state, first.alerts, second.alerts) == ("dirty", ("OpticDegrades",), ())
    assert second.verdict.state == "good"
    assert first.now["per_s"] == {"pause_received": 1.0}
    assert second.days[-1].queues == {"pause_received": 300}
    assert first.get_values()["rx_dbm"] == pytest.approx(-2.2)
    assert first.get_link()["read_at"] == at
    # never read: no light, no count, and no verdict
    assert (third.verdict.state, third.now, third.get_link()["read_at"]) == ("unknown", {}, 0.0)


def test_a_reading_of_another_host_or_a_damaged_file_tells_nothing(tmp_path: Path) -> None:
    node, _ = fill_days(tmp_path)
    other = node.model_copy(update={"id": "n2"})

    assert all(one.now == {} for one in read_kept(other, tmp_path, []))
    for damage in ("", "[]", "{", '{"swp1": 3}', '{"swp1": {"node": "n1"}}'):
        (tmp_path / "leaf-1" / "now.json").write_text(damage)
        assert read_kept(node, tmp_path, [])[0].get_values()["rx_dbm"] is None
    away = node.model_copy(update={"ports": (node.ports[0].model_copy(update={"switch": "../x"}),)})
    assert [one.now for one in read_kept(away, tmp_path, [])] == [{}]
    assert [one.now for one in read_kept(node, None, [])] == [{}, {}, {}]


def test_a_counter_that_fell_or_was_not_read_adds_nothing(tmp_path: Path) -> None:
    series = OpticSeries(tmp_path, days_kept=31)
    at = datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp()
    for number, counts in enumerate(
        ({"discards": 5}, {"discards": 9}, {"discards": 2}, {}, {"discards": 4})
    ):
        series.take("n1", "leaf-1/swp1", LinkReading(None, counts), at + 300 * number)
        series.end_look("leaf-1")
    now = read_now(tmp_path / "leaf-1")["swp1"]
    series.take("n1", "leaf-1/swp1", LinkReading(), at + 86_400)  # copper, without queues
    series.end_look("leaf-1")
    series.settle()
    series.close()

    assert (now["queues"], now["per_s"]) == ({"discards": 4}, {})
    assert read_days(tmp_path / "leaf-1")["swp1"][0].queues == {"discards": 4}


@pytest.mark.parametrize(
    ("lanes", "link", "light"),
    [
        ((0.8, DARK_DBM), "up", 0.8),  # the other lane is another port's of a breakout
        ((DARK_DBM, DARK_DBM), "up", None),  # a module that measures no light
        ((0.8, DARK_DBM), "down", DARK_DBM),
        ((DARK_DBM,), "down", DARK_DBM),
        ((), "up", None),
    ],
)
def test_a_port_with_carrier_has_light_on_its_own_lanes(
    tmp_path: Path, lanes: tuple[float, ...], link: str, light: float | None
) -> None:
    series = OpticSeries(tmp_path, days_kept=31)
    optic = OpticReading("optic", "A", lanes={"rx_dbm": lanes} if lanes else {})
    at = datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp()
    series.take("n1", "leaf-1/Ethernet0", LinkReading(optic), at, link=link)
    series.end_look("leaf-1")
    series.close()

    assert read_now(tmp_path / "leaf-1")["Ethernet0"]["values"]["rx_dbm"] == light


@pytest.mark.parametrize(
    ("rx", "low", "up", "state"),
    [
        ([-25.85] * 20, -21.02, False, "unknown"),  # an empty cage
        ([-25.85] * 20, -21.02, True, "dirty"),
        ([-25.85] * 3, -21.02, True, "dirty"),  # a limit of the module needs no trend
        ([-8.0] * 10 + [-25.0] * 3, -21.02, False, "dirty"),  # it had light
        ([-25.85] * 20, None, False, "good"),  # without limits it is as it always was
        ([None] * 20, -21.02, True, "unknown"),
    ],
)
def test_a_port_below_its_alarm_limit_is_accused_only_where_it_is_in_use(
    rx: list[float | None], low: float | None, up: bool, state: str
) -> None:
    assert judge_port("l/p", days(rx, low_alarm_dbm=low, up=up)).state == state


@pytest.mark.parametrize(
    "words", ["0", "0.0", "0.0000 dBm", "N/A", "", "nan", "inf", "-0,0", "1.0 mW"]
)
def test_a_limit_that_was_never_set_is_none(words: str) -> None:
    assert make_limits("rx_dbm", {"low_alarm": words, "high_alarm": "3.4"}) is None


def test_the_fleets_optics_are_listed_with_what_they_share(tmp_path: Path) -> None:
    for number in range(40):
        series = OpticSeries(tmp_path, days_kept=31)
        bad = 3 if number in (4, 5) else 0  # two leaves have three ports each that grow dark
        (tmp_path / f"leaf-{number}").mkdir()
        lines = []
        for day in range(20):
            falls = 0.3 * max(0, day - 9)
            ports = {
                f"swp{n}": {"values": {"rx_dbm": 0.8 - (falls if n < bad else 0)}, "kind": "optic",
                            "part": "P", "lot": "odd" if n < bad else f"lot {n}", "flaps": 0}
                for n in range(8)
            }  # fmt: skip
            lines.append(json.dumps({"day": f"2026-05-{day + 1:02d}", "ports": ports}))
        (tmp_path / f"leaf-{number}" / "days.jsonl").write_text("\n".join(lines) + "\n")
        at = datetime(2026, 5, 21, 12, tzinfo=UTC).timestamp()
        series.take(f"n{number}", f"leaf-{number}/swp0", reading(0.8), at)
        series.settle()
        series.close()
    (tmp_path / "leaf-9" / "judged.json").write_text('{"rows": [3, {"port": "x"}], "sizes": {}}')
    (tmp_path / "leaf-new").mkdir()  # its first day has not ended
    (tmp_path / "stray").write_text("")

    told = read_fleet(tmp_path)

    assert {(o.switch, o.interface, o.state) for o in told.items} == {
        (f"leaf-{leaf}", f"swp{n}", "dirty") for leaf in (4, 5) for n in range(3)
    }
    assert {o.node for o in told.items if o.interface == "swp0"} == {"n4", "n5"}
    assert told.ports == 39 * 8
    assert [c.group for c in told.causes if c.group.startswith("lot")] == ["lot P odd"]
    assert (told.unread, told.unknown) == (("leaf-9", "leaf-new"), 0)
    assert read_fleet(tmp_path / "none").ports == 0


@pytest.mark.parametrize(
    "kept",
    [
        "", "{", "[]", "{}", '{"rows": null, "sizes": {}, "unknown": 0}',
        '{"rows": [], "sizes": {}}', '{"rows": [], "sizes": [], "unknown": 0}',
        '{"rows": [], "sizes": {"leaf l": "8"}, "unknown": 0}',
        '{"rows": [], "sizes": {}, "unknown": true}', '{"rows": [{}], "sizes": {}, "unknown": 0}',
        '{"rows": [{"port": "l/p", "groups": 3}], "sizes": {}, "unknown": 0}',
    ],
)  # fmt: skip
def test_a_leaf_of_which_not_all_can_be_read_is_named_and_not_left_out(
    tmp_path: Path, kept: str
) -> None:
    (tmp_path / "l").mkdir()
    (tmp_path / "l" / "judged.json").write_text(kept)
    told = read_fleet(tmp_path)
    assert (told.unread, told.items, told.ports) == (("l",), (), 0)


def test_ports_of_which_nothing_can_be_told_are_counted_apart(tmp_path: Path) -> None:
    series = OpticSeries(tmp_path, days_kept=31)
    for day in (0, 1):
        at = datetime(2026, 5, 20 + day, 12, tzinfo=UTC).timestamp()
        series.take("n1", "leaf-1/swp0", reading(0.8), at)
    series.settle()
    series.close()
    told = read_fleet(tmp_path)
    assert (told.ports, told.unknown, told.unread) == (1, 1, ())
