"""The expected-hardware list: one error for what does not fit, with file, line, field, remedy."""

from __future__ import annotations

import json

import pytest

from provisioner.daemon.data import read_secrets
from provisioner.model.input_error import InputError
from provisioner.model.node import NodeKind
from provisioner.planning.intake.expected_text import parse

GOOD = """\
site: fra1
release: spectrum-x-1.3.0
factory_credentials:
  supermicro: {username: ADMIN, password_env: FACTORY}
  unknown: {username: admin, password: changeme}
nodes:
  - name: n0
    kind: host
    bmc: {serial: S1, mac: "7c:c2:55:00:00:01", url: https://10.0.0.9}
    dpus:
      - {slot: DPU_0, serial: MT1, base_mac: "5c:25:73:00:00:01"}
      - {slot: NIC_0, serial: MT2}
    ports:
      - {rail: 0, switch: leaf, interface: swp1s0, nic_slot: NIC_0, address: 172.0.0.1/31}
  - name: leaf
    kind: switch
    address: https://10.0.1.10:8765
    username: cumulus
    password_env: LEAF
tenants:
  - {name: red, vrf: RED, l3vni: 4001, nodes_wanted: 1}
"""

# sentence: (what is replaced, by what, line of the error, end of its field, a word of it)
BAD: dict[str, tuple[str, str, int, str, str]] = {
    "a field nobody knows": ("site: fra1", "sight: fra1", 1, "sight", ""),
    "a kind that is neither": ("kind: host", "kind: toaster", 8, "nodes[0].kind", "'host'"),
    "a node without a name": ("name: n0", "name: ''", 7, "nodes[0].name", "at least 1"),
    "a name that is a path": ("name: n0", "name: ../n0", 7, "nodes[0].name", "pattern"),
    "two nodes of one name": ("name: leaf", "name: n0", 15, "nodes[1].name", "second time"),
    "one serial for card and host": ("MT1", "S1", 11, "dpus[0].serial", "second time"),
    "one serial for two cards": ("MT2", "MT1", 12, "dpus[1].serial", "second time"),
    "one MAC in two spellings": (
        "5c:25:73:00:00:01", "7C:C2:55:00:00:01", 11, "dpus[0].base_mac", "second time",
    ),
    "two cards in one slot": ("slot: NIC_0", "slot: DPU_0", 12, "dpus[1].slot", "second time"),
    "a port of a switch that is not there": (
        "switch: leaf", "switch: leef", 14, "ports[0].switch", "no switch",
    ),
    "a port of a switch that is a host": (
        "switch: leaf", "switch: n0", 14, "ports[0].switch", "no switch",
    ),
    "an address without a prefix that is none": (
        "172.0.0.1/31", "172.0.0.300/31", 14, "ports[0].address", "prefix length",
    ),
    "a BMC over plain http": ("https://10.0.0.9", "http://10.0.0.9", 9, "bmc.url", "address"),
    "a BMC's address with a password in it": (
        "https://10.0.0.9", "https://u:p@10.0.0.9", 9, "bmc.url", "address",
    ),
    "a BMC's address that cannot be read": (
        "https://10.0.0.9", "'https://[10.0.0.9'", 9, "bmc.url", "address",
    ),
    "two sources of one password": (
        "password: changeme", "password: a, password_env: B", 5, "unknown", "exactly one",
    ),
    "a credential without a password": (
        ", password: changeme", "", 5, "unknown", "exactly one",
    ),
    "a number that is none": ("rail: 0", "rail: zero", 14, "ports[0].rail", "integer"),
    "a customer in the maintenance VRF": ("vrf: RED", "vrf: MAINT", 21, "[0].vrf", "VRF"),
    "a customer in the default VRF": ("vrf: RED", "vrf: default", 21, "[0].vrf", "VRF"),
    "a customer in no VRF": ("vrf: RED", "vrf: ''", 21, "[0].vrf", "VRF"),
    "a VRF that is a path": ("vrf: RED", "vrf: a/b", 21, "[0].vrf", "VRF"),
    "two tenants of one VRF": (
        "wanted: 1}", "wanted: 1}\n  - {name: blue, vrf: RED}", 22, "[1].vrf", "second time",
    ),
    "a rail with a bond": (
        "172.0.0.1/31}", "172.0.0.1/31, bond: {name: bond1, members: [swp2]}}",
        14, "ports[0].bond", "a rail has no bond",
    ),
    "a bond with a segment and an MLAG": (
        "rail: 0, switch: leaf",
        "bond: {name: b, members: [swp2], mlag: 1, segment: '" + "00:" * 9 + "01'}, "
        "rail: -1, switch: leaf",
        14, "ports[0].bond", "not both",
    ),
    "a bond of two leaves with one leg": (
        "rail: 0, switch", "bond: {name: b, members: [swp2], mlag: 1}, rail: -1, switch",
        14, "ports[0].bond", "one leg on each",
    ),
    "a VNI of a bond that the site makes": (
        "rail: 0, switch", "bond: {name: b, members: [swp2], vni: 9}, rail: -1, switch",
        14, "ports[0].bond", "only a bond that is made",
    ),
    "a bond that is made without a VLAN": (
        "rail: 0, switch", "bond: {name: b, members: [swp2], made: true}, rail: -1, switch",
        14, "ports[0].bond", "needs the interface of its VLAN",
    ),
    "a segment that is none": (
        "rail: 0, switch", "bond: {name: b, members: [swp2], segment: x}, rail: -1, switch",
        14, "bond.segment", "match",
    ),
    "a bond of no port": (
        "rail: 0, switch: leaf", "bond: {name: b, members: []}, rail: -1, switch: leaf",
        14, "bond.members", "at least 1",
    ),
    "two tenants of one name": (
        "wanted: 1}", "wanted: 1}\n  - {name: red, vrf: BLUE}", 22, "[1].name", "second time",
    ),
}  # fmt: skip


LEG = (
    "- {rail: -1, switch: %s, interface: vlan9, nic_slot: %s, bond: {name: b, members: [swp2], %s}}"
)
SEGMENT = "segment: '03:44:38:39:ff:00:aa:00:00:01'"


def test_a_bond_has_one_leg_on_each_of_two_leaves_and_its_segment_no_other_node() -> None:
    leaf = GOOD[GOOD.index("  - name: leaf") : GOOD.index("tenants:")]
    other = leaf.replace("leaf", "leaf-b").replace("10.0.1.10", "10.0.1.11")
    port = "- {rail: 0, switch: leaf, interface: swp1s0, nic_slot: NIC_0, address: 172.0.0.1/31}"
    legs = "\n      ".join(
        LEG % (name, f"NIC_{n}", SEGMENT) for n, name in enumerate(("leaf", "leaf-b"))
    )
    two = GOOD.replace(port, legs).replace("tenants:", f"{other}tenants:")

    bonds = [p.bond for p in parse("list.yaml", two).nodes[0].ports]
    assert [b.name for b in bonds if b] == ["b", "b"]

    node = two[two.index("  - name: n0") : two.index("  - name: leaf")]
    third = (
        node.replace("n0", "n1")
        .replace("S1", "S2")
        .replace("swp2", "swp3")
        .replace("vlan9", "vlan8")
    )
    third = third.replace(':01"', ':09"').replace("MT", "MX").replace("10.0.0.9", "10.0.0.8")
    with pytest.raises(InputError, match="second time") as caught:
        parse("list.yaml", two.replace("tenants:", f"{third}tenants:"))
    assert "03:44:38:39:ff:00:aa:00:00:01" in caught.value.problem


def test_a_good_list_is_read_as_it_is_written() -> None:
    expected = parse("list.yaml", GOOD)

    assert [(n.name, n.kind) for n in expected.nodes] == [
        ("n0", NodeKind.HOST),
        ("leaf", NodeKind.SWITCH),
    ]
    assert [d.slot for d in expected.nodes[0].dpus] == ["DPU_0", "NIC_0"]
    assert expected.tenants[0].nodes_wanted == 1


@pytest.mark.parametrize("sentence", BAD)
def test_bad_lists(sentence: str) -> None:
    old, new, line, field, word = BAD[sentence]
    assert GOOD.count(old) >= 1

    with pytest.raises(InputError) as caught:
        parse("list.yaml", GOOD.replace(old, new, 1))

    error = caught.value
    assert error.source == "list.yaml"
    assert error.where.startswith(f"line {line}, field ")
    assert error.where.endswith(field)
    assert word in error.problem
    assert error.remedy
    assert "\n" not in str(error)
    assert "changeme" not in str(error), "a password is never shown"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not a list of expected hardware"),
        ("- a\n", "not a list of expected hardware"),
        ("nodes: [", "not YAML"),
        ("nodes: &a [*a]", "anchors"),
        ("nodes: !!python/object:os.system x", "tag"),
        ("site: a\nsite: b\n", "second time"),
        ("nodes: " + "[" * 100, "levels"),
    ],
)
def test_what_is_no_list_at_all(text: str, word: str) -> None:
    with pytest.raises(InputError) as caught:
        parse("list.yaml", text)

    assert caught.value.source == "list.yaml"
    assert word in caught.value.problem
    assert caught.value.remedy


def test_a_password_that_is_not_in_the_environment_is_named() -> None:
    expected = parse("list.yaml", GOOD)

    with pytest.raises(InputError) as caught:
        read_secrets(expected, {"FACTORY": "x"})

    assert "leaf" in caught.value.source
    assert caught.value.where == "password_env"
    assert "LEAF" in caught.value.problem


def test_passwords_come_from_where_the_list_says() -> None:
    secrets = read_secrets(parse("list.yaml", GOOD), {"FACTORY": "x", "LEAF": "y"})

    factory = {v: (user, secret.reveal()) for v, (user, secret) in secrets.factory.items()}
    assert factory == {"supermicro": ("ADMIN", "x"), "unknown": ("admin", "changeme")}
    assert secrets.switches["leaf"][1].reveal() == "y"


@pytest.mark.slow
def test_a_list_of_thousands_of_hosts_with_their_ports_is_read() -> None:
    ports = [{"switch": "leaf", "rail": rail, "nic_slot": f"NIC_{rail}"} for rail in range(8)]
    hosts = [
        {
            "name": f"n{number}",
            "kind": "host",
            "bmc": {"serial": f"S{number}"},
            "ports": [{**p, "interface": f"swp{number}s{p['rail']}"} for p in ports],
        }
        for number in range(2500)
    ]
    leaf = {"name": "leaf", "kind": "switch", "address": "https://10.0.0.1:8765"}

    expected = parse("list", json.dumps({"nodes": [leaf, *hosts]}))

    assert len(expected.nodes) == 2501
