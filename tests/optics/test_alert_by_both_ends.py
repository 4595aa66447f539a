"""The watch's alert names an end by both ends of a link; SNR and errors before FEC are kept too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from optic_alerts import list_alerts

from provisioner.integrations.optics import series as series_module
from provisioner.integrations.optics.series import (
    OF_LIGHT,
    QUANTITIES,
    LeafSeries,
    OpticSeries,
    decode,
    encode,
    read_days,
)
from provisioner.integrations.sonic import link_reading as sonic
from provisioner.model.cohort import CheckResult, Gate, HealthReport, Verdict
from provisioner.model.inventory import Inventory
from provisioner.model.link_reading import Limits, LinkReading, OpticReading
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind
from provisioner.ports import DamagedRow

BEGAN = datetime(2026, 5, 1, 12, tzinfo=UTC)
NODE = Node(
    id="n1",
    kind=NodeKind.HOST,
    ports=(Port(switch="leaf-1", interface="swp1", rail=0, nic_slot="NIC_0"),),
)


class Validations:
    """The store as the series asks it: the newest report first."""

    def __init__(self, reports: Sequence[HealthReport]) -> None:
        self.reports = sorted(reports, key=lambda r: -r.ended_at)
        self.asked = 0
        self.outputs: dict[str, str] = {}

    async def list_reports(self, node: str, since: float) -> Sequence[HealthReport]:
        self.asked += 1
        return [r for r in self.reports if r.node == node and r.ended_at >= since]

    async def get_inventory(self, _: str) -> Inventory | None:
        return None

    async def get_output(self, digest: str) -> str | None:
        if self.outputs.get(digest) == "damaged":
            raise DamagedRow(f"evidence, {digest}", "it differs from the stored text")
        return self.outputs.get(digest)


def validated(day: int, **measured: float) -> HealthReport:
    at = (BEGAN + timedelta(days=day)).timestamp()
    named = {f"{name}/0000:18:00.0 lane 0": value for name, value in measured.items()}
    one = CheckResult(
        check="optics", gate=Gate.A, verdict=Verdict.PASS, measured=named, evidence=f"day {day}"
    )
    return HealthReport(node="n1", inventory_digest="", started_at=at, ended_at=at, results=(one,))


def fall(series: OpticSeries, days: int = 22, **lanes: Sequence[float]) -> None:
    """Light at the leaf falls from the eleventh day on."""
    for number in range(days):
        rx = 0.8 - 0.3 * max(0, number - 10)
        told: Mapping[str, tuple[float, ...]] = {
            "rx_dbm": (rx,), "tx_dbm": (0.6,), "bias_ma": (60.0,),
            **{q: (values[number],) for q, values in lanes.items()},
        }  # fmt: skip
        limits = {"rx_dbm": Limits(-9.0, None, None, 7.0)}
        optic = OpticReading("optic", "A", "MMS4X00", "NVIDIA", "240315", told, limits)
        at = (BEGAN + timedelta(days=number)).timestamp()
        series.take("n1", "leaf-1/swp1", LinkReading(optic), at, 0)
    series.settle()


def told_of(folder: Path, reports: Sequence[HealthReport]) -> tuple[str, Validations]:
    evidence = Validations(reports)
    series = OpticSeries(folder, 31, evidence)
    fall(series)
    for _ in range(3):  # rounds of the watch
        asyncio.run(series.read_hosts({"n1": NODE}))
    (alert,) = list_alerts(series)
    series.close()
    return alert.message, evidence


GOOD = {"tx_power_dbm": 1.2, "rx_power_dbm": 1.0, "optic_bias_ma": 60.0}


@pytest.mark.parametrize(
    ("later", "said", "not_said"),
    [
        (GOOD, "it is the fibre", "Swap the node's optic"),
        ({**GOOD, "rx_power_dbm": -2.0}, "which loses light both ways", "Swap the node's optic"),
        ({**GOOD, "optic_bias_ma": 75.0}, "Swap the node's optic: its laser ages", "the fibre"),
        ({**GOOD, "tx_power_dbm": -1.5}, "light sent of the node's laser", "it is the fibre"),
    ],
    ids=["dirty connector", "dirt both ways", "a dying laser by its bias", "by its light"],
)
def test_the_alert_tells_a_dirty_connector_from_a_dying_laser_by_the_hosts_end(
    tmp_path: Path, later: Mapping[str, float], said: str, not_said: str
) -> None:
    message, evidence = told_of(tmp_path, [validated(2, **GOOD), validated(20, **later)])

    assert said in message
    assert not_said not in message
    assert "the node's end since 2026-05-1" in message
    assert evidence.asked == 1  # not in each round again


def watch(folder: Path, evidence: Validations, rx: float = 0.8, kind: str = "optic") -> OpticSeries:
    """A leaf that sees nothing change in 22 days."""
    series = OpticSeries(folder, 31, evidence)
    for number in range(22):
        read_leaf(series, number, rx, kind)
    series.settle()
    return series


def read_leaf(series: OpticSeries, number: int, rx: float = 0.8, kind: str = "optic") -> None:
    told = {"rx_dbm": (rx,), "tx_dbm": (0.6,), "bias_ma": (60.0,)}
    optic = OpticReading(kind, "A", "MMS4X00", "NVIDIA", "240315", told, {})
    at = (BEGAN + timedelta(days=number)).timestamp()
    series.take("n1", "leaf-1/swp1", LinkReading(optic), at, 0)


def said_by(series: OpticSeries, generation: int = 0) -> list[str]:
    node = NODE.model_copy(update={"generation": generation})
    asyncio.run(series.read_hosts({"n1": node}))
    return [alert.message for alert in list_alerts(series)]


AGES = {**GOOD, "optic_bias_ma": 75.0}
DIMS = {**GOOD, "rx_power_dbm": -2.0}
EARLY = [validated(2, **GOOD), validated(5, **GOOD)]


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ([validated(15, **DIMS), validated(20, **DIMS)], "dirty, the leaf's end since 2026-05-16"),
        ([validated(15, **AGES), validated(20, **AGES)], "dying, the node's end since 2026-05-16"),
        ([validated(20, **DIMS)], ""),  # too few
        ([validated(15, **DIMS), validated(20, **GOOD)], ""),  # one bad day, or it was cleaned
        ([validated(15, **GOOD), validated(20, **GOOD)], ""),
    ],
    ids=["dirt at the leaf", "an old laser", "three readings", "good again", "steady"],
)
def test_what_only_the_hosts_end_shows_raises_the_alert_too(
    tmp_path: Path, later: list[HealthReport], said: str
) -> None:
    series = watch(tmp_path, Validations([*EARLY, *later]))

    told = said_by(series)
    read_leaf(series, 22)  # the leaf's words change each day, and the alert stands on
    read_leaf(series, 23)
    series.settle()

    assert len(told) == bool(said)
    assert all(said in words for words in told)
    assert len(list_alerts(series)) == len(told)
    assert len(said_by(series)) == len(told)
    series.close()


def test_a_host_on_copper_raises_nothing(tmp_path: Path) -> None:
    late = [validated(15, **AGES), validated(20, **AGES)]
    series = watch(tmp_path, Validations([*EARLY, *late]), kind="copper")

    assert said_by(series) == []
    series.close()


def test_a_validation_shows_on_its_own_day(tmp_path: Path) -> None:
    """It is a new generation of the node: neither a new day nor a new verdict is waited for."""
    evidence = Validations([*EARLY, validated(15, **DIMS)])
    series = watch(tmp_path, evidence)
    assert said_by(series, 7) == said_by(series, 7) == []
    assert evidence.asked == 1  # and nothing is read in vain

    evidence.reports = [validated(21, **DIMS), *evidence.reports]
    assert "the leaf's end" in said_by(series, 8)[0]
    evidence.reports = [validated(22, **GOOD), *evidence.reports]
    assert said_by(series, 9) == []
    series.close()


def show(serial: str) -> str:
    """What is stored of a validation: mlxlink's document of one card."""
    module = {"Vendor Serial Number": serial}
    document = {"status": {"code": 0}, "result": {"output": {"Module Info": module}}}
    text = f"device 0000:18:00.0\n{json.dumps(document)}\nend-of-output\n"
    one = {"source": "mlxlink", "exit_code": 0, "text": text, "truncated": False}
    return json.dumps({"mlxlink": one})


@pytest.mark.parametrize(
    ("serials", "said"),
    [
        ("AAAA", "from 60.0 to 75.0 mA. Swap the node's optic"),
        ("AABB", ""),  # another optic needs another current: none is old
        ("AAA?", "from 60.0 to 75.0 mA (whether it is the same optic is not known)"),
        ("A!AA", "from 60.0 to 75.0 mA (whether it is the same optic is not known)"),
    ],
    ids=["the same optic", "it was swapped", "an output is gone", "one is damaged"],
)
def test_an_optic_that_was_swapped_is_no_laser_that_aged(
    tmp_path: Path, serials: str, said: str
) -> None:
    evidence = Validations([*EARLY, validated(15, **AGES), validated(20, **AGES)])
    days = zip(("day 2", "day 5", "day 15", "day 20"), serials, strict=True)
    evidence.outputs = {
        day: "damaged" if serial == "!" else show(serial) for day, serial in days if serial != "?"
    }
    series = watch(tmp_path, evidence)

    told = said_by(series)

    assert len(told) == bool(said)
    assert all(said in words for words in told)
    series.close()


def test_reports_that_are_damaged_hide_no_other_host(tmp_path: Path) -> None:
    class Damaged(Validations):
        async def list_reports(self, node: str, since: float) -> Sequence[HealthReport]:
            raise DamagedRow(f"reports, {node}", "no JSON", node)

    series = OpticSeries(tmp_path, 31, Damaged([]))
    fall(series)

    assert "fell from" in said_by(series)[0]
    series.close()


def test_without_a_validation_since_it_says_that_the_hosts_end_is_unknown(tmp_path: Path) -> None:
    message, _ = told_of(tmp_path, [validated(2, **GOOD)])

    assert "the node's end was not read before and since (last read on 2026-05-03)" in message


def test_after_a_restart_hosts_are_joined_as_many_as_a_share_of_the_time_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series_module, "JOIN_S", 0.0)  # one at least
    evidence = Validations([])
    series = watch(tmp_path, evidence)
    nodes = {"n1": NODE}
    for number in range(2, 22):
        series.take(f"n{number}", f"leaf-1/swp{number}", LinkReading(None), series._at)
        nodes[f"n{number}"] = NODE.model_copy(update={"id": f"n{number}"})
    asyncio.run(series.read_hosts(nodes))
    assert evidence.asked == 1

    monkeypatch.setattr(series_module, "JOIN_S", 1000.0)
    asyncio.run(series.read_hosts(nodes))
    assert evidence.asked == 21
    asyncio.run(series.read_hosts(nodes))
    assert evidence.asked == 21
    series.close()


def test_a_node_that_is_not_watched_now_is_judged_by_its_leaf(tmp_path: Path) -> None:
    series = OpticSeries(tmp_path, 31, Validations([validated(2, **GOOD)]))
    fall(series)
    asyncio.run(series.read_hosts({}))

    assert "fell from" in list_alerts(series)[0].message
    series.close()


def test_snr_and_errors_before_fec_are_kept_and_told_beside_the_light(tmp_path: Path) -> None:
    series = OpticSeries(tmp_path, 31)
    worse = [1e-9] * 14 + [3e-6] * 8
    fall(series, snr_db=[22.0] * 14 + [17.5] * 8, pre_fec_ber=worse)
    series.close()

    days = read_days(tmp_path / "leaf-1")["swp1"]
    assert days[0].values["snr_db"] == pytest.approx(22.0, abs=0.13)
    assert days[0].values["pre_fec_ber"] == pytest.approx(1e-9, rel=0.08)
    message = list_alerts(series)[0].message
    assert "SNR 22.0 dB before and 17.5 dB now" in message
    assert "pre-FEC BER 1e-09 before and 3e-06 now" in message


@pytest.mark.parametrize("value", [0.0, 1e-15, 2.4e-5, 1.0])
def test_a_share_of_errors_is_kept_within_a_step(value: float) -> None:
    kept = decode("pre_fec_ber", encode("pre_fec_ber", value))

    assert kept == pytest.approx(max(value, 1e-15), rel=0.08)
    assert decode("pre_fec_ber", encode("pre_fec_ber", None)) is None
    assert decode("bias_ma", encode("bias_ma", 0.0)) is None  # a laser that is off


def test_a_day_that_an_older_version_began_goes_on_in_its_form(tmp_path: Path) -> None:
    """Its frames have four bytes a port and its ports no heading; the next day has all."""
    old = LeafSeries(tmp_path, OF_LIGHT)
    at = datetime(2026, 5, 1, tzinfo=UTC).timestamp()
    row = bytes(encode(q, {"rx_dbm": 0.8, "snr_db": 20.0}.get(q)) for q in QUANTITIES)
    old.append(at, {"swp1": row[:4], "swp2": row[:4]})
    names = tmp_path / "2026-05-01.ports"
    names.write_text(names.read_text().partition("\n")[2])
    medians = {}

    new = LeafSeries(tmp_path)
    new.append(at + 300, {"swp1": row, "swp2": row, "swp3": row})
    new.append(at + 86_400, {"swp1": row})
    new.close_left(date(2026, 5, 3), lambda day, found: medians.update({day.day: found}))

    assert set(medians[1]) == {"swp1", "swp2", "swp3"}
    assert {q for values in medians[1].values() for q in values} == {"rx_dbm"}
    assert set(medians[2]["swp1"]) == {"rx_dbm", "snr_db"}


# xcvrd's fields of a CMIS module (sonic-net/SONiC, CMIS_Diagnostic_Monitoring_Overview_in_SONiC.md)
SIGNAL = {
    "esnr_media_input1": "22.94", "esnr_media_input2": "19.1", "esnr_host_input1": "12.0",
    "prefec_ber_avg_media_input1": "3.2e-09", "prefec_ber_avg_media_input2": "4.81E-06",
    "prefec_ber_max_media_input1": "1e-03", "laser_temperature_media1": "51.2",
}  # fmt: skip


def test_sonics_signal_of_a_module_is_its_worst_lane() -> None:
    seen = sonic.read_optic("{'type': 'OSFP'}", "{'temperature': '40'}", "{}", str(SIGNAL))

    assert seen is not None
    assert seen.get_worst("snr_db") == 19.1
    assert seen.get_worst("pre_fec_ber") == 4.81e-6


@pytest.mark.parametrize("words", ["N/A", "", "nan", "-3", "7e9", "-inf"])
def test_a_signal_that_cannot_be_read_is_unknown(words: str) -> None:
    told = dict.fromkeys(SIGNAL, words)

    seen = sonic.read_optic("{'type': 'OSFP'}", "{}", "{}", str(told))

    assert seen is not None
    assert seen.get_worst("snr_db") is None
    assert seen.get_worst("pre_fec_ber") is None


def test_a_module_without_that_table_is_read_as_before() -> None:
    seen = sonic.read_optic("{'type': 'QSFP28'}", "{'rx1power': '0.5'}", "{}", "")

    assert seen is not None
    assert dict(seen.lanes) == {"rx_dbm": (0.5,)}
