"""What others push: Alertmanager's JSON and the plain format, good, hostile and of no node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.model.alert import Classification
from provisioner.model.location import Port
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.watch.pushed_alerts import (
    ITEMS_MAX,
    ORDINARY,
    Directory,
    Source,
    parse_push,
)

NOW = 1_790_000_000.0
C = Classification
ALERTMANAGER = Source(name="site", format="alertmanager")
PLAIN = Source(name="netq", format="plain")
TRUSTED = Source(name="own", format="plain", classifications=tuple(C))


def node(name: str, address: str, **changes: Any) -> Node:
    port = Port(switch="leaf-0", interface=f"swp{name[-1]}s0", rail=0, nic_slot="NIC_0")
    return Node(id=name, kind=NodeKind.HOST, address=address, ports=(port,), **changes)


DIRECTORY = Directory(
    [
        node("su0-n01", "10.0.0.1", bmcs=(BmcRef(name="DPU_0", url="https://x", serial="MT1"),)),
        node("su0-n02", "fd00::2"),
        node("su0-n03", "10.0.0.9"),
        node("su0-n04", "10.0.0.9"),  # the same address twice: nobody's
    ],
    {"su0-n01": ("SER1", "GPU1"), "su0-n02": ("SER2",)},
)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"node": "su0-n01"}, "su0-n01"),
        ({"node": "SU0-N01"}, "su0-n01"),
        ({"hostname": "su0-n01.site.example"}, "su0-n01"),
        ({"node": "su0-n01:9400"}, "su0-n01"),
        ({"node": "10.0.0.1:9400"}, "su0-n01"),
        ({"node": "[fd00::2]:9400"}, "su0-n02"),
        ({"ip": "fd00::2"}, "su0-n02"),
        ({"serial": "SER1"}, "su0-n01"),
        ({"serial": "MT1"}, "su0-n01"),
        ({"switch": "leaf-0", "interface": "swp2s0"}, "su0-n02"),
        ({"node": "su0-n01", "serial": "SER2"}, ""),  # it contradicts itself
        ({"ip": "10.0.0.9"}, ""),  # two claim it
        ({"node": "elsewhere"}, ""),
        ({"switch": "leaf-0"}, ""),
        ({}, ""),
    ],
)
def test_a_node_is_found_by_what_names_it_without_doubt(said, found):
    assert DIRECTORY.find(said) == found


# the shipped plan gives 172.32.0.2 to rail 1 of the second node; its rail 3 is cabled otherwise
CABLED = Port(switch="leaf-3", interface="swp9", rail=3, nic_slot="NIC_3", address="10.9.0.1/31")
NORTH = Port(switch="border-0", interface="swp1", rail=-1, nic_slot="DPU_0", address="10.8.0.1/24")
PLANNED = Directory(
    [
        Node(id="su0-n01", kind=NodeKind.HOST, address="10.0.0.1", ports=(CABLED, NORTH)),
        Node(id="su0-n02", kind=NodeKind.HOST),
        Node(id="leaf-3", kind=NodeKind.SWITCH, address="10.1.0.3"),
    ],
    {},
    AddressPlan(),
)


@pytest.mark.parametrize(
    ("said", "node", "target"),
    [
        ({"ip": "172.32.0.2"}, "su0-n01", "rail1"),  # the node's end
        ({"node": "172.32.0.3:9400"}, "su0-n01", "rail1"),  # the leaf's
        ({"ip": "172.0.0.4"}, "su0-n02", "rail0"),
        ({"ip": "10.9.0.0"}, "su0-n01", "rail3"),  # as it was cabled
        ({"ip": "172.96.0.2"}, "", ""),  # the plan's address of that rail is not in use
        ({"ip": "172.0.0.6"}, "", ""),  # a node that is not there
        ({"ip": "10.8.0.7"}, "", ""),  # a network of many
        ({"ip": "172.32.0.2", "node": "su0-n02"}, "", "rail1"),
        ({"ip": "172.32.0.2", "node": "su0-n01"}, "su0-n01", "rail1"),
        ({"switch": "leaf-3", "interface": "swp9"}, "su0-n01", "rail3"),
        ({"node": "leaf-3:9100", "interface": "swp9"}, "su0-n01", "rail3"),
        ({"node": "leaf-3.site.example", "interface": "swp9"}, "su0-n01", "rail3"),
        ({"node": "leaf-3", "interface": "swp64"}, "leaf-3", ""),  # an uplink
        ({"node": "leaf-3"}, "leaf-3", ""),
        ({"switch": "border-0", "interface": "swp1"}, "su0-n01", "border-0/swp1"),
        ({"node": "su0-n01", "interface": "swp9"}, "su0-n01", ""),
    ],
)
def test_a_rails_address_or_a_leafs_port_names_the_node_and_the_rail(said, node, target):
    assert (PLANNED.find(said), PLANNED.find_target(said)) == (node, target)


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ({"instance": "leaf-3:9100", "device": "swp9"}, ("su0-n01", "rail3")),
        ({"instance": "leaf-3:9100", "device": "swp64"}, ("leaf-3", "swp64")),
        ({"switch": "leaf-3", "port": "swp9"}, ("su0-n01", "rail3")),
        # snmp_exporter (IF-MIB's columns, by the switch's address), and gNMIc
        ({"instance": "leaf-3", "ifName": "swp9", "ifIndex": "11"}, ("su0-n01", "rail3")),
        ({"instance": "10.1.0.3", "ifDescr": "swp9"}, ("su0-n01", "rail3")),
        ({"instance": "10.1.0.3:9116", "ifName": "swp64"}, ("leaf-3", "swp64")),
        ({"source": "leaf-3:9339", "interface_name": "swp9"}, ("su0-n01", "rail3")),
        ({"source": "10.1.0.3:9339", "interface_name": "swp9"}, ("su0-n01", "rail3")),
        # a VLAN of a port, a lane of it, another case and the bridge are not the port
        *(
            ({"instance": "leaf-3:9100", "device": name}, ("leaf-3", name))
            for name in ("swp9.100", "swp9s0", "swp90", "SWP9", "br_default", "bridge", "eth0")
        ),
        ({"ip": "172.32.0.2"}, ("su0-n01", "rail1")),
        ({"instance": "172.32.0.2:9400", "gpu": "4"}, ("su0-n01", "4")),
        ({"instance": "su0-n01", "device": "mlx5_3"}, ("su0-n01", "mlx5_3")),
    ],
)
def test_an_alert_is_put_at_the_rail_that_its_labels_name(labels, wanted):
    body = alertmanager("firing", alertname="X", **labels)
    (signal,) = parse_push(ALERTMANAGER, body, PLANNED, NOW).signals

    assert (signal.node, signal.target) == wanted


def alertmanager(status: str = "firing", /, **labels: str) -> dict[str, Any]:
    return {
        "version": "4",
        "status": status,
        "receiver": "provisioner",
        "alerts": [
            {
                "status": status,
                "labels": labels,
                "annotations": {"summary": "in words"},
                "startsAt": "2026-01-01T00:00:00Z",
                "fingerprint": "0",
            }
        ],
    }


@pytest.mark.parametrize(
    ("labels", "wanted"),
    [
        ({"alertname": "FanSlow", "node": "su0-n01", "severity": "warning", "device": "Fan_1"},
         ("FanSlow", "Fan_1", (C.SENSOR_WARNING,))),
        ({"alertname": "Dead", "instance": "10.0.0.1:9100", "severity": "critical"},
         ("Dead", "", (C.HARDWARE,))),
        ({"alertname": "X", "Hostname": "su0-n01", "classification": "Link"},
         ("X", "", (C.LINK,))),
        # a source that may not revoke names what it saw, without its consequence
        ({"alertname": "GpuXid", "Hostname": "su0-n01", "gpu": "3", "err_code": "79"},
         ("Xid79", "3", (C.HARDWARE,))),
        ({"alertname": "X", "node": "su0-n01", "classification": "Drift,PreventAllocations"},
         ("X", "", ())),
    ],
)  # fmt: skip
def test_alertmanagers_labels_are_read(labels, wanted):
    (signal,) = parse_push(ALERTMANAGER, alertmanager("firing", **labels), DIRECTORY, NOW).signals

    assert (signal.node, signal.id, signal.target, signal.classifications) == ("su0-n01", *wanted)
    assert (signal.active, signal.message, signal.source) == (True, "in words", "webhook/site")


def test_resolved_is_over():
    body = alertmanager("resolved", alertname="X", node="su0-n01")
    (signal,) = parse_push(ALERTMANAGER, body, DIRECTORY, NOW).signals

    assert not signal.active


def test_a_source_that_may_revoke_does_by_an_xid():
    trusted = Source(name="dcgm", format="alertmanager", classifications=tuple(C))
    body = alertmanager("firing", alertname="DCGM_XID", node="su0-n01", xid="79")
    (signal,) = parse_push(trusted, body, DIRECTORY, NOW).signals

    assert signal.classifications == (C.FATAL_EVENT, C.HARDWARE)


def test_the_plain_format_is_read():
    body = {
        "alerts": [
            {"id": "RoceDrops", "target": "rail3", "serial": "SER1", "message": "m",
             "classifications": ["Link", "FatalEvent", "Nonsense"]},
            {"id": "RoceDrops", "target": "rail3", "node": "nobody"},
        ],
        "ports": [
            {"node": "su0-n01", "port": "rail0", "link": "down", "at": NOW - 5},
            {"node": "su0-n01", "port": "rail0", "boot": "b", "counters": {"rx_packets": 5}},
        ],
    }  # fmt: skip
    found = parse_push(PLAIN, body, DIRECTORY, NOW)

    assert [(s.node, s.classifications) for s in found.signals] == [("su0-n01", (C.LINK,))]
    assert found.unnamed == ("node=nobody",)
    assert [(p.link, p.at) for p in found.ports] == [("down", NOW - 5), ("", NOW)]
    assert parse_push(TRUSTED, body, DIRECTORY, NOW).signals[0].classifications == (
        C.LINK,
        C.FATAL_EVENT,
    )


@pytest.mark.parametrize(
    "item",
    [
        None, 7, {}, {"id": 5}, {"id": ""}, {"id": "a\x1b[2J"}, {"id": "x" * 129},
        {"id": "a", "active": "yes"}, {"id": "a", "classifications": "Link"},
        {"id": "a", "message": 5}, {"id": "a", "target": []},
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_counted_and_nothing_else(item):
    found = parse_push(PLAIN, {"alerts": [item]}, DIRECTORY, NOW)

    assert (found.signals, found.unreadable) == ((), 1)


@pytest.mark.parametrize(
    "item",
    [
        {}, {"port": "r"}, {"port": "r", "link": "sideways"}, {"port": "r", "counters": {"a": -1}},
        {"port": "r", "counters": {"a": True}}, {"port": "r", "counters": {"a": 2**70}},
        {"port": "r", "counters": {f"c{n}": 1 for n in range(500)}},
        {"port": "r", "link": "up", "at": NOW + 3600}, {"port": "r", "link": "up", "at": True},
        {"port": "r", "link": "up", "at": float("nan")},
    ],
)  # fmt: skip
def test_a_port_that_cannot_be_read_is_counted(item):
    found = parse_push(PLAIN, {"ports": [{"node": "su0-n01", **item}]}, DIRECTORY, NOW)

    assert (found.ports, found.unreadable) == ((), 1)


def test_a_flood_is_cut():
    body = {"alerts": [{"id": "a", "node": "su0-n01"}] * 10_000}

    assert len(parse_push(PLAIN, body, DIRECTORY, NOW).signals) == ITEMS_MAX


def test_ordinary_sources_revoke_nothing():
    from provisioner.planning.watch.alerts import HOLDING

    assert not set(ORDINARY) & HOLDING


words = st.sampled_from(
    ["alerts", "ports", "labels", "annotations", "status", "alertname", "node", "id", "target",
     "counters", "link", "at", "port", "firing", "su0-n01", "serial", "ip", "interface", "switch"]
)  # fmt: skip
bodies = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=6),
    max_leaves=15,
)


@given(bodies)
def test_no_body_raises(body):
    for source in (PLAIN, ALERTMANAGER):
        parse_push(source, body, DIRECTORY, NOW)
        parse_push(source, {"alerts": [body], "ports": [body]}, DIRECTORY, NOW)
