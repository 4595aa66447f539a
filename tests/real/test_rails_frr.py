"""A host's rails in the kernel: real iproute2 and our module, leaves and a spine of FRRouting.

Two hosts with two rails each and a management network that answers every address, as the default
route of a data centre does. The check's own line says what the kernel does with them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from frr_boxes import Box, Router, cable, why_not
from frr_probes import pings

from provisioner.checks import rail_routes
from provisioner.checks.context import build_context
from provisioner.model.cohort import CheckResult, Evidence, Verdict
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.location import Port
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind
from provisioner.planning.certification.host_settings import list_rail_links, write_netplan
from provisioner.settings import Settings

COLLECTIONS = Path(__file__).parents[2] / "ansible" / "collections"
MODULES = COLLECTIONS / "ansible_collections" / "provisioner" / "fleet" / "plugins" / "modules"
RAILS = (0, 1)
FULL = 8972  # bytes of payload of a frame of 9,000

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]


def leaf_end(host: int, rail: int) -> str:
    return f"172.{32 * rail}.0.{2 * host + 1}"


def mac(host: int, rail: int) -> str:
    return f"02:00:00:00:0{host}:0{rail}"


def node(host: int) -> Node:
    ports = tuple(
        Port(
            switch=f"leaf{r}",
            interface=f"swp{host}",
            rail=r,
            nic_slot=f"NIC_{r}",
            address=f"{leaf_end(host, r)}/31",
        )
        for r in RAILS
    )
    return Node(id=f"h{host}", kind=NodeKind.HOST, ports=ports)


def inventory(host: int) -> Inventory:
    cards = tuple(Device(kind=DeviceKind.NIC, slot=f"NIC_{r}", mac=mac(host, r)) for r in RAILS)
    return Inventory(node=f"h{host}", vendor="", devices=cards)


class Lab:
    """Two leaves, a spine, a management network, and two hosts as an installer leaves them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spine = Router("spine", folder / "spine")
        self.leaves = [Router(f"leaf{r}", folder / f"leaf{r}") for r in RAILS]
        self.management = Box("management", folder / "management")
        self.hosts = [Box(f"h{h}", folder / f"h{h}") for h in (0, 1)]
        self.boxes = [*self.hosts, self.management, *self.leaves, self.spine]
        for r, leaf in enumerate(self.leaves):
            cable(leaf, "up0", self.spine, f"down{r}")
            leaf.ip(f"address add 10.9.{r}.0/31 dev up0")
            self.spine.ip(f"address add 10.9.{r}.1/31 dev down{r}")
            _peer(leaf, 65001 + r, [(f"10.9.{r}.1", 65100)])
        _peer(self.spine, 65100, [(f"10.9.{r}.0", 65001 + r) for r in RAILS])
        self.management.ip("address add 10.0.0.254/24 dev lo")
        for h, host in enumerate(self.hosts):
            cable(host, "eno1", self.management, f"eno{h}", mtu=1500)
            host.ip(f"address add 10.{h}.0.1/24 dev eno1", f"route add default via 10.{h}.0.254")
            self.management.ip(f"address add 10.{h}.0.254/24 dev eno{h}")
            for r, leaf in enumerate(self.leaves):
                cable(leaf, f"swp{h}", host, f"enp{r}s0", mtu=9216)
                leaf.ip(f"address add {leaf_end(h, r)}/31 dev swp{h}")
                host.ip(
                    f"link set enp{r}s0 address {mac(h, r)}",
                    f"link set enp{r}s0 mtu 1500",
                )

    def configure(self, host: int, *, check: bool = False, **settings: Any) -> dict[str, Any]:
        """Run the module on a host, with what the daemon plans for it; its result."""
        links = list_rail_links(node(host), inventory(host), Settings(**settings))
        tools = self.folder / "tools"
        tools.mkdir(exist_ok=True)
        (tools / "netplan").write_text('#!/bin/sh\n[ "$1" = generate ]\n')
        (tools / "netplan").chmod(0o755)
        arguments = {
            "rails": [link.model_dump(mode="json") for link in links],
            "netplan": write_netplan(links),
            "file": str(self.folder / f"h{host}.yaml"),
            "_ansible_check_mode": check,
        }
        file = self.folder / "arguments.json"
        file.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
        path = f"PATH={tools}:{os.environ['PATH']}:/usr/sbin:/sbin"
        words = ["env", path, f"PYTHONPATH={COLLECTIONS}", sys.executable]
        printed = self.hosts[host].run(*words, f"{MODULES}/host_rails.py", str(file), check=False)
        result: dict[str, Any] = json.loads(printed)
        return result

    def judge(self, host: int) -> CheckResult:
        """The verdict of the check, by its own line in the host."""
        context = build_context(node(host), inventory(host), Matrix(releases={}))
        (command,) = rail_routes.CHECK.commands_of(context)
        text = self.hosts[host].run("sh", "-c", command.line)
        evidence = {command.name: Evidence(source=command.line, exit_code=0, text=text)}
        return rail_routes.CHECK.judge(evidence, context)


def _peer(router: Router, asn: int, peers: list[tuple[str, int]]) -> None:
    lines = [f"router bgp {asn}", f"bgp router-id 10.240.0.{asn % 100 + 1}", "timers bgp 1 3"]
    for address, other in peers:
        lines += [f"neighbor {address} remote-as {other}", f"neighbor {address} timers connect 1"]
    lines += ["address-family ipv4 unicast", "redistribute connected", "exit-address-family"]
    router.configure("bgpd", lines)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    built = Lab(tmp_path_factory.mktemp("rails"))
    yield built
    for box in built.boxes:
        box.stop()


def test_every_rail_reaches_the_other_leaf_by_its_own_interface(lab: Lab) -> None:
    bare = lab.judge(0)
    for r in RAILS:  # the configuration of the first boot as it was: addresses alone
        own = leaf_end(0, r).rpartition(".")[0] + ".0"
        lab.hosts[0].ip(f"address add {own}/31 dev enp{r}s0")
    astray = lab.judge(0)
    tried = lab.configure(0, check=True)
    unchanged = lab.judge(0)
    first = [lab.configure(h) for h in (0, 1)]
    again = lab.configure(0)
    across = [
        (lab.hosts[0], f"172.{32 * a}.0.0", f"172.{32 * b}.0.2") for a in RAILS for b in RAILS
    ]

    assert [f.detail for f in bare.findings] == ["no interface has the rail's planned address"] * 2
    assert [(f.measured, f.wanted) for f in astray.findings] == [
        ("enp1s0", "enp0s0"),
        ("enp0s0", "enp1s0"),
    ]
    assert tried["changed"]
    assert unchanged.findings == astray.findings
    assert [r.get("msg", "") for r in first] == ["", ""]
    assert first[0]["interfaces"] == {"0": "enp0s0", "1": "enp1s0"}
    assert (again["changed"], again["missing"]) == (False, [])
    assert all(pings(across, size=FULL, patience_s=20.0))
    assert [lab.judge(h).verdict for h in (0, 1)] == [Verdict.PASS] * 2
    assert [lab.judge(h).findings for h in (0, 1)] == [(), ()]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("rule delete priority 3000", "leave by another interface"),
        ("link set enp0s0 mtu 1500", "no echo of 9000 bytes"),
        ("route flush table 100", "leave by another interface"),
        ("address delete 172.0.0.0/31 dev enp0s0", "no interface has"),
    ],
)
def test_what_drifts_is_named_and_set_again(lab: Lab, damage: str, words: str) -> None:
    lab.configure(0)
    lab.hosts[0].ip(damage)

    drifted = lab.judge(0)
    repaired = lab.configure(0)

    assert words in drifted.findings[0].detail
    assert repaired["missing"]
    assert lab.judge(0).findings == ()


def test_traffic_without_an_address_takes_its_own_rail_where_networks_are_per_rail(
    lab: Lab,
) -> None:
    lab.configure(1, rail_networks=("172.0.0.0/11", "172.32.0.0/11"))

    shown = lab.hosts[1].run("ip", "route", "get", "172.32.0.0")

    assert " dev enp1s0 " in shown


def test_a_rail_without_its_card_is_refused_by_name(lab: Lab) -> None:
    lab.hosts[1].ip("link set enp1s0 address 02:00:00:00:0f:0f")
    try:
        result = lab.configure(1)
    finally:
        lab.hosts[1].ip(f"link set enp1s0 address {mac(1, 1)}")

    assert result["msg"] == f"rail 1: no interfaces have {mac(1, 1)}"
