"""The operating system of a switch: listed, recorded, and opened by its own adapter."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from small_site import SmallSite, play
from virtual_time import VirtualClock

from provisioner.execution.actions.reach import Reach
from provisioner.model.expected import Expected, ExpectedNode
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Reason
from provisioner.planning.intake.pairing import assemble_nodes
from provisioner.ports import Secret, SwitchAddress, SwitchRefused
from provisioner.runtime.switch_systems import make_switches
from provisioner.settings import Settings

SWITCHES = make_switches(None, object())  # type: ignore[arg-type]  # nothing is asked


def opened(url: str, system: str = "") -> str:
    address = SwitchAddress(url, system=system)
    return SWITCHES.open("leaf", address, VirtualClock(), Settings()).facts.name


@pytest.mark.parametrize(
    ("url", "system", "name"),
    [
        ("https://10.0.0.9:8765", "", "cumulus"),  # a row from before systems were recorded
        ("ssh://10.0.0.9", "", "sonic"),
        ("https://10.0.0.9:8765", "cumulus", "cumulus"),
        ("ssh://10.0.0.9", "sonic", "sonic"),
    ],
)
def test_a_switch_is_opened_by_the_adapter_of_its_system(url: str, system: str, name: str) -> None:
    assert opened(url, system) == name


@pytest.mark.parametrize(
    ("url", "system", "words"),
    [
        ("https://10.0.0.9", "junos", "known are: cumulus, sonic"),
        ("telnet://10.0.0.9", "", "known are: cumulus, sonic"),
        ("https://10.0.0.9", "sonic", "begin with ssh://"),
    ],
)
def test_a_switch_that_no_adapter_speaks_to_is_refused(url: str, system: str, words: str) -> None:
    with pytest.raises(SwitchRefused, match=words) as refused:
        opened(url, system)

    assert refused.value.reason is Reason.NOT_OFFERED


def test_a_listed_switch_is_recorded_with_its_system() -> None:
    nodes = (
        ExpectedNode(name="leaf-0", kind=NodeKind.SWITCH, address="https://10.0.0.8"),
        ExpectedNode(name="leaf-1", kind=NodeKind.SWITCH, address="ssh://10.0.0.9", os="sonic"),
    )

    paired = assemble_nodes(Expected(nodes=nodes), (), 0.0)

    assert {node.id: node.os for node in paired.nodes} == {"leaf-0": "cumulus", "leaf-1": "sonic"}


def test_only_a_system_with_a_stored_login_is_asked_for_one() -> None:
    class Logins:
        async def current(self, _name: str) -> tuple[str, Secret]:
            return "admin", Secret("x")

    reach = Reach(None, SWITCHES, Logins())  # type: ignore[arg-type]
    keyed = Node(id="leaf-1", kind=NodeKind.SWITCH, address="ssh://10.0.0.9", os="sonic")
    stored = Node(id="leaf-0", kind=NodeKind.SWITCH, address="https://10.0.0.8", os="cumulus")

    assert asyncio.run(reach.switch(keyed)) == SwitchAddress("ssh://10.0.0.9", system="sonic")
    assert asyncio.run(reach.switch(stored)) == SwitchAddress(
        "https://10.0.0.8", "admin", Secret("x"), system="cumulus"
    )


def test_a_switch_of_an_unknown_system_is_refused_when_it_is_opened() -> None:
    async def scenario(site: SmallSite) -> Any:
        strange = Node(id="leaf-2", kind=NodeKind.SWITCH, address="https://10.0.0.7", os="junos")
        await site.store.nodes.add(strange)
        port = site.ports()[0].model_copy(update={"switch": "leaf-2"})
        return await site.tenancy.read((port,))

    blocker = play(scenario)

    assert (blocker.reason, blocker.subject) == (Reason.NOT_OFFERED, "leaf-2")
    assert "known are: cumulus, sonic" in blocker.detail


def test_only_ports_of_the_front_panel_are_physical() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp1", "RED")
        for tree in (site.switch.applied, site.switch.startup, site.switch.operational):
            tree["interface"]["vlan10"] = {"ip": {"vrf": "RED"}}
        return await site.leaf().tenant_ports({"", "default", "mgmt", "MAINT"})

    assert {name: port.physical for name, port in play(scenario).items()} == {
        "swp1": True,
        "vlan10": False,
    }
