"""The simulated site as a whole: names, cables, lists, and what it starts with."""

from __future__ import annotations

import json

import pytest

from provisioner.integrations.sim.hardware.clock import HandClock, Place, list_places
from provisioner.integrations.sim.site.site import Site


@pytest.fixture(scope="module")
def site() -> Site:
    return Site(nodes=40, clock=HandClock())


def test_a_site_has_a_leaf_per_rail_in_each_unit_and_four_spines(site: Site) -> None:
    description = site.describe()

    assert (description["nodes"], description["scalable_units"]) == (40, 2)
    assert len(description["leaves"]) == 16
    assert description["spines"] == ["spine-0", "spine-1", "spine-2", "spine-3"]
    assert len(next(iter(site.machines.values())).bmcs) == 11


def test_names_ports_and_addresses_follow_from_the_place() -> None:
    place = Place(unit=1, number=9)

    assert (place.node, place.rack, place.interface) == ("su1-n09", "su1-rack2", "swp5s1")
    assert place.name_leaf(7) == "leaf-su1-r7"
    assert place.get_addresses(7) == ("172.224.1.18/31", "172.224.1.19/31")


def test_no_two_cables_share_a_port_or_an_address() -> None:
    ports = [(p.name_leaf(r), p.interface) for p in list_places(100) for r in range(8)]
    addresses = [a for p in list_places(100) for r in range(8) for a in p.get_addresses(r)]

    assert len(set(ports)) == len(ports) == 800
    assert len(set(addresses)) == len(addresses) == 1600


def test_the_expected_list_names_what_is_really_there(site: Site) -> None:
    expected = json.loads(json.dumps(site.build_expected()))
    hosts = [n for n in expected["nodes"] if n["kind"] == "host"]
    switches = [n for n in expected["nodes"] if n["kind"] == "switch"]

    assert (len(hosts), len(switches)) == (40, 20)
    for node in hosts:
        machine = site.machines[node["name"]]
        assert node["bmc"]["serial"] == machine.bmcs["host"].serial
        assert [d["slot"] for d in node["dpus"]] == list(machine.bluefields)
        for port in node["ports"]:
            applied = site.switches[port["switch"]].applied["interface"][port["interface"]]
            assert port["address"] in applied["ip"]["address"]


def test_the_factory_credentials_open_every_bmc(site: Site) -> None:
    factory = site.build_expected()["factory_credentials"]

    for machine in site.machines.values():
        for bmc in machine.bmcs.values():
            assert factory[bmc.vendor] == {"username": bmc.username, "password": bmc.password}


def test_serials_and_addresses_are_unique(site: Site) -> None:
    devices = [d for m in site.machines.values() for d in m.devices.values()]
    serials = [d.serial for d in devices if d.serial]
    macs = [b.mac for m in site.machines.values() for b in m.bmcs.values()]

    assert len(set(serials)) == len(serials)
    assert len(set(macs)) == len(macs)


def test_every_node_starts_at_the_older_release_and_outside_every_vrf(site: Site) -> None:
    for machine in site.machines.values():
        assert machine.host.packages["host.doca"] == "2.9.0-0.4.7"
        assert machine.firmware["NIC_0", "DPU_NIC"].running == "32.43.1014"
    for switch in site.switches.values():
        assert switch.version == "5.11.0.0026"
        assert {switch.get_vrf(name) for name in switch.applied["interface"]} <= {"default", "mgmt"}


def test_the_same_seed_builds_the_same_site() -> None:
    one, same, other = (
        json.dumps(Site(nodes=2, seed=seed, clock=HandClock()).build_expected())
        for seed in (1, 1, 2)
    )

    assert one == same != other


def test_no_two_interfaces_of_a_large_site_have_one_address() -> None:
    site = Site(512, 0)  # some 10,000 of 2 ** 24: drawn blindly, three pairs would be alike

    told = [bmc.mac for machine in site.machines.values() for bmc in machine.bmcs.values()]
    told += [d.mac for m in site.machines.values() for d in m.devices.values() if d.mac]

    assert len(set(told)) == len(told) > 10_000
