"""A leaf port has one name, whichever one a list, an Ironic or a NetBox has for it."""

from __future__ import annotations

import pytest

from provisioner.integrations.inventories.deciding.adoption_rows import merge_rows
from provisioner.integrations.inventories.deciding.belief import Belief, SourceRow
from provisioner.integrations.inventories.deciding.ironic_nodes import list_links
from provisioner.integrations.inventories.deciding.netbox_mirror import (
    build_objects,
    plan_changes,
    spell_ports,
)
from provisioner.integrations.inventories.deciding.netbox_records import NetBoxKind
from provisioner.integrations.inventories.deciding.netbox_source import build_expected
from provisioner.model.expected import Expected
from provisioner.model.location import Location, Port
from provisioner.model.node import Node, NodeKind
from provisioner.planning.intake import expected_text
from provisioner.planning.intake.pairing import name_ports

# of a SONiC with the aliases of its platform, and one whose alias is another port's own name
NAMES = {"leaf": {"etp1a": "Ethernet0", "Eth1/2": "Ethernet4", "Ethernet16": "Ethernet8",
                  "etp5": "Ethernet16"}}  # fmt: skip
BASE = "site: fra1\nnodes:\n- {name: leaf, kind: switch, address: 'ssh://10.0.9.1', os: sonic}\n"
ROLES = {NodeKind.HOST: "gpu-server", NodeKind.SWITCH: "switch"}


def listed(*places: tuple[str, str]) -> Expected:
    hosts = "".join(
        f"- name: n{i}\n  kind: host\n  bmc: {{serial: S{i}}}\n"
        f"  ports: [{{switch: {switch}, interface: {interface}, rail: 0, nic_slot: NIC_0}}]\n"
        for i, (switch, interface) in enumerate(places)
    )
    return expected_text.parse("list", BASE + hosts)


def ports_of(expected: Expected) -> list[tuple[str, str]]:
    return [(p.switch, p.interface) for n in expected.nodes for p in n.ports]


@pytest.mark.parametrize(
    ("written", "own"),
    [
        ("etp1a", "Ethernet0"),
        ("Eth1/2", "Ethernet4"),
        ("Ethernet4", "Ethernet4"),
        ("Ethernet16", "Ethernet16"),  # a port's own name beats another one's alias
        ("etp5", "Ethernet16"),
        ("swp1s0", "swp1s0"),
        ("ETP1A", "ETP1A"),
    ],
)
def test_a_list_may_have_either_name_and_the_plan_has_the_ports_own(written, own):
    assert ports_of(name_ports(listed(("leaf", written)), NAMES)) == [("leaf", own)]
    assert ports_of(name_ports(listed(("leaf", written)), {})) == [("leaf", written)]


def test_two_names_of_one_port_never_make_it_two_nodes():
    both = listed(("leaf", "etp1a"), ("leaf", "Ethernet0"))
    second = name_ports(listed(("leaf", "etp1a")), NAMES, taken={("leaf", "Ethernet0")})

    assert ports_of(name_ports(both, NAMES)) == [("leaf", "etp1a"), ("leaf", "Ethernet0")]
    assert ports_of(second) == [("leaf", "etp1a")]  # whose move the switch's adapter refuses


@pytest.mark.parametrize("switch", ["leaf", "leaf.dc.example", "LEAF"])
def test_what_an_ironic_heard_by_lldp_is_the_port_of_the_plan(switch):
    """Ironic's hook `local_link_connection` stores what LLDP sent (ironic/drivers/modules/
    inspector/hooks/local_link_connection.py).
    """
    link = {"switch_info": switch, "port_id": "etp1a", "switch_id": "9c:05:91:00:00:01"}
    ports = [{"uuid": "p", "node_uuid": "u", "name": "NIC_0", "local_link_connection": link}]
    belief = Belief(key="u", name="n0", serial="S0", state="active", serves=True)
    row = SourceRow(belief=belief, ports=list_links(ports)["u"])

    merged = merge_rows(expected_text.parse("base", BASE), [row], {}, "ironic")

    assert merged.refused == ()
    assert ports_of(name_ports(merged.expected, NAMES)) == [("leaf", "Ethernet0")]


def test_a_netbox_with_a_switchs_aliases_is_followed_and_read():
    place = Location(site="fra1")
    port = Port(switch="leaf", interface="Ethernet0", rail=0, nic_slot="NIC_0", address="10.1.0.1")
    nodes = [
        Node(id="leaf", kind=NodeKind.SWITCH, location=place, address="ssh://10.0.9.1"),
        Node(id="n0", kind=NodeKind.HOST, location=place, ports=(port,)),
    ]
    wanted = build_objects(nodes, {}, ROLES)
    # as a NetBox whose device type has the names on the switch's front
    there = [
        o.model_copy(
            update={
                "key": o.key.replace("Ethernet0", "etp1a"),
                "fields": {k: v.replace("Ethernet0", "etp1a") for k, v in o.fields.items()},
                "number": number,
            }
        )
        for number, o in enumerate(wanted, start=1)
    ]

    assert plan_changes(spell_ports(wanted, there, NAMES), there, prune=True) == ()
    assert spell_ports(wanted, wanted, NAMES) == wanted
    assert {c.kind for c in plan_changes(wanted, there, prune=True)} >= {NetBoxKind.INTERFACE}
    roles = {slug: kind for kind, slug in ROLES.items()}
    told = build_expected(there, roles, ("admin", "SWITCH_PASSWORD"))["nodes"]
    (host,) = (n for n in told if n["kind"] == "host")
    assert host["ports"][0]["interface"] == "etp1a"  # which an intake turns into the port's own
