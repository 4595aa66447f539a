"""Cables by the MACs that leaves learned: what is named while LLDP is silent, and what is not."""

from __future__ import annotations

from collections.abc import Mapping

from test_release_cables import CARDS, HERE, KNOWN, PARTS, THERE

from provisioner.checks.cabling import CableFault, End
from provisioner.checks.lldp import Ends
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.planning.release import release_cables
from provisioner.planning.release import release_cables as mac_cables

SILENT = Ends(CARDS, ())


def mac(node: str, rail: int, port: int = 0) -> str:
    return f"94:6d:ae:0{rail}:0{node[1]}:0{port}"


def list_cards() -> list[tuple[str, End]]:
    cards: list[tuple[str, End]] = []
    for node in (HERE, THERE):
        devices = tuple(
            Device(
                kind=DeviceKind.NIC,
                slot=f"NIC_{rail}",
                mac=mac(node.id, rail).upper(),
                macs=(mac(node.id, rail), mac(node.id, rail, 1)),
            )
            for rail in range(3)
        )
        inventory = Inventory(node=node.id, vendor="x", devices=devices)
        cards += mac_cables.list_card_macs(node, inventory)
    return cards


def find(
    learned: Mapping[End, set[str]],
    host: Ends | None = SILENT,
    heard: release_cables.Heard | None = None,
) -> tuple[release_cables.Miscabling, ...]:
    by_mac = mac_cables.find_far_ends(learned, list_cards())
    nodes = [HERE, THERE]
    wrong = release_cables.find_cable_faults(HERE, nodes, PARTS, host, heard or {}, by_mac)
    return release_cables.select_observed_faults(wrong, KNOWN)


def test_only_cabled_cards_count_with_all_their_ports() -> None:
    cards = dict(list_cards())
    assert cards[mac("n1", 1, 1)] == ("n1", "NIC_1")
    assert {slot for _, slot in cards.values()} == {"NIC_0", "NIC_1"}


def test_exchanged_cables_are_named_with_both_true_ends_though_lldp_is_silent() -> None:
    found = find({("leaf0", "swp0"): {mac("n1", 0)}, ("leaf0", "swp1"): {mac("n0", 0)}})

    assert {(f.fault, f.by_mac) for f in found} == {(CableFault.SWAPPED, True)}
    assert "n0/NIC_0 belongs into leaf0/swp1" not in found[0].remedy
    assert "n0/NIC_0 belongs into leaf0/swp0, n1/NIC_0 into leaf0/swp1" in found[0].remedy
    assert "by its MAC; LLDP is silent" in release_cables.make_cable_blockers(found)[0].detail


def test_a_rail_in_the_other_rails_leaf_is_named() -> None:
    found = find({("leaf1", "swp0"): {mac("n0", 0)}, ("leaf0", "swp0"): {mac("n0", 1, 1)}})

    assert {f.fault for f in found} == {CableFault.SWAPPED}


def test_cables_as_planned_and_macs_of_no_card_contradict_nothing() -> None:
    learned = {
        ("leaf0", "swp0"): {mac("n0", 0), "02:00:00:00:00:01"},
        ("leaf1", "swp0"): {mac("n0", 1)},
        ("leaf1", "swp7"): {"02:00:00:00:00:02"},
    }
    assert find(learned) == ()


def test_a_mac_at_two_ports_and_a_port_with_two_cards_are_not_believed() -> None:
    assert find({("leaf0", "swp1"): {mac("n0", 0)}, ("leaf1", "swp1"): {mac("n0", 0)}}) == ()
    assert find({("leaf0", "swp1"): {mac("n0", 0), mac("n1", 0)}}) == ()
    # two ports of one card at two leaves: a plan has no room for that either
    assert find({("leaf0", "swp1"): {mac("n0", 0)}, ("leaf1", "swp1"): {mac("n0", 0, 1)}}) == ()


def test_lldp_of_either_end_comes_before_a_mac() -> None:
    learned = {("leaf0", "swp1"): {mac("n0", 0)}}
    heard = {("leaf0", "swp0"): {("n0", "eth0")}}
    assert [f.by_mac for f in find(learned)] == [True]
    assert find(learned, heard=heard) == ()
    assert find(learned, Ends(CARDS, (("eth0", ("leaf0", "swp0")),))) == ()
