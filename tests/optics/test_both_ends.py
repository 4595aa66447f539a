"""Which end of a link is at fault when the node's own readings at its validations are known too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta

import pytest

from provisioner import checks
from provisioner.checks.check import CheckContext
from provisioner.integrations.optics.ends import Joined, join_ends, read_host_days
from provisioner.integrations.optics.trends import Day, judge_port
from provisioner.model.cohort import CheckResult, Evidence, Gate, HealthReport, Verdict
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind

BY_NAME = {check.name: check for check in checks.ALL}
LINES = {command.name: command.line for check in checks.ALL for command in check.commands}
BEGAN = date(2026, 5, 1)
FALLS = [0.8] * 10 + [0.8 - 0.3 * n for n in range(12)]  # dirty since the 13th day
STEADY = [0.8] * 22
Host = Mapping[int, tuple[float | None, float | None, float | None]]  # day -> rx, tx, bias


def leaf(rx: list[float], kind: str = "optic", swapped: int = 99) -> list[Day]:
    return [
        Day(
            BEGAN + timedelta(days=n),
            {"rx_dbm": v, "tx_dbm": 0.6, "bias_ma": 60.0},
            serial="A" if n < swapped else "B",
            kind=kind,
            low_alarm_dbm=-9.0,
        )
        for n, v in enumerate(rx)
    ]


def host(readings: Host) -> list[Day]:
    names = ("rx_dbm", "tx_dbm", "bias_ma")
    return [
        Day(
            BEGAN + timedelta(days=n),
            {q: v for q, v in zip(names, values, strict=True) if v is not None},
        )
        for n, values in readings.items()
    ]


def join(rx: list[float], readings: Host, kind: str = "optic", swapped: int = 99) -> Joined:
    days = leaf(rx, kind, swapped)
    return join_ends(judge_port("l/swp1", days), days, host(readings))


def test_a_breakouts_weak_lane_is_a_nodes_only_if_its_own_laser_says_so() -> None:
    days = leaf(FALLS)
    found = judge_port("l/swp1s0", days, ["swp1s1"])

    steady = join_ends(found, days, host({2: GOOD, 20: GOOD})).verdict
    aged = join_ends(found, days, host({2: GOOD, 20: (1.0, 1.2, 80.0)})).verdict

    assert (steady.state, steady.end) == ("dirty", "")
    assert "swap nothing" in steady.remedy
    assert (aged.state, aged.end) == ("dying", "node")


GOOD = (1.0, 1.2, 60.0)
# sentence: (light at the leaf, the node's readings, state, end, words, remedy begins)
CASES: dict[str, tuple[list[float], Host, str, str, str, str]] = {
    "its laser sends as before: the fibre, and no optic is swapped": (
        FALLS, {2: GOOD, 20: (1.0, 1.1, 61.0)}, "dirty", "node",
        "as before: it is the fibre", "Clean both connectors of the fibre, then swap the fibre",
    ),
    "both directions lose light": (
        FALLS, {2: GOOD, 20: (-2.0, 1.1, 61.0)}, "dirty", "node", "loses light both ways", "Clean",
    ),
    "it sends less: its laser": (
        FALLS, {2: GOOD, 20: (1.0, -1.5, 61.0)}, "dying", "node",
        "light sent of the node's laser went from 1.2 to -1.5 dBm", "Swap the node's optic",
    ),
    "it needs more current: its laser": (
        FALLS, {2: GOOD, 20: (1.0, 1.1, 75.0)}, "dying", "node",
        "from 60.0 to 75.0 mA", "Swap the node's optic",
    ),
    "not read since: nobody knows": (
        FALLS, {2: GOOD}, "dirty", "node", "last read on 2026-05-03", "Clean",
    ),
    "never read: nobody knows": (FALLS, {}, "dirty", "node", "never read", "Clean"),
    "it reports no light sent (N/A)": (
        FALLS, {2: (1.0, None, None), 20: (1.0, None, None)}, "dirty", "node", "fell", "Clean",
    ),
    "-40 dBm sent is a port that is off, no old laser": (
        FALLS, {2: GOOD, 20: (1.0, -40.0, 0.0)}, "dirty", "node", "sent none", "Clean",
    ),
    "a module that always says -40 tells nothing": (
        FALLS, {2: (-40.0, -40.0, 0.0), 20: (-40.0, -40.0, 0.0)}, "dirty", "node", "fell", "Clean",
    ),
    "the node receives less while the leaf is steady: the leaf's end": (
        STEADY, {2: GOOD, 5: GOOD, 15: (-1.5, 1.2, 60), 20: (-2.0, 1.2, 60)},
        "dirty", "leaf", "from 1.0 to -2.0 dBm", "Clean both connectors",
    ),
    "one bad validation is no trend": (
        STEADY, {2: GOOD, 5: GOOD, 15: (-1.5, 1.2, 60), 20: GOOD}, "good", "", "it receives", "",
    ),
    "two validations are no trend": (
        STEADY, {2: GOOD, 20: (-2.0, 1.2, 60)}, "good", "", "it receives", "",
    ),
    "a laser of the node that ages before the leaf sees it": (
        STEADY, {2: GOOD, 5: GOOD, 15: (1.0, 1.2, 75), 20: (1.0, 1.2, 78)},
        "dying", "node", "60.0 to 78.0 mA", "Swap the node's optic",
    ),
    "dark lanes at the node (-40) accuse nobody": (
        STEADY, {2: GOOD, 5: GOOD, 15: (-40, -40, 0), 20: (-40, -40, 0)},
        "good", "", "it receives", "",
    ),
    "less light at the node under a leaf without days: told, and nobody accused": (
        [0.8] * 3, {2: GOOD, 5: GOOD, 15: (-2, 1.2, 60), 20: (-2, 1.2, 60)},
        "unknown", "", "the leaf's laser has no days yet", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("sentence", CASES)
def test_both_ends_say_whose(sentence: str) -> None:
    rx, readings, state, end, words, remedy = CASES[sentence]

    found = join(rx, readings).verdict

    assert (found.state, found.end) == (state, end)
    assert words in found.words
    assert found.remedy.startswith(remedy)


def test_copper_is_never_joined() -> None:
    found = join(STEADY, dict.fromkeys((1, 2, 3, 20), (1.0, -1.5, 90.0)), kind="copper")

    assert (found.verdict.state, found.verdict.end, found.proved) == ("good", "", None)


@pytest.mark.parametrize(
    ("readings", "proved"),
    [
        ({2: GOOD, 20: (0.9, 1.1, 60.0)}, True),
        ({2: GOOD, 20: (-2.0, 1.1, 60.0)}, False),  # the other direction got worse
        ({2: GOOD, 20: (1.0, -0.9, 60.0)}, False),
        ({2: GOOD, 20: (-40.0, 1.2, 60.0)}, False),
        ({2: GOOD, 20: (1.0, None, None)}, None),  # half is no proof
        ({2: GOOD}, None),
        ({20: GOOD}, None),
        ({}, None),
    ],
)
def test_a_repair_is_proved_at_the_nodes_end_by_both_directions(
    readings: Host, proved: bool | None
) -> None:
    found = join([0.8] * 8 + [-3.0] * 6 + [0.8] * 8, readings, swapped=14)

    assert found.verdict.repaired_on == BEGAN + timedelta(days=14)
    assert found.verdict.proved is True  # the leaf's light alone
    assert found.proved is proved


NODE = Node(
    id="n1",
    kind=NodeKind.HOST,
    ports=tuple(
        Port(switch="leaf-1", interface=f"swp{n}", rail=n, nic_slot=f"NIC_{n}") for n in range(3)
    ),
)


def report(measured: Mapping[str, float], hour: int = 12, check: str = "optics") -> HealthReport:
    at = datetime(2026, 5, 1, hour, tzinfo=UTC).timestamp()
    one = CheckResult(check=check, gate=Gate.A, verdict=Verdict.PASS, measured=measured)
    return HealthReport(node="n1", inventory_digest="", started_at=at, ended_at=at, results=(one,))


def cards(count: int, **more: float) -> dict[str, float]:
    found = {f"rx_power_dbm/0000:{n:02x}:00.0 lane {lane}": 1.0 + n + lane
             for n in range(count) for lane in (0, 1)}  # fmt: skip
    found |= {f"optic_bias_ma/0000:{n:02x}:00.0 lane {n}": 60.0 + n for n in range(count)}
    return found | {f"{name}/0000:00:00.0 lane 0": value for name, value in more.items()}


def test_each_card_is_told_as_its_rail_only_where_all_are_known() -> None:
    days = read_host_days(NODE, [report(cards(3, tx_power_dbm=0.5))])

    assert {slot: kept[0].values["rx_dbm"] for slot, kept in days.items()} == {
        f"NIC_{n}": 1 + n for n in range(3)
    }
    assert {slot: kept[0].values["bias_ma"] for slot, kept in days.items()} == {
        f"NIC_{n}": 60 + n for n in range(3)
    }
    assert days["NIC_0"][0].values["tx_dbm"] == 0.5
    assert "tx_dbm" not in days["NIC_1"][0].values
    assert read_host_days(NODE, [report(cards(2))]) == {}
    assert read_host_days(NODE, [report(cards(3), check="mlxlink")]) == {}
    assert read_host_days(NODE, []) == {}


def test_the_inventory_tells_each_card_also_beside_those_of_no_rail() -> None:
    places = {"NIC_0": "0000:02:00.0", "NIC_1": "0000:00:00.0", "DPU_0": "0000:01:00.0"}
    devices = tuple(Device(kind=DeviceKind.NIC, slot=slot, pci=pci) for slot, pci in places.items())
    known = Inventory(node="n1", vendor="unknown", devices=devices)

    days = read_host_days(NODE, [report(cards(3))], known)

    assert {slot: kept[0].values["rx_dbm"] for slot, kept in days.items()} == {
        "NIC_0": 3.0,
        "NIC_1": 1.0,
    }


def test_two_cables_of_one_card_are_told_as_nobodys() -> None:
    double = NODE.model_copy(update={"ports": (*NODE.ports, NODE.ports[0])})

    assert read_host_days(double, [report(cards(3))]) == {}


def test_validations_of_one_day_are_one_day() -> None:
    later = {name: value - 3.0 for name, value in cards(3).items()}

    (day,) = read_host_days(NODE, [report(later, hour=14), report(cards(3))])["NIC_0"]

    assert (day.day, day.values["rx_dbm"]) == (BEGAN, -0.5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300, -1e300, -400.0, 55.0])
def test_a_power_that_cannot_be_is_left_out(value: float) -> None:
    days = read_host_days(NODE, [report(cards(3, tx_power_dbm=value))])

    assert "tx_dbm" not in days["NIC_0"][0].values


def measure(
    kind: str | None, received: str, sent: str, bias: str, **more: object
) -> tuple[Verdict, dict[str, float]]:
    """Judge and measure a card of which mlxlink prints this, as on ConnectX-7 with MFT 4.34."""
    module = {
        "Temperature [C]": "58 [-10..80]",
        "Voltage [mV]": "3235.5 [2970..3630]",
        "Bias Current [mA]": bias,
        "Rx Power Current [dBm]": received,
        "Tx Power Current [dBm]": sent,
    } | ({} if kind is None else {"Cable Type": kind} | more)
    said = {"status": {"code": 0}, "result": {"output": {"Module Info": module}}}
    text = f"device 0000:18:00.0\n{json.dumps(said)}\nend-of-output\n"
    evidence = {"mlxlink": Evidence(source=LINES["mlxlink"], exit_code=0, text=text)}
    found = BY_NAME["optics"].judge(evidence, CheckContext(gpu_model="H100", gpus=8, rails=1))
    return found.verdict, dict(found.measured)


OPTIC = "Optical Module (separated)"
RX, TX, BIAS = "2.8,3.2 [-9.914..6.999]", "2.1,1.2 [-6.904..6.999]", "265.5,248.4 [40..480]"
NONE_DBM = "-40.000,-40.000 [-9.914..6.999]"


@pytest.mark.parametrize(
    ("kind", "printed", "verdict", "sent"),
    [
        (OPTIC, (RX, TX, BIAS), Verdict.PASS, [2.1, 1.2]),
        (OPTIC, (RX, NONE_DBM, BIAS), Verdict.FAIL, [-40.0, -40.0]),
        (OPTIC, (RX, "N/A", BIAS), Verdict.FAIL, []),  # no DOM
        (OPTIC, (RX, "N/A,N/A [-6.904..6.999]", BIAS), Verdict.FAIL, []),
        (OPTIC, (RX, "2,1,1,2 [-6,904..6,999]", BIAS), Verdict.FAIL, []),  # localised
        (OPTIC, (RX, "2.1,1.2", BIAS), Verdict.FAIL, []),  # without limits
        ("Passive copper cable", ("N/A", "N/A", "N/A"), Verdict.PASS, []),
        (None, ("N/A", "N/A", "N/A"), Verdict.FAIL, []),
    ],
)
def test_what_mlxlink_prints_is_measured_or_nothing(
    kind: str | None, printed: tuple[str, str, str], verdict: Verdict, sent: list[float]
) -> None:
    judged, measured = measure(kind, *printed)

    assert (judged is Verdict.PASS) == (verdict is Verdict.PASS)
    told = [v for name, v in sorted(measured.items()) if name.startswith("tx_power_dbm/")]
    assert told == sent
    if kind == OPTIC and printed == (RX, TX, BIAS):
        assert measured["optic_bias_ma/port 0000:18:00.0 lane 0"] == 265.5
        assert measured["rx_power_dbm/port 0000:18:00.0 lane 1"] == 3.2


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ({"values": ["22.94", "19.10", "21.00", "22.00"]}, 19.1),
        ("22.94,19.10", 19.1),  # as text
        ({"values": ["22.94", "N/A"]}, 22.94),
        ({"values": ["N/A"]}, None),  # as of ConnectX-7 with MFT 4.34
        ({"values": ["0.00", "0.00"]}, None),  # a register that the module does not fill
        ({"values": ["22,94", "19,10"]}, None),
        ({"values": [True]}, None),
        ({"values": "22.94"}, None),
        ("nan", None),
        (None, None),
    ],
)
def test_snr_of_the_hosts_end_is_its_worst_lane_and_decides_nothing(
    told: object, kept: float | None
) -> None:
    verdict, measured = measure(OPTIC, RX, TX, BIAS, **{"SNR Media Lanes [dB]": told})
    one = NODE.model_copy(update={"ports": NODE.ports[:1]})
    (day,) = read_host_days(one, [report(measured)])["NIC_0"]

    assert verdict is Verdict.PASS
    assert day.values["rx_dbm"] == 2.8
    assert day.values.get("snr_db") == kept
