"""switch_cumulus and switch_sonic, by real Ansible over real sshd, on switches that keep state.

The Cumulus switch is the simulator's, behind TLS where a switch has its API; so what is applied,
what is operational and what survives a reboot are three things, as they are on a switch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import Host
from nvue_door import CA, NEW, OLD, Door, opened
from role_lab import ANSIBLE, STANDINS, play

sys.path.insert(0, str(ANSIBLE / "collections"))

from ansible_collections.provisioner.fleet.plugins.module_utils import (
    nvue,
    nvue_dialect,
    sonic,
    tools,
)

from provisioner.integrations.cumulus import revisions as dialect

pytestmark = pytest.mark.slow
CONFIG = {"system": {"hostname": "leaf-su0-r0"}, "vrf": {"RED": {}}}
LOGIN = {"password": "secret", "ca_path": CA}
BASE = {**LOGIN, "config": CONFIG, "lossless_percent": 90, "peers_min": 2}
ROUTING = {**LOGIN, "adaptive_routing": "on", "routing_ports": ["swp51", "swp52"]}
IMAGE = {"version": NEW, "source": "http://10.0.0.1/cumulus-5.12.1.bin"}
SONIC_OLD, SONIC_NEW = "SONiC-OS-202311.1", "SONiC-OS-202311.2"
SONIC = {"VRF": {"VrfRED": {"vni": 4001}}, "INTERFACE": {"Ethernet0": {"vrf_name": "VrfRED"}}}


@pytest.fixture(scope="module")
def cumulus(two_hosts: list[Host]) -> Iterator[Door]:
    with opened(two_hosts[0]) as door:
        yield door


@pytest.fixture
def on_sonic(two_hosts: list[Host]) -> Host:
    host = two_hosts[1]
    host.copy(STANDINS, "/usr/local/lib/standins")
    for tool in ("sonic-cfggen", "config", "sonic-installer"):
        program = f"exec /usr/bin/python3 -S -E /usr/local/lib/standins/sonic.py {tool}"
        host.put(f"/usr/local/bin/{tool}", f'#!/bin/sh\n{program} "$@"\n', 0o755)
    state = {"config": {"DEVICE_METADATA": {"localhost": {"hostname": "sonic"}}}, "patches": 0}
    state |= {"running": SONIC_OLD, "next": SONIC_OLD, "held": [SONIC_OLD]}
    state |= {"saves": 0, "installs": 0}
    host.put("/var/lib/sonic-standin.json", json.dumps(state))
    host.run("rm -f /etc/sonic/config_db.json")
    host.put("/srv/sonic.bin", SONIC_NEW)
    return host


def sonic_state(host: Host) -> Any:
    return json.loads(host.get("/var/lib/sonic-standin.json"))


def test_a_cumulus_switch_gets_its_configuration_and_image_once_and_keeps_them(
    two_hosts: list[Host], cumulus: Door, tmp_path: Path
):
    switch = cumulus.fresh()
    calls = {two_hosts[0]: {**BASE, **IMAGE}}

    tried = play("switch_cumulus", calls, tmp_path, check=True)["host-1"]
    written_by_trying = list(cumulus.writes)
    first = play("switch_cumulus", calls, tmp_path)["host-1"]
    revisions = len(switch.revisions)
    second = play("switch_cumulus", calls, tmp_path)["host-1"]

    assert tried.ok, tried.message
    assert tried.changed > 0
    assert written_by_trying == []
    assert first.ok, first.message
    assert (switch.applied["qos"]["roce"], revisions) == ({"enable": "on", "mode": "lossless"}, 1)
    pools = {n: p["memory-percent"] for n, p in switch.applied["qos"]["traffic-pool"].items()}
    assert {n: int(p) for n, p in pools.items()} == {"default-lossy": 10, "roce-lossless": 90}
    assert switch.startup == switch.applied
    assert (switch.version, switch.partitions[switch.next], switch.boots) == (OLD, NEW, 0)
    assert (first.result["running"], first.result["next"]) == (OLD, NEW)
    assert first.result["waiting"] is True
    assert (second.ok, second.changed, len(switch.revisions)) == (True, 0, 1)


@pytest.mark.long
def test_adaptive_routing_waits_for_a_drain_before_5_13_and_is_refused_in_a_release(
    two_hosts: list[Host], cumulus: Door, tmp_path: Path
):
    host = two_hosts[0]
    switch = cumulus.fresh()

    carrying = play("switch_cumulus", {host: ROUTING}, tmp_path)["host-1"]
    untouched = "adaptive-routing" not in switch.applied.get("router", {})
    for tree in (switch.applied, switch.startup):
        tree["router"] = {"bgp": {"graceful-shutdown": "on"}}
    drained = play("switch_cumulus", {host: ROUTING}, tmp_path)["host-1"]
    in_release = play("switch_cumulus", {host: {**ROUTING, "releasing": True}}, tmp_path)["host-1"]
    newer = cumulus.fresh("5.16.1")
    lossless = {**ROUTING, "lossless_percent": 90}
    modern = play("switch_cumulus", {host: lossless}, tmp_path)["host-1"]
    again = play("switch_cumulus", {host: lossless}, tmp_path)["host-1"]

    assert not carrying.ok
    assert "restarts switchd: drain the switch first" in carrying.message
    assert untouched
    assert drained.ok, drained.message
    assert not in_release.ok
    assert "during a release" in in_release.message
    assert modern.ok, modern.message
    assert (again.ok, again.changed) == (True, 0)
    assert newer.applied["qos"]["roce"] == {"state": "enabled", "mode": "lossless"}
    for after, leaf in ((switch, {"enable": "on"}), (newer, {"state": "enabled"})):
        assert after.applied["router"]["adaptive-routing"] == leaf
        assert after.applied["interface"]["swp52"]["router"]["adaptive-routing"] == leaf
        assert "adaptive-routing" not in after.applied["interface"]["swp1"].get("router", {})


@pytest.mark.long
def test_what_a_cumulus_switch_refuses_is_told_in_its_own_words_and_changes_nothing(
    two_hosts: list[Host], cumulus: Door, tmp_path: Path
):
    host = two_hosts[0]
    switch = cumulus.fresh()

    bad = {**LOGIN, "config": {"interface": {"swp99": {"ip": {"vrf": "default"}}}}}
    invalid = play("switch_cumulus", {host: bad}, tmp_path)["host-1"]
    switch.faults.add("image_fetch_fails")
    unfetched = play("switch_cumulus", {host: {**LOGIN, **IMAGE}}, tmp_path)["host-1"]
    cumulus.peers["swp52"] = "Idle"
    lonely = play("switch_cumulus", {host: {**LOGIN, "settle_s": 1}}, tmp_path)["host-1"]
    switch.password_expired = True
    factory = play("switch_cumulus", {host: LOGIN}, tmp_path)["host-1"]

    assert "is invalid: interface swp99 does not exist" in invalid.message
    assert "@fetch: could not fetch cumulus-5.12.1.bin" in unfetched.message
    assert "default: swp52 is idle" in lonely.message
    assert "the factory password must be changed first" in factory.message
    assert [e.ok for e in (invalid, unfetched, lonely, factory)] == [False] * 4
    assert ("swp99" in switch.applied["interface"], switch.partitions[2]) == (False, None)


@pytest.mark.long
def test_a_sonic_switch_gets_its_configuration_and_image_once_and_keeps_them(
    on_sonic: Host, tmp_path: Path
):
    calls = {on_sonic: {"config": SONIC, "version": SONIC_NEW, "source": "/srv/sonic.bin"}}

    tried = play("switch_sonic", calls, tmp_path, check=True)["host-2"]
    after_trying = sonic_state(on_sonic)
    first = play("switch_sonic", calls, tmp_path)["host-2"]
    second = play("switch_sonic", calls, tmp_path)["host-2"]
    after = sonic_state(on_sonic)

    assert tried.ok, tried.message
    assert (after_trying["patches"], after_trying["installs"]) == (0, 0)
    assert first.ok, first.message
    assert first.result == {"running": SONIC_OLD, "next": SONIC_NEW, "waiting": True}
    assert after["config"]["INTERFACE"] == {"Ethernet0": {"vrf_name": "VrfRED"}}
    assert json.loads(on_sonic.get("/etc/sonic/config_db.json")) == after["config"]
    assert (second.ok, second.changed) == (True, 0)
    assert (after["patches"], after["saves"], after["installs"]) == (1, 1, 1)


@pytest.mark.long
def test_what_sonic_refuses_changes_nothing(on_sonic: Host, tmp_path: Path):
    unnamed = {"config": {"VRF": {"RED": {}}}}
    absent = {"config": {"INTERFACE": {"Ethernet0": {"vrf_name": "VrfBLUE"}}}}

    prefix = play("switch_sonic", {on_sonic: unnamed}, tmp_path)["host-2"]
    dangling = play("switch_sonic", {on_sonic: absent}, tmp_path)["host-2"]

    assert (prefix.ok, dangling.ok) == (False, False)
    assert "names must begin with Vrf" in prefix.message
    assert "leafref VrfBLUE does not exist" in dangling.message
    assert sonic_state(on_sonic)["patches"] == 0


def test_verify_alone_fails_on_a_switch_with_another_configuration(
    two_hosts: list[Host], cumulus: Door, on_sonic: Host, tmp_path: Path
):
    cumulus.fresh()
    only = {"phases": ["verify"]}

    leaf = play("switch_cumulus", {two_hosts[0]: {**BASE, **only}}, tmp_path)["host-1"]
    sonic_leaf = play("switch_sonic", {on_sonic: {"config": SONIC, **only}}, tmp_path)["host-2"]

    assert (leaf.ok, sonic_leaf.ok) == (False, False)
    assert (cumulus.writes, sonic_state(on_sonic)["patches"]) == ([], 0)


@pytest.mark.parametrize(
    ("have", "want", "change"),
    [
        ({"a": {"b": 1}}, {"a": {"b": "1"}}, {}),
        ({"a": {"b": 1}}, {"a": {"c": {}}}, {"a": {"c": {}}}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": None}}, {"a": {"b": None}}),
        ({"a": "x"}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        ({"a": {"b": {}}}, {"a": {"b": "on"}}, {"a": {"b": "on"}}),
    ],
)
def test_only_what_differs_is_written(
    have: dict[str, Any], want: dict[str, Any], change: dict[str, Any]
):
    assert nvue.find_missing(have, want) == change


def test_configuration_is_spelled_for_releases_from_5_15_on():
    older = {
        "router": {"bgp": {"enable": None}, "adaptive-routing": {"enable": "on"}},
        "interface": {"swp1": {"router": {"adaptive-routing": {"enable": "off"}}}},
        "system": {"hostname": "on", "ssh-server": {"enable": "on"}},
        "qos": {"roce": {"state": "enabled", "mode": "lossless"}},
    }

    assert nvue_dialect.encode_config(older) == {
        "router": {"bgp": {"state": None}, "adaptive-routing": {"state": "enabled"}},
        "interface": {"swp1": {"router": {"adaptive-routing": {"state": "disabled"}}}},
        "system": {"hostname": "on", "ssh-server": {"enable": "on"}},
        "qos": {"roce": {"state": "enabled", "mode": "lossless"}},
    }
    assert nvue_dialect.SWITCHES == dialect.SWITCHES


def test_a_patch_of_config_db_escapes_its_keys_and_writes_text():
    have = {"INTERFACE": {"Ethernet0|10.0.0.0/31": {}}, "OLD": {"x": {}}}
    want = {"INTERFACE": {"Ethernet4|10.0.0.2/31": {"n": 4}}, "OLD": {"x": None}}

    assert sonic.build_patch(have, want) == [
        {"op": "add", "path": "/INTERFACE/Ethernet4|10.0.0.2~131", "value": {"n": "4"}},
        {"op": "remove", "path": "/OLD/x"},
    ]


@pytest.mark.parametrize("text", ["", "Current: a\n", "Current: a\nNext: b\nAvailable:\nc\n"])
def test_a_list_of_images_without_the_running_one_is_never_believed(text: str):
    with pytest.raises(tools.Unreadable):
        sonic.parse_images(text)


def test_a_password_is_never_sent_without_encryption():
    login = {"username": "a", "password": "b", "ca_path": None, "limit_s": 1}

    with pytest.raises(tools.Refused, match="https only"):
        nvue.Switch({"url": "http://10.0.0.1:8765", **login})
