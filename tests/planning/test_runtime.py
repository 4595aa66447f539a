"""Run-time settings of SuperNICs: order, types, and what the fabric's overlay changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.model.input_error import InputError
from provisioner.planning.certification.host_settings import ROOT, select_settings
from provisioner.planning.matrix.matrix_text import parse

SHIPPED = Path(__file__).parents[2] / "firmware_matrix.yaml"
MATRIX = parse([(SHIPPED.name, SHIPPED.read_text())])


def test_the_profile_is_set_in_its_order_with_the_algorithm_started_between():
    wanted = select_settings(MATRIX.nic_runtime["RA1.3"], "l3_evpn")

    assert [s.path.removeprefix(ROOT) for s in wanted.routing] == [
        "nvidia/qos/config/trust-mode",
        "nvidia/qos/config/pfc",
        "nvidia/roce/config/adaptive-retransmission",
        "nvidia/roce/config/tx-window",
        "nvidia/roce/config/slow-restart",
        "nvidia/roce/config/slow-restart-idle",
        "nvidia/roce/config/adaptive-routing-force",
    ]
    assert wanted.congestion[0].path == ROOT + "nvidia/cc/config/priority/rp_enabled"
    assert {s.type for s in wanted.routing[:2]} == {"string"}
    assert {s.type for s in wanted.routing[2:]} == {"bool"}
    assert wanted.routing[0].also == "QOS_TRUST_MODE_DSCP"


@pytest.mark.parametrize(("overlay", "gap"), [("pure_l3", "25"), ("l3_evpn", "33")])
def test_the_gap_between_packets_is_the_overlays_and_needs_the_interface_restarted(
    overlay: str, gap: str
):
    for name in ("RA1.3", "RA2.0", "RA2.1", "RA2.2"):
        last = select_settings(MATRIX.nic_runtime[name], overlay).congestion[-1]

        assert (last.value, last.type, last.restart_interface) == (gap, "int", True)


def test_every_pinned_profile_has_its_run_time_settings():
    pinned = {
        profile.pins["nic.config"].version
        for release in MATRIX.releases.values()
        for profile in release.profiles.values()
        if "nic.config" in profile.pins and profile.pins["nic.config"].known
    }

    assert pinned <= set(MATRIX.nic_runtime)


@pytest.mark.parametrize(
    "line",
    [
        '"nvidia/qos/config/pfc@everywhere": "1"',
        '"nvidia/qos; reboot": "1"',
        '"/nvidia/qos/config/pfc": "1"',
        "nvidia/qos/config/pfc: a b",
    ],
)
def test_a_line_that_is_no_setting_is_refused_at_its_place(line: str):
    site = f"schema: 1\nnic_runtime:\n  RA9: {{{line}}}\n"

    with pytest.raises(InputError, match=r"site\.yaml, line 3"):
        parse([(SHIPPED.name, SHIPPED.read_text()), ("site.yaml", site)])
