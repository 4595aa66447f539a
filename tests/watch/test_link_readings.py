"""What leaves report of links: optics and queues of NVUE and SONiC, as their documents print them.

Sources of the forms: the modules `link_reading` of both drivers name them.
"""

from __future__ import annotations

import pytest

from provisioner.control.watch.alert_keeper import PortReport, PortWatch
from provisioner.integrations.cumulus import link_reading as cumulus
from provisioner.integrations.sonic import link_reading as sonic
from provisioner.model.link_reading import DARK_DBM, Limits, make_limits, parse_value
from provisioner.planning.watch.watch_rules import Counters

AT = 1_790_000_000.0
LIMITS = {
    "high-alarm-threshold": "5.40 dBm",
    "low-alarm-threshold": "-13.31 dBm",
    "high-warning-threshold": "2.40 dBm",
    "low-warning-threshold": "-10.30 dBm",
}


def nvue(*powers: str, **more: object) -> dict[str, object]:
    """The example of NVIDIA's command reference, with these powers received."""
    channels = {
        f"channel-{n}": {
            "rx-power": {"power": power, **LIMITS, "alarm": "Off"},
            "tx-bias-current": {"current": "6.750 mA", "alarm": "Off"},
        }
        for n, power in enumerate(powers, 1)
    }
    return {
        "cable-type": "Active cable",
        "status": "plugged_enabled",
        "vendor-date-code": "210215__",
        "vendor-name": "Mellanox",
        "vendor-pn": "MFA1A00-C003",
        "vendor-sn": "MT2108FT02204",
        "temperature": {"temperature": "42.56 C", "high-alarm-threshold": "80.00 C",
                        "low-alarm-threshold": "-10.00 C"},
        "channel": channels,
        **more,
    }  # fmt: skip


def test_the_example_of_nvidias_reference_is_read_whole() -> None:
    seen = cumulus.read_optic(nvue("0.8625 mW / -0.64 dBm", "0.8385 mW / -0.76 dBm"))

    assert seen is not None
    assert (seen.kind, seen.serial, seen.part, seen.lot) == (
        "optic", "MT2108FT02204", "MFA1A00-C003", "210215",
    )  # fmt: skip
    assert seen.lanes["rx_dbm"] == (-0.64, -0.76)
    assert seen.limits["rx_dbm"] == Limits(-13.31, -10.3, 2.4, 5.4)
    assert (seen.get_worst("rx_dbm"), seen.get_worst("temperature_c")) == (-0.76, 42.56)


# NVIDIA, Cumulus Linux, "AmBER PHY Health Management" (nv show interface swp1 link phy health)
HEALTH = {
    "raw-ber": "15E-255", "effective-ber": "15E-255", "phy-raw-errors-lane0": "747567424",
    "raw-ber-lane0": "3E-6", "raw-ber-lane1": "9E-7", "raw-ber-lane2": "6E-7",
    "snr-host-lane0": "20.1 dB", "snr-media-lane0": "25.05 dB", "snr-media-lane4": "26    dB",
    "snr-media-lane6": "23.12 dB", "snr-media-lane7": "0",
}  # fmt: skip
# the same reference's link phy-detail, before 5.15: no SNR
DETAIL = {name: words for name, words in HEALTH.items() if not name.startswith("snr")}


@pytest.mark.parametrize(
    ("signal", "errors", "snr"),
    [
        (HEALTH, 3e-6, 23.12),
        (DETAIL, 3e-6, None),
        ({"raw-ber": "1E-7"}, 1e-7, None),
        ({**HEALTH, "snr-media-lane6": "n/a", "raw-ber-lane2": "N/A"}, None, None),
        ({**HEALTH, "snr-media-lane6": "-3 dB", "raw-ber-lane2": "7E9"}, None, None),
        ({"raw-ber": 0, "snr-media-lane0": "0"}, 0.0, None),
        ({"raw-ber": {}, "snr-media-lane0": []}, None, None),
        ("", None, None),
        (None, None, None),
    ],
    ids=["health", "detail", "port", "unknown", "impossible", "zero", "damaged", "text", "absent"],
)
def test_nvues_signal_is_its_worst_lane_and_an_unknown_lane_is_no_good_one(
    signal: object, errors: float | None, snr: float | None
) -> None:
    seen = cumulus.read_optic(nvue("0.8625 mW / -0.64 dBm"), signal=signal)

    assert seen is not None
    assert (seen.get_worst("pre_fec_ber"), seen.get_worst("snr_db")) == (errors, snr)
    assert seen.get_worst("rx_dbm") == -0.64


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("0.8625 mW / -0.64 dBm", -0.64),
        ("-40.00 dBm", DARK_DBM),
        ("0.0000 mW / -inf dBm", DARK_DBM),
        ("-infdBm", DARK_DBM),
        ("-0,64 dBm", -0.64),
        ("0.8625 mW", None),  # no dBm in it
        ("N/A", None),
        ("", None),
        (None, None),
        (True, None),
        ("nan", None),
        ("99999 dBm", None),
        ([1], None),
    ],
)
def test_a_power_is_a_number_or_unknown(words: object, value: float | None) -> None:
    assert parse_value("rx_dbm", words) == value


@pytest.mark.parametrize(
    ("low", "high"), [("0.0", "0.0"), ("N/A", "5.4"), ("5.4", "-13"), (None, None)]
)
def test_thresholds_of_zero_or_upside_down_are_none(low: object, high: object) -> None:
    assert make_limits("rx_dbm", {"low_alarm": low, "high_alarm": high}) is None


def test_a_lane_that_is_unknown_makes_the_whole_unknown() -> None:
    seen = cumulus.read_optic(nvue("0.8625 mW / -0.64 dBm", "N/A"))

    assert seen is not None
    assert seen.get_worst("rx_dbm") is None


@pytest.mark.parametrize(
    "answer", [None, {}, [], "x", {"status": "unplugged"}, {"status": "Removed"}]
)
def test_an_empty_cage_has_no_optic(answer: object) -> None:
    assert cumulus.read_optic(answer) is None


def test_a_dark_lane_of_a_breakout_may_be_another_ports() -> None:
    seen = cumulus.read_optic(nvue("0.86 mW / -0.64 dBm", "0 mW / -inf dBm"), shared=True)

    assert seen is not None
    assert (cumulus.cage_of("swp1s0"), cumulus.cage_of("swp12")) == ("swp1", "")
    assert seen.get_worst("rx_dbm") == -0.64


def test_copper_is_known_as_such() -> None:
    seen = cumulus.read_optic({"cable-type": "Copper cable", "status": "plugged_enabled"})

    assert seen is not None
    assert (seen.kind, seen.lanes) == ("copper", {})


INFO = str({"serial": "MT2301", "model": "MMS4X00", "manufacturer": "NVIDIA",
            "vendor_date": "2023-01-15", "cable_type": "Length Cable Assembly(m)",
            "specification_compliance": "400GBASE-DR4 (optical)"})  # fmt: skip
SENSOR = str({"temperature": "40.1", "voltage": "3.3", "rx1power": "0.5", "rx2power": "-inf",
              "tx1power": "1.0", "tx2power": "1.1", "tx1bias": "60.2", "tx2bias": "61.0",
              "rx3power": "N/A"})  # fmt: skip
THRESHOLD = str({"rxpowerlowalarm": "-8.901", "rxpowerhighalarm": "5.0",
                 "rxpowerlowwarning": "-6.899", "rxpowerhighwarning": "4.5",
                 "txpowerlowalarm": "0.0", "txpowerhighalarm": "0.0"})  # fmt: skip


def test_sonics_tables_are_read_by_their_own_names() -> None:
    seen = sonic.read_optic(INFO, SENSOR, THRESHOLD)

    assert seen is not None
    assert (seen.kind, seen.serial, seen.lot) == ("optic", "MT2301", "2023-01-15")
    assert seen.lanes["rx_dbm"] == (0.5, DARK_DBM)
    assert seen.lanes["bias_ma"] == (60.2, 61.0)
    assert seen.limits == {"rx_dbm": Limits(-8.901, -6.899, 4.5, 5.0)}
    assert sonic.read_optic("{}", SENSOR, THRESHOLD) is None
    assert sonic.build_optic_queries("Ethernet0'; reboot") == ()


def test_sonics_watchdog_counts_by_queue() -> None:
    port = str({"SAI_PORT_STAT_PFC_3_RX_PKTS": "70", "SAI_PORT_STAT_PFC_4_RX_PKTS": "2"})
    stormed = str({"PFC_WD_STATUS": "stormed", "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED": "3"})
    well = str({"PFC_WD_STATUS": "operational", "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED": "1"})

    seen = sonic.read_queues(port, [stormed, well, "{}", "damaged"])

    assert seen == {"pause_received": 72, "watchdog_storms": 4, "watchdog_stuck": 1}
    assert sonic.read_queues("{}", []) == {}
    ids = str({"Ethernet0:3": "oid:0x15000000000a1", "Ethernet0:4": "x", "Ethernet4:3": "oid:0x2"})
    assert sonic.list_queue_ids(ids, "Ethernet0") == ["oid:0x15000000000a1"]


def test_nvues_watchdog_says_deadlock_by_class() -> None:
    qos = {"pfc-stats": {"3": {"rx-pause-frames": 200, "tx-pause-frames": "300"}},
           "egress-queue-stats": {"3": {"ecn-marked-frames": 5, "wred-discards": 1}}}  # fmt: skip
    status = {"1": {"status": "OK", "deadlock-count": 3},
              "2": {"status": "DEADLOCK", "deadlock-count": 2}}  # fmt: skip

    seen = cumulus.read_queues(qos, {"state": "enabled", "status": status})

    assert seen == {"pause_received": 200, "pause_sent": 300, "ecn_marked": 5, "discards": 1,
                    "watchdog_storms": 5, "watchdog_stuck": 1}  # fmt: skip
    assert cumulus.read_queues(None, {"state": "disabled", "status": status}) == {}
    strange = {"2": {"status": "?", "deadlock-count": -1}}
    assert cumulus.read_queues(qos, {"state": "enabled", "status": strange}).keys() == {
        "pause_received", "pause_sent", "ecn_marked", "discards",
    }  # fmt: skip


def stands(*rows: dict[str, dict[str, int]]) -> dict[str, list[str]]:
    """Conditions after looks a quarter of an hour apart: node -> counters, in each look."""
    watch = PortWatch()
    for number, row in enumerate(rows):
        for node, values in row.items():
            at = AT + 900 * number
            counters = Counters(at=at, values=values)
            watch.take(PortReport(node=node, port="leaf/swp1", counters=counters, at=at))
    return {n: [f.id for f in found] for n, found in watch.list_standing(AT + 2000).items()}


def fleet(**slow: int) -> dict[str, dict[str, int]]:
    names = {f"n{i:02d}": 10 for i in range(12)} | slow
    return {name: {"pause_received": count} for name, count in names.items()}


def test_a_host_that_pauses_its_leaf_in_two_intervals_is_a_slow_receiver_and_no_other() -> None:
    looks = [fleet(n03=0), fleet(n03=90_000), fleet(n03=200_000)]

    found = stands(*looks)

    assert {n for n, ids in found.items() if ids} == {"n03"}
    assert found["n03"] == ["SlowReceiver"]


@pytest.mark.parametrize(
    "looks",
    [
        [fleet(n03=0), fleet(n03=90_000), fleet(n03=90_100)],  # one burst
        [fleet(n03=90_000), fleet(n03=0), fleet(n03=90_000)],  # the leaf was restarted
        [{"n03": {"pause_received": n * 90_000}} for n in range(3)],  # no fleet to compare with
        [{n: {"discards": 0} for n in fleet()} | {"n03": {}} for _ in range(3)],
    ],
)
def test_no_host_is_blamed_by_one_burst_a_restart_or_alone(
    looks: list[dict[str, dict[str, int]]],
) -> None:
    assert not any(stands(*looks).values())


def test_where_all_pause_alike_none_is_slower_than_the_fleet() -> None:
    busy = [{f"n{i:02d}": {"pause_received": n * 90_000} for i in range(12)} for n in range(3)]

    assert not any(stands(*busy).values())


def test_a_queue_that_the_watchdog_holds_in_two_looks_is_stuck() -> None:
    held = {"n1": {"watchdog_stuck": 1, "watchdog_storms": 4}}

    assert stands(held) == {"n1": []}
    assert stands(held, held) == {"n1": ["QueueStuck"]}
    untold = {"n1": {"carrier_changes": 0}}  # a look that could not read the queues
    assert stands(held, held, untold) == {"n1": ["QueueStuck"]}
    ended = {"n1": {"watchdog_stuck": 0, "watchdog_storms": 5}}
    assert stands(held, ended) == {"n1": ["PfcStorm"]}
    assert stands(ended, {"n1": {"watchdog_stuck": 0}}) == {"n1": []}  # not counted any more
