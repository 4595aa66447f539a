"""Both ends of a cable against the plan: what is named, and what is only silence."""

from __future__ import annotations

from provisioner.checks.cabling import CableFault
from provisioner.checks.lldp import Ends
from provisioner.model.inventory import Device, DeviceKind, Inventory
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Reason
from provisioner.model.recovery import RowVerdict
from provisioner.planning.release import release_cables


def node(name: str, number: int) -> Node:
    ports = tuple(
        Port(switch=f"leaf{rail}", interface=f"swp{number}", rail=rail, nic_slot=f"NIC_{rail}")
        for rail in range(2)
    )
    return Node(id=name, kind=NodeKind.HOST, ports=ports)


HERE, THERE = node("n0", 0), node("n1", 1)
KNOWN = ["n0", "n1", "leaf0", "leaf1"]
PARTS = Inventory(
    node="n0",
    vendor="x",
    devices=tuple(
        Device(kind=DeviceKind.NIC, slot=f"NIC_{rail}", pci=f"0000:0{rail}:00.0")
        for rail in range(2)
    ),
)
CARDS = {"eth0": "0000:00:00.0", "eth1": "0000:01:00.0"}
HEARS = Ends(CARDS, (("eth0", ("leaf0", "swp0")), ("eth1", ("leaf1", "swp0"))))
HEARD = {("leaf0", "swp0"): {("n0", "eth0")}, ("leaf1", "swp0"): {("n0", "eth1")}}


def faults(host: Ends | None, heard: release_cables.Heard) -> tuple[release_cables.Miscabling, ...]:
    return release_cables.find_cable_faults(HERE, [HERE, THERE], PARTS, host, heard)


def test_cables_that_are_as_planned_are_heard_at_both_ends() -> None:
    rows = release_cables.judge_cables(HERE, [HERE, THERE], PARTS, HEARS, HEARD)

    assert [(r.verdict, r.seen) for r in rows] == [
        (RowVerdict.PASS, "2 cables confirmed at both ends")
    ]


def test_two_rails_of_one_host_exchanged_are_one_fault_that_names_both_true_ends() -> None:
    host = Ends(CARDS, (("eth0", ("leaf1", "swp0")), ("eth1", ("leaf0", "swp0"))))
    heard = {("leaf0", "swp0"): {("n0", "eth1")}, ("leaf1", "swp0"): {("n0", "eth0")}}

    found = faults(host, heard)

    assert {f.fault for f in found} == {CableFault.SWAPPED}
    assert "n0/NIC_0 belongs into leaf0/swp0, n0/NIC_1 into leaf1/swp0" in found[0].remedy
    assert release_cables.make_cable_blockers(found)[0].reason is Reason.CABLING


def test_a_cable_of_another_node_is_named_by_that_nodes_card() -> None:
    host = Ends(CARDS, (("eth0", ("leaf0", "swp1")), ("eth1", ("leaf1", "swp0"))))
    heard = {**HEARD, ("leaf0", "swp0"): {("n1.example.net", "eth7")}}

    found = faults(host, heard)

    assert [(f.fault, f.at, f.neighbour) for f in found] == [
        (CableFault.SWAPPED, ("n0", "NIC_0"), ("leaf0", "swp1")),
        (CableFault.SWAPPED, ("n1", "NIC_0"), ("leaf0", "swp0")),
    ]
    assert "n0/NIC_0 belongs into leaf0/swp0, n1/NIC_0 into leaf0/swp1" in found[0].remedy


def test_the_leaves_alone_are_enough_to_see_another_node_in_the_port() -> None:
    heard = {**HEARD, ("leaf0", "swp0"): {("n1", "eth7")}}

    found = release_cables.select_observed_faults(faults(None, heard), KNOWN)

    assert [(f.at, f.neighbour) for f in found] == [(("n1", "NIC_0"), ("leaf0", "swp0"))]


def test_silence_contradicts_nothing_at_intake_and_is_no_proof_at_a_release() -> None:
    mute = Ends(CARDS, ())

    assert release_cables.select_observed_faults(faults(mute, {}), KNOWN) == ()
    assert release_cables.select_observed_faults(faults(None, HEARD), KNOWN) == ()
    assert {r.verdict for r in release_cables.judge_cables(HERE, [HERE], PARTS, mute, {})} == {
        RowVerdict.FAIL
    }
    unasked = release_cables.judge_cables(HERE, [HERE], PARTS, None, HEARD)
    assert [r.verdict for r in unasked] == [RowVerdict.UNKNOWN]


def test_whoever_calls_itself_something_else_may_still_be_taken_in() -> None:
    heard = {("leaf0", "swp0"): {("localhost", "eth0")}, ("leaf1", "swp0"): {("", "")}}

    assert release_cables.select_observed_faults(faults(None, heard), KNOWN) == ()


def test_one_end_that_is_silent_is_told_of() -> None:
    one = Ends(CARDS, HEARS.neighbours[:1])

    found = faults(one, {("leaf0", "swp0"): HEARD["leaf0", "swp0"]})

    assert [(f.fault, f.at) for f in found] == [(CableFault.MISSING, ("n0", "NIC_1"))]
    only_host = faults(HEARS, {("leaf0", "swp0"): HEARD["leaf0", "swp0"]})
    assert [(f.fault, f.at) for f in only_host] == [(CableFault.ONE_SIDED, ("leaf1", "swp0"))]
