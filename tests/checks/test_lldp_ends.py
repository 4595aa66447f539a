"""Swapped cables are named with both true ends, and with the plugs to move."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from provisioner.checks import lldp
from provisioner.checks.check import CheckContext
from provisioner.execution.validate.validator import judging_context
from provisioner.integrations.sonic import config_db
from provisioner.model.cohort import Evidence, Finding, Verdict
from provisioner.model.inventory import Inventory
from provisioner.model.location import Port
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind
from provisioner.settings import Settings
from provisioner.store import open_store

GOLDEN = Path(__file__).parents[1] / "golden" / "checks"
CONTEXT = CheckContext.model_validate_json((GOLDEN / "context.json").read_text())


def findings(case: str, context: CheckContext) -> list[Finding]:
    folder = GOLDEN / "lldp" / case
    outputs = {}
    for command in lldp.CHECK.commands:
        text = (folder / f"{command.name}.txt").read_text()
        outputs[command.name] = Evidence(source=command.line, exit_code=0, text=text)
    return list(lldp.CHECK.judge(outputs, context).findings)


def test_two_rails_of_one_host_that_are_swapped_are_told_with_both_plugs() -> None:
    found = findings("bad_swapped_rails", CONTEXT)

    assert len(found) == 2
    for finding in found:
        assert "swapped: Exchange the plugs at" in finding.detail
        assert "leaf-su0-r0/swp1s0" in finding.detail
        assert "leaf-su0-r1/swp1s0" in finding.detail
        assert "0000:18:00.0" in finding.detail


def test_a_cable_in_another_nodes_port_says_whose_port_it_is() -> None:
    seen = json.loads(
        (GOLDEN / "lldp" / "bad_wrong_port" / "lldp.txt").read_text().rpartition("}")[0] + "}"
    )
    (entry,) = [e[name] for e in seen["lldp"]["interface"] for name in e if name == "enp64s0np0"]
    port = entry["port"]["id"]["value"]
    leaf = next(iter(entry["chassis"]))
    context = CONTEXT.model_copy(update={"port_owners": {f"{leaf}/{port}": "su0-n04/NIC_1"}})

    mine, other = findings("bad_wrong_port", context)

    assert f"Move the plug from {leaf}/{port} to leaf-su0-r1/swp1s0" in mine.detail
    assert other.detail.startswith("cabled to a port that is su0-n04/NIC_1's")


def test_the_daemon_knows_whose_the_other_ports_of_its_leaves_are() -> None:
    def host(name: str, interface: str) -> Node:
        ports = (
            Port(switch="leaf-su0-r0", interface=interface, rail=0, nic_slot="NIC_0"),
            Port(switch=f"leaf-{name}", interface="swp1", rail=1, nic_slot="NIC_1"),
        )
        return Node(id=name, kind=NodeKind.HOST, ports=ports)

    async def main() -> CheckContext:
        store = open_store(":memory:", inline=True)
        nodes = [await store.nodes.add(host(f"n{i}", f"swp{i}s0")) for i in (1, 2, 3)]
        inventory = Inventory(node="n1", vendor="x")
        found = await judging_context(
            store, Matrix(releases={}), Settings(), {}, nodes[0], inventory
        )
        await store.close()
        return found

    assert asyncio.run(main()).port_owners == {
        "leaf-su0-r0/swp2s0": "n2/NIC_0",
        "leaf-su0-r0/swp3s0": "n3/NIC_0",
    }


def hear(*ports: tuple[str, str, str, str]) -> dict[str, Evidence]:
    """The outputs of a host whose interfaces hear (leaf, id, subtype, description)."""
    cards = ("enp24s0np0", "0000:18:00.0"), ("enp64s0np0", "0000:40:00.0")
    heard = [
        {
            name: {
                "chassis": {leaf: {"id": {"type": "mac", "value": "9c:05:91:00:00:01"}}},
                "port": {"id": {"type": subtype, "value": value}, "descr": described},
            }
        }
        for (name, _), (leaf, value, subtype, described) in zip(cards, ports, strict=True)
    ]
    slots = "".join(f"/sys/class/net/{n}/device/uevent:PCI_SLOT_NAME={p}\n" for n, p in cards)
    texts = (json.dumps({"lldp": {"interface": heard}}), f"{slots}end-of-output\n")
    return {
        c.name: Evidence(source=c.line, exit_code=0, text=text)
        for c, text in zip(lldp.CHECK.commands, texts, strict=True)
    }


A, B = "leaf-su0-r0", "leaf-su0-r1"
NAMES = {leaf: {"etp1a": "Ethernet0", "etp1b": "Ethernet4", "Ethernet8": "Ethernet12"}
         for leaf in (A, B)}  # fmt: skip
SONIC = CheckContext(
    rails=2,
    neighbours=((A, "Ethernet0"), (B, "Ethernet0")),
    cabled_pci={f"{A}/Ethernet0": "0000:18:00.0", f"{B}/Ethernet0": "0000:40:00.0"},
    port_owners={f"{A}/Ethernet4": "su0-n04/NIC_0"},
)


@pytest.mark.parametrize("names", [{}, NAMES], ids=["leaf not read", "leaf read"])
@pytest.mark.parametrize(
    ("value", "subtype", "described"),
    [
        ("Ethernet0", "ifname", "Ethernet0"),  # another lldpd, or a port without an alias
        ("Ethernet0", "local", "su0-n03 NIC_0"),
        ("etp1a", "local", "Ethernet0"),  # SONiC without a description in CONFIG_DB
    ],
)
def test_a_sound_cable_passes_by_whichever_name_its_leaf_sends(
    names: dict[str, dict[str, str]], value: str, subtype: str, described: str
) -> None:
    outputs = hear((A, value, subtype, described), (B, value, subtype, described))
    context = SONIC.model_copy(update={"port_names": names})

    assert lldp.CHECK.judge(outputs, context).verdict is Verdict.PASS
    ends = lldp.read_ends(outputs, names, set(SONIC.neighbours))
    assert ends is not None
    assert [place for _, place in ends.neighbours] == [(A, "Ethernet0"), (B, "Ethernet0")]


def test_an_alias_with_a_description_of_ours_is_known_from_the_leafs_own_table() -> None:
    outputs = hear((A, "etp1a", "local", "su0-n03 NIC_0"), (B, "etp1a", "local", "su0-n03 NIC_1"))

    read = lldp.CHECK.judge(outputs, SONIC.model_copy(update={"port_names": NAMES}))
    unread = lldp.CHECK.judge(outputs, SONIC)

    assert read.verdict is Verdict.PASS
    assert unread.verdict is Verdict.SKIPPED
    assert "known when the switch has been read" in unread.findings[0].detail
    assert lldp.read_ends(outputs, {}, set(SONIC.neighbours)) is None


@pytest.mark.parametrize("subtype", ["mac", "local"])
@pytest.mark.parametrize("described", ["Ethernet0", ""])
def test_a_mac_is_neither_a_pass_nor_a_fault(subtype: str, described: str) -> None:
    mac = ("9c:05:91:00:00:01", subtype, described)
    outputs = hear((A, *mac), (B, *mac))

    judged = lldp.CHECK.judge(outputs, SONIC.model_copy(update={"port_names": NAMES}))

    assert judged.verdict is Verdict.SKIPPED
    assert "a MAC" in judged.findings[0].detail


@pytest.mark.parametrize("described", ["Ethernet4", "text", "Ethernet0"])
def test_an_alias_of_another_port_is_still_a_wrong_cable(described: str) -> None:
    outputs = hear((A, "etp1b", "local", described), (B, "etp1a", "local", "Ethernet0"))

    judged = lldp.CHECK.judge(outputs, SONIC.model_copy(update={"port_names": NAMES}))

    assert judged.verdict is Verdict.FAIL
    assert "cabled to a port that is su0-n04/NIC_0's" in judged.findings[-1].detail


def test_an_alias_that_is_another_ports_name_is_read_as_the_alias() -> None:
    outputs = hear((A, "Ethernet8", "local", "x"), (B, "etp1a", "local", "Ethernet0"))
    planned = ((A, "Ethernet12"), (B, "Ethernet0"))
    cards = {f"{A}/Ethernet12": "0000:18:00.0", f"{B}/Ethernet0": "0000:40:00.0"}
    context = SONIC.model_copy(
        update={"port_names": NAMES, "neighbours": planned, "cabled_pci": cards}
    )

    assert lldp.CHECK.judge(outputs, context).verdict is Verdict.PASS


def test_a_fault_beside_a_port_that_is_not_known_yet_is_still_a_fault() -> None:
    outputs = hear((A, "etp1b", "local", "x"), (B, "9c:05:91:00:00:02", "mac", "Ethernet0"))

    judged = lldp.CHECK.judge(outputs, SONIC.model_copy(update={"port_names": NAMES}))

    assert judged.verdict is Verdict.FAIL


def test_a_sonic_leafs_table_names_its_ports_by_what_lldpmgrd_sends() -> None:
    rows = {
        "Ethernet0": {"alias": "etp1a"},
        "Ethernet4": {"alias": ""},
        "Ethernet8": {},
        "Ethernet12": {"alias": "twice"},
        "Ethernet16": {"alias": "twice"},
        "Ethernet20": {"alias": 7},
        "Ethernet24": "no row",
    }
    config = {"DEVICE_METADATA": {"localhost": {"hwsku": "SN5600"}}, "PORT": rows}

    platform = config_db.read_platform(config, "MT2401X00001\n")

    assert platform is not None
    assert platform.port_names == {
        "etp1a": "Ethernet0",
        **{name: name for name in ("Ethernet4", "Ethernet8", "Ethernet20", "Ethernet24")},
    }


def test_the_daemon_judges_by_the_names_that_it_read_of_the_leaf() -> None:
    port = Port(switch=A, interface="Ethernet0", rail=0, nic_slot="NIC_0")

    async def main() -> CheckContext:
        store = open_store(":memory:", inline=True)
        node = await store.nodes.add(Node(id="n1", kind=NodeKind.HOST, ports=(port,)))
        await store.nodes.add(Node(id=A, kind=NodeKind.SWITCH))
        leaf = Inventory(node=A, vendor="sonic", port_names=NAMES[A])
        await store.evidence.put_inventory(leaf, 1.0)
        own = Inventory(node="n1", vendor="x")
        found = await judging_context(store, Matrix(releases={}), Settings(), {}, node, own)
        await store.close()
        return found

    assert asyncio.run(main()).port_names == {A: NAMES[A]}
