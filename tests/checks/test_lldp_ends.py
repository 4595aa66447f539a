"""Swapped cables are named with both true ends, and with the plugs to move."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from provisioner.checks import lldp
from provisioner.checks.check import CheckContext
from provisioner.execution.validate.judging import judging_context
from provisioner.model.health import Evidence, Finding
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
