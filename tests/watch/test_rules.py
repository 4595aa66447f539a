"""What stands against a node, from what was seen: tables of looks."""

from __future__ import annotations

import pytest

from provisioner.model.certificate import Certificate
from provisioner.model.inventory import Component, Device, DeviceKind, Inventory
from provisioner.planning.watch import watch_rules
from provisioner.planning.watch.watch_rules import Counters, Interruption

NOW = 1_790_000_000.0
HOUR, DAY = 3600.0, 86400.0


def certificate(**changes: object) -> Certificate:
    fields = {
        "id": "c1", "node": "n1", "release": "r", "profile": "p",
        "serials": ("gpu/GPU_SXM_1=G1", "gpu/GPU_SXM_2=G2", "nic/NIC_0=N0", "system=S1"),
        "versions": (("bluefield.nic/DPU_1", "32.44.1036"), ("host.driver/host", "570.1"),
                     ("hgx.driver/GPU_SXM_1", "570.1")),
        "boot_id": "b", "location": "l", "ports": (), "report_digest": "d", "matrix_digest": "m",
        "issued_at": NOW - DAY, "expires_at": NOW + 20 * DAY,
    }  # fmt: skip
    return Certificate.model_validate({**fields, **changes})


def seen(*components: tuple[str, str, str | None], devices: tuple[Device, ...] = ()) -> Inventory:
    return Inventory(
        node="n1",
        vendor="v",
        components=tuple(
            Component(kind=kind, slot=slot, version=version, source="s")
            for kind, slot, version in components
        ),
        devices=devices,
    )


@pytest.mark.parametrize(
    ("component", "targets"),
    [
        (("bluefield.nic", "DPU_1", "32.44.1036"), []),
        (("bluefield.nic", "DPU_1", "32.45.1020"), ["bluefield.nic/DPU_1"]),
        (("bluefield.nic", "DPU_1", None), []),  # a card that restarts shows none
        (("hgx.driver", "GPU_SXM_1", "580.2"), ["hgx.driver/GPU_SXM_1"]),
        (("hgx.driver", "GPU_SXM_7", "580.2"), ["hgx.driver/GPU_SXM_7"]),  # by the host's driver
        (("hgx.driver", "GPU_SXM_7", "570.1"), []),
        (("hgx.driver", "GPU_SXM_1", ""), []),  # the host is off
        (("host.bios", "host", "1.2"), []),  # was not certified: nothing is known of it
    ],
)
def test_a_version_that_differs_is_drift_and_one_that_is_not_shown_is_none(component, targets):
    found = watch_rules.find_drift(certificate(), seen(component))

    assert [f.target for f in found] == targets


@pytest.mark.parametrize(
    ("device", "targets"),
    [
        (Device(kind=DeviceKind.GPU, slot="GPU_SXM_1", serial="G1"), []),
        (Device(kind=DeviceKind.GPU, slot="GPU_SXM_1", serial="G9"), ["gpu/GPU_SXM_1"]),
        (Device(kind=DeviceKind.GPU, slot="GPU_SXM_1", serial="G2"), ["gpu/GPU_SXM_1"]),
        (Device(kind=DeviceKind.GPU, slot="GPU_SXM_1"), []),
        (Device(kind=DeviceKind.NIC, slot="NIC_0", serial="G2"), []),  # known by another name
        (Device(kind=DeviceKind.NIC, slot="NIC_0", serial="N9"), ["nic/NIC_0"]),
    ],
)
def test_another_serial_in_a_slot_is_a_swap(device, targets):
    assert [
        f.target for f in watch_rules.find_swaps(certificate(), seen(devices=(device,)))
    ] == targets


@pytest.mark.parametrize(
    ("left_s", "said"),
    [(10 * DAY, False), (3 * DAY + 1, False), (3 * DAY - 1, True), (0, True), (-DAY, True)],
)
def test_a_certificate_that_ends_is_told_days_before(left_s, said):
    found = watch_rules.certificate_age(certificate(expires_at=NOW + left_s), NOW)

    assert bool(found) is said


def test_a_node_that_serves_without_a_certificate_is_told():
    assert len(watch_rules.certificate_age(None, NOW)) == 1


def test_a_bmc_is_silent_from_its_last_answer_or_from_when_it_was_first_asked():
    heard = {"host": NOW - 10, "DPU_0": NOW - 1800, "DPU_1": 0.0}

    early = watch_rules.find_silent_bmcs(heard, NOW - 1700, NOW, 1800)
    late = watch_rules.find_silent_bmcs(heard, NOW - 1800, NOW, 1800)

    assert [f.target for f in early] == []
    assert [f.target for f in late] == ["DPU_0", "DPU_1"]


def lost(ago_s: float, for_s: float | None) -> Interruption:
    up = None if for_s is None else NOW - ago_s + for_s
    return Interruption(down_at=NOW - ago_s, up_at=up)


@pytest.mark.parametrize(
    ("losses", "ids"),
    [
        ([], []),
        ([lost(HOUR * n, 1) for n in range(1, 5)], []),
        ([lost(HOUR * n, 1) for n in range(1, 6)], ["LinkFlap"]),  # five in a day
        ([lost(HOUR * (20 + n), 1) for n in range(1, 6)], []),  # one of them before that day
        ([lost(HOUR * n, 25) for n in (1, 2)], []),
        ([lost(HOUR * n, 25) for n in (1, 2, 3)], ["LinkFlap"]),  # three long ones
        ([lost(HOUR * n, 24) for n in (1, 2, 3)], []),
        ([lost(HOUR * n, 25) for n in (1, 2, 13)], []),
        ([lost(240, None)], []),
        ([lost(241, None)], ["LinkDown"]),
        ([lost(-10, None)], []),  # told from the future
    ],
)
def test_a_port_flaps_by_azures_and_gpuds_numbers(losses, ids):
    assert [f.id for f in watch_rules.link_flaps("rail0", losses, NOW)] == ids


def looks(*values: dict[str, int], boot: str = "a") -> list[Counters]:
    return [Counters(at=NOW + 60 * i, boot=boot, values=v) for i, v in enumerate(values)]


def pausing(pause: int, received: int) -> dict[str, int]:
    return {"tx_prio3_pause": pause, "rx_packets": received}


@pytest.mark.parametrize(
    ("series", "stuck"),
    [
        (looks(pausing(0, 5), pausing(9, 5), pausing(20, 5)), True),
        (looks(pausing(0, 5), pausing(9, 5)), False),  # one interval only
        (looks(pausing(0, 5), pausing(9, 6), pausing(20, 6)), False),  # something came in
        (looks(pausing(0, 5), pausing(0, 5), pausing(0, 5)), False),  # idle, and not pausing
        (looks({"tx_prio3_pause": 0}, {"tx_prio3_pause": 9}, {"tx_prio3_pause": 20}), False),
        (looks({"queues_stopped": 1}, {"queues_stopped": 1}), True),
        (looks({"queues_stopped": 1}), False),
        (looks({"queues_stopped": 1}, {"queues_stopped": 0}), False),
        ([*looks({"queues_stopped": 1}), *looks({"queues_stopped": 1}, boot="b")], False),
        ([], False),
    ],
)
def test_a_queue_is_stuck_only_after_several_looks(series, stuck):
    assert bool(watch_rules.stuck_queue("DPU_1/p0", series)) is stuck


@pytest.mark.parametrize(
    ("series", "flaps"),
    [
        (looks({"carrier_changes": 4}, {"carrier_changes": 6}), False),
        (looks({"carrier_changes": 4}, {"carrier_changes": 7}), True),
        (looks({"carrier_changes": 9}, {"carrier_changes": 0}), False),  # began anew
        (looks({}, {"carrier_changes": 9}), False),  # a missing counter is no zero
    ],
)
def test_carrier_changes_count_by_their_growth(series, flaps):
    assert bool(watch_rules.carrier_changes("rail0", series)) is flaps


def test_rocet_counters_are_held_against_the_fleet():
    rates = {(f"n{i}", "rail0"): {"out_of_sequence": 0.2} for i in range(9)}
    rates["bad", "rail0"] = {"out_of_sequence": 40.0}

    found = watch_rules.find_rocet_outliers(rates)

    assert [node for node, each in found.items() if each] == ["bad"]
    assert found["bad"][0].id == "Rocet.out_of_sequence"


def test_a_busy_fleet_and_a_small_one_blame_nobody():
    busy = {(f"n{i}", "rail0"): {"out_of_sequence": 40.0} for i in range(10)}
    small = {("n0", "r"): {"out_of_sequence": 0.0}, ("n1", "r"): {"out_of_sequence": 99.0}}

    assert not any(watch_rules.find_rocet_outliers(busy).values())
    assert not any(watch_rules.find_rocet_outliers(small).values())


def test_rates_are_of_one_boot_and_never_negative():
    assert watch_rules.per_second(looks({"a": 0, "b": 9}, {"a": 60, "b": 3})) == {"a": 1.0}
    assert watch_rules.per_second(looks({"a": 0})) == {}
    apart = [*looks({"a": 0}), Counters(at=NOW + 60, boot="b", values={"a": 60})]
    assert watch_rules.per_second(apart) == {}


@pytest.mark.parametrize(
    ("before", "after", "ids"),
    [
        ({"/x#/PCIeErrors/FatalErrorCount": 0}, {"/x#/PCIeErrors/FatalErrorCount": 1},
         ["FatalErrorCount"]),
        ({"/x#/PCIeErrors/NonFatalErrorCount": 0}, {"/x#/PCIeErrors/NonFatalErrorCount": 1}, []),
        ({}, {"/x#/PCIeErrors/FatalErrorCount": 5}, []),  # what stood there before says nothing
        ({"/m#/LifeTime/UncorrectableECCErrorCount": 2},
         {"/m#/LifeTime/UncorrectableECCErrorCount": 3}, ["UncorrectableECCErrorCount"]),
        ({"/m#/UncorrectableECCErrorCount": 2}, {"/m#/UncorrectableECCErrorCount": 0}, []),
    ],
)  # fmt: skip
def test_counters_of_metric_reports_tell_by_their_growth(before, after, ids):
    assert [f.id for f in watch_rules.fatal_growth(before, after)] == ids


def test_a_revoked_certificate_of_a_serving_node_is_an_alert_of_its_own():
    good = certificate(expires_at=NOW + 30 * 86400)

    assert watch_rules.certificate_age(good, NOW) == ()
    [found] = watch_rules.certificate_age(good, NOW, revoked=True)
    assert (found.id, found.message) == ("CertificateAge", "its certificate was revoked")
