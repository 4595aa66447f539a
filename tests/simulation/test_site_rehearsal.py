"""A site's own files rehearsed on a twin of it: their contradictions show before anything is real.

The twin has other names, ports and serials than the simulator's reference site.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from provisioner.daemon.data import read_matrix
from provisioner.execution.observe.intake import Secrets
from provisioner.integrations.twin.loop import run
from provisioner.integrations.twin.site_twin import (
    Rehearsed,
    SiteFiles,
    SiteTwin,
    list_unsimulated,
    plan_site,
    select_hosts,
)
from provisioner.model.expected import Expected
from provisioner.model.input_error import InputError
from provisioner.model.node import State
from provisioner.model.outcome import Reason
from provisioner.ports import Secret
from provisioner.runtime.shipped import find_shipped
from provisioner.settings import Settings

LOGIN = {"username": "root", "password_env": "X"}
CARDS = [
    {"slot": slot, "serial": f"MT{number}", "base_mac": f"5c:25:73:00:00:{number:02x}"}
    for number, slot in enumerate([*(f"NIC_{n}" for n in range(8)), "DPU_0", "DPU_1"])
]


def site(**more: Any) -> dict[str, Any]:
    """One host with eight rails at two leaves with names and ports of their own."""
    ports = [
        {
            "rail": rail,
            "switch": f"tor-{'ab'[rail % 2]}",
            "interface": f"swp{40 + rail}",
            "nic_slot": f"NIC_{rail}",
            "address": f"10.9.{rail}.1/31",
        }
        for rail in range(8)
    ]
    host = {
        "name": "gpu-a17",
        "kind": "host",
        "bmc": {"serial": "OWN17", "url": "https://10.0.0.17"},
        "location": {"pod": 3, "scalable_unit": 7, "index": 17, "rack": "r9"},
        "dpus": CARDS,
        "ports": ports,
    }
    switches = [
        {
            "name": name,
            "kind": "switch",
            "address": f"https://{address}:8765",
            "username": "ops",
            "password_env": "X",
        }
        for name, address in (("tor-a", "10.0.1.1"), ("tor-b", "10.0.1.2"), ("core", "10.0.1.9"))
    ]
    credentials = {
        "supermicro": {"username": "ADMIN", "password_env": "X"},
        "nvidia_openbmc": {"username": "root", "password_env": "X"},
    }
    return {
        "site": "fra1",
        "release": "spectrum-x-1.2.0",
        "factory_credentials": credentials,
        "nodes": [{**host, **more}, *switches],
        "tenants": [{"name": "acme", "vrf": "ACME", "l3vni": 4001, "nodes_wanted": 1}],
    }


def files(listed: dict[str, Any], *, production: bool = False) -> SiteFiles:
    expected = Expected.model_validate(listed, strict=False)
    secrets = Secrets(
        factory={
            vendor: (login.username, Secret(f"Factory-of-{vendor}"))
            for vendor, login in expected.factory_credentials.items()
        },
        switches={
            n.name: (n.username, Secret("Of-this-site-1")) for n in expected.nodes if n.username
        },
    )
    matrix = read_matrix([find_shipped("firmware_matrix.yaml")])
    return SiteFiles(expected, secrets, matrix, Settings(production=production), {})


def rehearse(given: SiteFiles, folder: Path) -> Rehearsed:
    async def work() -> Rehearsed:
        twin = SiteTwin(given, folder)
        try:
            return await twin.rehearse(lambda _nodes, _spent: None)
        finally:
            await twin.close()

    return run(work())


@pytest.mark.long
def test_a_right_list_ends_with_its_node_at_its_tenant(tmp_path: Path) -> None:
    found = rehearse(files(site()), tmp_path)

    assert {n.id: (n.state, n.tenant) for n in found.nodes}["gpu-a17"] == (State.RELEASED, "acme")
    assert found.refused == ()
    assert found.violations == ()
    assert found.good


@pytest.mark.long
def test_pins_that_production_wants_are_named_with_their_remedies(tmp_path: Path) -> None:
    found = rehearse(files(site(), production=True), tmp_path)

    (host,) = [n for n in found.nodes if n.id == "gpu-a17"]
    assert host.state is State.QUARANTINED
    assert {b.reason for b in host.blockers} == {Reason.UNKNOWN_PIN}
    assert all(b.unblock for b in host.blockers)
    assert not found.good


@pytest.mark.long
def test_a_card_that_the_list_cannot_tell_is_refused_as_an_intake_refuses_it(
    tmp_path: Path,
) -> None:
    nameless = [{**CARDS[0], "serial": "", "base_mac": ""}, *CARDS[1:]]

    found = rehearse(files(site(dpus=nameless)), tmp_path)

    assert [n.id for n in found.nodes if n.id == "gpu-a17"] == []
    assert any("NIC_0" in str(b) for b in found.refused)
    assert not found.good


def test_the_twin_has_the_lists_names_serials_ports_and_logins(tmp_path: Path) -> None:
    twin = SiteTwin(files(site(dpus=CARDS[:3])), tmp_path)

    machine = twin.site.machines["gpu-a17"]
    assert machine.bmcs["host"].serial == machine.host.serial == "OWN17"
    assert sorted(machine.bluefields) == ["NIC_0", "NIC_1", "NIC_2"]
    assert machine.devices["NIC_2"].serial == machine.bmcs["NIC_2"].serial == "MT2"
    assert machine.bmcs["NIC_2"].password == "Factory-of-nvidia_openbmc"
    assert twin.site.switches["tor-b"].username == "ops"
    assert twin.site.switches["tor-b"].password == "Of-this-site-1"
    assert twin.site.switches["tor-b"].neighbours["swp41"].system == "gpu-a17"
    assert twin.services.keys() >= {"https://10.0.0.17"}


def test_uplinks_of_the_twin_take_no_port_of_the_list() -> None:
    plan = plan_site(files(site()).expected)

    assert plan.first_uplink == 48
    assert (set(plan.leaves), plan.spines) == ({"tor-a", "tor-b"}, ("core",))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"release": "spectrum-x-9"}, "no such release"),
        ({"release": ""}, "names no release"),
        ({"nodes": []}, "no host"),
        ({"factory_credentials": {}}, "one vendor"),
        ({"factory_credentials": {"hpe_ilo": LOGIN, "dell_idrac": LOGIN}}, "one vendor"),
    ],
)
def test_a_list_that_no_twin_can_have_is_refused_with_the_reason(
    change: dict[str, Any], word: str, tmp_path: Path
) -> None:
    given = files(site() | change)

    def build() -> None:
        chosen = select_hosts(given.expected, 4)
        SiteTwin(dataclasses.replace(given, expected=chosen), tmp_path)

    with pytest.raises(InputError, match=word):
        build()


def test_a_slot_that_the_twin_lacks_is_refused_by_name(tmp_path: Path) -> None:
    cards = [*CARDS, {"slot": "NIC_9", "serial": "MT99"}]

    with pytest.raises(InputError, match="NIC_9"):
        SiteTwin(files(site(dpus=cards)), tmp_path)


def test_what_the_twin_lacks_is_said() -> None:
    listed = site()
    listed["nodes"][1] |= {"os": "sonic", "address": "ssh://10.0.1.1"}

    assert "tor-a" in list_unsimulated(files(listed).expected)[0]
