"""A site's list and overlay are proposed from what its devices show, and nothing is invented."""

from __future__ import annotations

import pytest
import yaml

from provisioner.daemon.data import read_matrix
from provisioner.integrations.site_proposal.proposal import (
    Proposal,
    Seen,
    SeenHost,
    SeenSwitch,
    check_pattern,
    draft_site,
    fit_release,
    guess_place,
    propose,
    suggest_release,
    write_list,
)
from provisioner.model.expected import Expected
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Component, Device, DeviceKind, Inventory
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.switch import Heard
from provisioner.planning.intake import expected_text
from provisioner.planning.matrix.matrix_text import parse_located
from provisioner.runtime.shipped import find_shipped
from provisioner.runtime.switch_systems import find_switch_systems

BIOS = "BIOS Date: 08/04/2023 Ver 1.4"
MAC = "5c:25:73:00:00:0{}"


def card(slot: str, model: str = "BlueField-3 SuperNIC", serial: str | None = "MT1") -> Device:
    return Device(kind=DeviceKind.DPU, slot=slot, model=model, serial=serial)


def host(number: int, cards: tuple[Device, ...] = (), **more: object) -> SeenHost:
    inventory = Inventory(
        node="", vendor="supermicro", system_serial=f"S{number}", devices=cards, **more
    )
    url = f"https://10.0.0.{number}"
    return SeenHost(
        url=url, vendor="supermicro", inventory=inventory, macs={MAC.format(number): "NIC_0"}
    )


def leaf(number: int, name: str = "", **ports: Heard) -> SeenSwitch:
    return SeenSwitch(
        address=f"https://10.0.1.{number}:8765",
        username="cumulus",
        hostname=name or f"leaf{number}",
        serial=f"L{number}",
        heard={port: frozenset([heard]) for port, heard in ports.items()},
    )


def read(proposal: Proposal) -> Expected:
    return expected_text.parse("expected.yaml", write_list(proposal))


def seen(*hosts: SeenHost, switches: tuple[SeenSwitch, ...] = (), **more: object) -> Seen:
    vendors = {h.url: h.vendor for h in hosts}
    new = frozenset(system.facts.factory_hostname for system in find_switch_systems())
    return Seen(hosts=hosts, switches=switches, vendor_of=vendors, factory_hostnames=new, **more)


def test_a_host_has_the_name_and_the_ports_that_switches_hear_from_its_card() -> None:
    heard = Heard("su1-n07", "enp26s0np0", MAC.format(1))
    around = (leaf(1, swp4s1=heard), leaf(2, "leaf1", swp1=Heard("spine", "swp1", "")))

    proposal = propose(seen(host(1, (card("NIC_0"),)), switches=around), "fra1", "r")

    listed = read(proposal)
    (node, *_) = listed.nodes
    assert (node.name, node.bmc.serial, node.location.scalable_unit, node.location.index) == (
        "su1-n07",
        "S1",
        1,
        7,
    )
    (port,) = node.ports
    assert (port.interface, port.nic_slot, port.rail) == ("swp4s1", "NIC_0", 0)
    assert {n.name for n in listed.nodes[1:]} == {"leaf-0", "spine-0"}  # two call themselves leaf1


@pytest.mark.parametrize("system", ["", "localhost", "Cumulus", "sonic", "no name", "-x", "a" * 64])
def test_what_is_no_name_of_a_node_names_none(system: str) -> None:
    around = (leaf(1, swp1=Heard(system, "p", MAC.format(1))),)

    proposal = propose(seen(host(1), switches=around), "s", "r")

    assert proposal.names == {"https://10.0.0.1": "n000"}


def test_two_hosts_that_are_heard_by_one_name_are_named_by_their_order() -> None:
    around = (
        leaf(1, swp1=Heard("ubuntu", "p", MAC.format(1)), swp2=Heard("ubuntu", "p", MAC.format(2))),
    )

    proposal = propose(seen(host(2), host(1), switches=around), "s", "r", "su{unit}-n{index:02d}")

    assert proposal.names == {"https://10.0.0.1": "su0-n00", "https://10.0.0.2": "su0-n01"}
    assert {len(n.ports) for n in read(proposal).nodes if n.kind == "host"} == {1}


def test_addresses_are_ordered_as_numbers() -> None:
    proposal = propose(seen(*(host(n) for n in (10, 9, 2))), "s", "r")

    assert list(proposal.names) == [f"https://10.0.0.{n}" for n in (2, 9, 10)]


@pytest.mark.parametrize(
    "pattern",
    ["host", "{index", "{0}", "{index!r}", "{index.real}", "{unit}", "-{index}", "{index:>999999}"],
)
def test_a_pattern_that_cannot_name_hosts_is_refused(pattern: str) -> None:
    with pytest.raises(InputError):
        check_pattern(pattern)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("su2-n03", {"scalable_unit": 2, "index": 3}),
        ("r12-n03", {"scalable_unit": 0, "index": 3, "rack": "r12"}),
        ("rack4-host17", {"scalable_unit": 0, "index": 17, "rack": "rack4"}),
        ("gpu", {}),
    ],
)
def test_a_place_is_guessed_from_a_name(name: str, place: dict[str, object]) -> None:
    assert guess_place(name) == place


def test_cards_with_names_of_their_maker_get_the_lists_slots_and_that_is_said() -> None:
    cards = (card("PCIe Slot 10"), card("PCIe Slot 2"), card("Slot9", "BlueField-3 DPU", None))

    proposal = propose(seen(host(1, cards)), "s", "r")

    dpus = read(proposal).nodes[0].dpus
    assert {d.slot for d in dpus} == {"DPU_0", "NIC_0", "NIC_1"}
    assert {d.serial for d in dpus} == {""}  # two show one serial: it names neither
    assert any("NIC_0 is the card that its BMC calls PCIe Slot 2" in g for g in proposal.guesses)
    assert any(m.what == "n000/DPU_0: serial" and "label" in m.where for m in proposal.missing)


def test_what_nothing_shows_is_missing_with_where_it_is_printed() -> None:
    refused = (
        Blocker(reason=Reason.LOGIN_REFUSED, subject="https://10.0.0.8", detail="401", unblock="x"),
        Blocker(reason=Reason.UNKNOWN_VENDOR, subject="https://10.0.0.9", detail="no", unblock="x"),
    )
    all_seen = seen(host(1), refused=refused)
    vendors = {
        **all_seen.vendor_of,
        "https://10.0.0.8": "dell_idrac",
        "https://10.0.0.9": "hpe_ilo",
    }

    proposal = propose(all_seen.model_copy(update={"vendor_of": vendors}), "s", "r")

    where = {m.what: m.where for m in proposal.missing}
    assert "pull-out information tag" in where["login of https://10.0.0.8"]
    assert "export FACTORY_HPE_ILO=" in where["login of https://10.0.0.9"]
    assert "DHCP" in where["n000: address"]
    assert {"n000: ports", "n000: dpus", "n000: location.rack"} <= set(where)
    assert "# missing: n000: ports" in write_list(proposal)


def test_a_card_that_no_switch_hears_is_missing_its_port() -> None:
    cards = (card("NIC_0"), card("NIC_1", serial="MT2"), card("NIC_2", serial="MT3"))
    near = leaf(1, swp1=Heard("n1", "eth0", MAC.format(1)))

    missing = propose(seen(host(1, cards), switches=(near,)), "s", "r").missing

    (unheard,) = [m for m in missing if "port of" in m.what]
    assert unheard.what.endswith("port of NIC_1, NIC_2")
    assert "--switches" in unheard.where


def test_no_password_is_ever_in_the_text() -> None:
    switch = leaf(1).model_copy(update={"refusal": "refused"})
    text = write_list(propose(seen(host(1), switches=(switch,)), "s", "r"))

    assert "password:" not in text
    assert yaml.safe_load(text)["factory_credentials"]["supermicro"] == {
        "username": "ADMIN",
        "password_env": "FACTORY_SUPERMICRO",
    }


def test_text_of_a_device_cannot_leave_its_remark() -> None:
    evil = "x\nnodes: []\r- name: y\x1b[2J"
    text = write_list(propose(seen(host(1, (card(evil),))), "s\n", "r"))

    assert len(yaml.safe_load(text)["nodes"]) == 1
    assert "\x1b" not in text


def test_an_earlier_list_keeps_its_entries_names_and_logins() -> None:
    earlier = expected_text.parse(
        "e",
        "site: s\nfactory_credentials: {supermicro: {username: own, password_file: f}}\n"
        "nodes:\n- {name: mine, kind: host, bmc: {serial: S1}, location: {rack: r7}}\n"
        "- {name: gone, kind: host, bmc: {serial: S99}}\n"
        "- {name: l1, kind: switch, address: 'https://h', username: u, password: secret}\n"
        "tenants: [{name: red, vrf: RED, l3vni: 4001}]\n",
    )

    proposal = propose(seen(host(1), host(2)), "s", "r", "", earlier)

    listed = read(proposal)
    assert {n.name for n in listed.nodes} == {"mine", "gone", "l1", "n000"}
    assert next(n for n in listed.nodes if n.name == "mine").location.rack == "r7"
    assert listed.factory_credentials["supermicro"].password_file == "f"
    assert listed.tenants[0].name == "red"
    assert "secret" not in write_list(proposal)


def test_unknown_pins_get_the_versions_found_and_the_others_are_named() -> None:
    path = find_shipped("firmware_matrix.yaml")
    matrix, located = parse_located([(str(path), path.read_text())])
    gpus = tuple(
        Device(kind=DeviceKind.GPU, slot=f"GPU_SXM_{n}", model="H100 80GB HBM3") for n in range(8)
    )
    nodes = [
        Inventory(
            node=name,
            vendor="supermicro",
            model="SYS-821GE-TNHR",
            devices=gpus,
            components=(
                Component(kind="host.bmc", slot="BMC", version=bmc, source=""),
                Component(kind="host.bios", slot="BIOS", version=BIOS, source=""),
            ),
        )
        for name, bmc in (("a", "11.01.01"), ("b", "11.02.00"))
    ]
    fit = fit_release(matrix, "spectrum-x-1.3.0", nodes)
    if fit.unfit:
        pytest.fail(str(fit.unfit))

    text, missing = draft_site(matrix, located, fit, nodes, "2026-11-29")

    pins = yaml.safe_load(text)["releases"]["spectrum-x-1.3.0"]["profiles"][fit.profiles["a"]][
        "pins"
    ]
    assert pins["host.bios"]["version"] == BIOS
    assert "host.bmc" not in pins  # two versions run: which one is right, nobody knows
    assert any(m.what.endswith("version of host.bmc") for m in missing)
    result, _ = parse_located([(str(path), path.read_text()), ("site.yaml", text)])
    assert result.releases["spectrum-x-1.3.0"].profiles[fit.profiles["a"]].pins["host.bios"].known


def test_without_a_wish_the_release_is_the_one_that_most_parts_run() -> None:
    matrix = read_matrix([find_shipped("firmware_matrix.yaml")])
    pins = matrix.releases["spectrum-x-1.2.0"].profiles["hgx-h100-bf3"].pins
    older = Inventory(
        node="a",
        vendor="supermicro",
        devices=tuple(
            Device(kind=DeviceKind.GPU, slot=f"GPU_SXM_{n}", model="H100 80GB HBM3")
            for n in range(8)
        ),
        components=tuple(
            Component(kind=kind, slot=kind, version=pin.version, source="")
            for kind, pin in pins.items()
            if pin.known
        ),
    )

    assert suggest_release(matrix, [older]).release == "spectrum-x-1.2.0"


def test_what_two_parts_claim_is_given_to_neither() -> None:
    cards = (card("NIC_0", serial="A"), Device(kind=DeviceKind.DPU, slot="NIC_1", mac="?", pci="1"))
    heard = frozenset([Heard("a", "p", MAC.format(1)), Heard("b", "p", MAC.format(2))])
    switch = leaf(1).model_copy(update={"heard": {"swp1": heard}})
    twin = host(2).model_copy(update={"inventory": host(1).inventory})

    proposal = propose(seen(host(1, cards), twin, switches=(switch,)), "s", "r")

    listed = read(proposal)
    assert [n.bmc.serial for n in listed.nodes[:2]] == ["", ""]
    assert [n.ports for n in listed.nodes[:2]] == [(), ()]
    told = {m.what for m in proposal.missing}
    assert {"a: leaf1/swp1", "b: leaf1/swp1", "a/NIC_1: base_mac", "a/NIC_1: pci"} <= told
