"""Which BMC is which node's, as a table of sentences: what cannot be placed is named."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

import pytest

from provisioner.model.expected import Expected, ExpectedBmc, ExpectedDpu, ExpectedNode
from provisioner.model.node import NodeKind, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.intake.pairing import (
    Endpoint,
    assemble_nodes,
    find_missing_cards,
    foresee_intake,
    name_causes,
)

NOW = 1_790_000_000.0


def host(name: str = "n0", dpus: Sequence[ExpectedDpu] = (), **bmc: str) -> ExpectedNode:
    return ExpectedNode(name=name, kind=NodeKind.HOST, bmc=ExpectedBmc(**bmc), dpus=tuple(dpus))


def bmc(url: str, serial: str = "", **more: str) -> Endpoint:
    return Endpoint(url=f"https://{url}", vendor="supermicro", kind="host", serial=serial, **more)


def card(url: str, serial: str = "", base_mac: str = "") -> Endpoint:
    return Endpoint(
        url=f"https://{url}", vendor="nvidia_openbmc", kind="dpu", serial=serial, base_mac=base_mac
    )


DPU = ExpectedDpu(slot="DPU_0", serial="MT1", base_mac="5C:25:73:00:00:01", pci="0000:06:00.0")
NIC = ExpectedDpu(slot="NIC_3", serial="MT2")

# sentence: (the list, what was found, {node: {BMC's name: host of its URL}}, [(reason, subject)])
Case = tuple[
    list[ExpectedNode], list[Endpoint], dict[str, dict[str, str]], list[tuple[Reason, str]]
]
CASES: dict[str, Case] = {
    "a host is found by its serial, wherever it answers": (
        [host(serial="S1", url="https://moved")],
        [bmc("a", "S1")],
        {"n0": {"host": "a"}},
        [],
    ),
    "a host without a serial on the list is found by its MAC, in either case": (
        [host(mac="7C:C2:55:00:00:01")],
        [bmc("a", "S1", mac="7c:c2:55:00:00:01")],
        {"n0": {"host": "a"}},
        [],
    ),
    "a host with neither is found by its address": (
        [host(url="https://a/")],
        [bmc("a", "S1")],
        {"n0": {"host": "a"}},
        [],
    ),
    "another serial at the right address is not the host": (
        [host(serial="S1", url="https://a")],
        [bmc("a", "S2")],
        {},
        [(Reason.UNREACHABLE, "n0"), (Reason.NOT_EXPECTED, "https://a")],
    ),
    "another MAC at the right address is not the host": (
        [host(mac="7c:c2:55:00:00:01", url="https://a")],
        [bmc("a", mac="7c:c2:55:00:00:02")],
        {},
        [(Reason.UNREACHABLE, "n0"), (Reason.NOT_EXPECTED, "https://a")],
    ),
    "two BMCs with one serial are both left alone": (
        [host(serial="S1")],
        [bmc("a", "S1"), bmc("b", "S1")],
        {},
        [(Reason.DUPLICATE, "n0")],
    ),
    "a BMC that two nodes claim is neither's": (
        [host("n0", serial="S1"), host("n1", url="https://a")],
        [bmc("a", "S1")],
        {},
        [(Reason.DUPLICATE, "n0"), (Reason.DUPLICATE, "n1")],
    ),
    "a stranger is named and left alone": (
        [host(serial="S1")],
        [bmc("a", "S1"), bmc("b", "S9"), card("c", "MT9")],
        {"n0": {"host": "a"}},
        [(Reason.NOT_EXPECTED, "https://b"), (Reason.NOT_EXPECTED, "https://c")],
    ),
    "a host that is not there is named": (
        [host(serial="S1")],
        [],
        {},
        [(Reason.UNREACHABLE, "n0")],
    ),
    "a host with nothing to know it by is never guessed": (
        [host()],
        [bmc("a")],
        {},
        [(Reason.UNREACHABLE, "n0"), (Reason.NOT_EXPECTED, "https://a")],
    ),
    "cards are paired by serial": (
        [host(serial="S1", dpus=[DPU, NIC])],
        [card("c", "MT2"), bmc("a", "S1"), card("b", "MT1")],
        {"n0": {"host": "a", "DPU_0": "b", "NIC_3": "c"}},
        [],
    ),
    "a card that shows no serial is paired by its base MAC, in either case": (
        [host(serial="S1", dpus=[DPU])],
        [bmc("a", "S1"), card("b", "", "5c:25:73:00:00:01")],
        {"n0": {"host": "a", "DPU_0": "b"}},
        [],
    ),
    "another serial counts more than the right base MAC": (
        [host(serial="S1", dpus=[DPU])],
        [bmc("a", "S1"), card("b", "MT9", "5c:25:73:00:00:01")],
        {"n0": {"host": "a"}},
        [(Reason.PAIRING_FAILED, "n0/DPU_0"), (Reason.NOT_EXPECTED, "https://b")],
    ),
    "a missing card is named by its slot": (
        [host(serial="S1", dpus=[DPU, NIC])],
        [bmc("a", "S1"), card("b", "MT1")],
        {"n0": {"host": "a", "DPU_0": "b"}},
        [(Reason.PAIRING_FAILED, "n0/NIC_3")],
    ),
    "two cards with one serial are both left alone": (
        [host(serial="S1", dpus=[NIC])],
        [bmc("a", "S1"), card("b", "MT2"), card("c", "MT2")],
        {"n0": {"host": "a"}},
        [(Reason.PAIRING_FAILED, "n0/NIC_3")],
    ),
    "a card without anything to know it by pairs with no slot": (
        [host(serial="S1", dpus=[NIC])],
        [bmc("a", "S1"), card("b")],
        {"n0": {"host": "a"}},
        [(Reason.PAIRING_FAILED, "n0/NIC_3"), (Reason.NOT_EXPECTED, "https://b")],
    ),
    "a card is no host, whatever its serial": (
        [host(serial="S1")],
        [card("b", "S1")],
        {},
        [(Reason.UNREACHABLE, "n0"), (Reason.NOT_EXPECTED, "https://b")],
    ),
    "a host is no card, whatever its serial": (
        [host(serial="S1", dpus=[NIC])],
        [bmc("a", "S1"), bmc("b", "MT2")],
        {"n0": {"host": "a"}},
        [(Reason.PAIRING_FAILED, "n0/NIC_3"), (Reason.NOT_EXPECTED, "https://b")],
    ),
    "a card that two slots claim is in neither": (
        [host(serial="S1", dpus=[DPU, DPU.model_copy(update={"slot": "DPU_1", "serial": ""})])],
        [bmc("a", "S1"), card("b", "MT1", "5c:25:73:00:00:01")],
        {"n0": {"host": "a"}},
        [(Reason.PAIRING_FAILED, "n0/DPU_0"), (Reason.PAIRING_FAILED, "n0/DPU_1")],
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_pairing(sentence: str) -> None:
    listed, found, nodes, blockers = CASES[sentence]

    result = assemble_nodes(Expected(nodes=tuple(listed)), found, NOW)

    placed = {n.id: {b.name: b.url.removeprefix("https://") for b in n.bmcs} for n in result.nodes}
    assert placed == nodes
    assert [(b.reason, b.subject) for b in result.blockers] == blockers
    assert all(b.detail and b.unblock for b in result.blockers)


@pytest.mark.parametrize("sentence", CASES)
def test_the_order_in_which_bmcs_answer_changes_nothing(sentence: str) -> None:
    listed, found, _, _ = CASES[sentence]
    expected = Expected(nodes=tuple(listed))

    forth, back = assemble_nodes(expected, found, NOW), assemble_nodes(expected, found[::-1], NOW)

    assert back.nodes == forth.nodes
    assert {(b.reason, b.subject) for b in back.blockers} == {
        (b.reason, b.subject) for b in forth.blockers
    }


def test_a_paired_card_keeps_what_the_list_knows_of_it() -> None:
    expected = Expected(nodes=(host(serial="S1", dpus=[DPU, NIC]),))
    found = [bmc("a", "S1"), card("b", "MT1"), card("c", "MT2", "5c:25:73:00:00:02")]

    (node,) = assemble_nodes(expected, found, NOW).nodes

    dpu, nic = node.bmcs[1:]
    assert (dpu.kind, dpu.base_mac, dpu.pci) == ("dpu", "5c:25:73:00:00:01", "0000:06:00.0")
    assert (nic.kind, nic.base_mac, nic.pci) == ("supernic", "5c:25:73:00:00:02", "")


def test_a_node_with_a_missing_card_is_not_complete() -> None:
    wanted = host(serial="S1", dpus=[DPU, NIC])
    (node,) = assemble_nodes(
        Expected(nodes=(wanted,)), [bmc("a", "S1"), card("b", "MT1")], NOW
    ).nodes

    assert [b.subject for b in find_missing_cards(wanted, node)] == ["n0/NIC_3"]


def test_a_switch_needs_no_bmc_and_a_new_node_is_discovered() -> None:
    leaf = ExpectedNode(name="leaf", kind=NodeKind.SWITCH, address="https://10.0.1.10:8765")

    result = assemble_nodes(Expected(release="r", nodes=(leaf,)), [], NOW)

    (node,) = result.nodes
    assert result.blockers == ()
    assert (node.state, node.release, node.entered_at) == (State.DISCOVERED, "r", NOW)
    assert [(b.name, b.url, b.kind) for b in node.bmcs] == [("api", leaf.address, "switch")]


def test_the_row_of_a_node_that_was_not_found_has_the_cause_of_its_address() -> None:
    expected = Expected(
        release="r", nodes=(host("n0", url="https://a/"), host("n1", url="https://b"))
    )
    refused, stray = (
        Blocker(reason=Reason.LOGIN_REFUSED, subject=url, detail="401", unblock="Correct it.")
        for url in ("https://a", "https://c")
    )

    rows = name_causes(expected, assemble_nodes(expected, [], NOW).blockers, (refused, stray))

    assert [(r.subject, r.reason) for r in rows] == [
        ("n0 (https://a)", Reason.LOGIN_REFUSED),
        ("n1", Reason.UNREACHABLE),
        ("https://c", Reason.LOGIN_REFUSED),
    ]


def test_an_entry_is_compared_with_the_bmcs_that_share_a_mark_alone() -> None:
    """A fleet's 16,140 cards against 16,140 entries took a minute, in which nothing else ran."""
    hosts = 40
    nodes = [
        host(
            f"n{i}",
            [ExpectedDpu(slot=f"NIC_{c}", serial=f"C{i}-{c}") for c in range(4)],
            mac=f"00:00:00:00:00:{i:02x}",
        )
        for i in range(hosts)
    ]
    ends = [bmc(f"https://h{i}", mac=f"00:00:00:00:00:{i:02X}") for i in range(hosts)]
    ends += [card(f"https://c{i}-{c}", serial=f"C{i}-{c}") for i in range(hosts) for c in range(4)]
    calls: Counter[tuple[str, str]] = Counter()
    sys.setprofile(lambda frame, event, _: calls.update([(event, frame.f_code.co_name)]))
    try:
        assembly = assemble_nodes(Expected(nodes=tuple(nodes)), ends, 0.0)
    finally:
        sys.setprofile(None)

    assert [len(n.bmcs) for n in assembly.nodes] == [5] * hosts
    assert not assembly.blockers
    assert calls["call", "_is_host"] == hosts
    assert calls["call", "_is_card"] == 4 * hosts


def waits(url: str) -> Blocker:
    """A BMC that shows no serial before its factory password is changed."""
    return Blocker(reason=Reason.PASSWORD_CHANGE, subject=f"https://{url}", detail="", unblock="")


def switch(name: str) -> ExpectedNode:
    return ExpectedNode(name=name, kind=NodeKind.SWITCH, address=f"https://{name}:8765")


# sentence: (the list, what was found, BMCs that wait, the ready nodes, open cards, the refused)
Dry = tuple[list[ExpectedNode], list[Endpoint], list[str], list[str], int, list[str]]
DRY: dict[str, Dry] = {
    "cards that wait for their first password are no obstacle": (
        [host(serial="S1", dpus=[DPU, NIC]), switch("leaf")],
        [bmc("a", "S1")],
        ["b", "c"],
        ["n0", "leaf"],
        2,
        [],
    ),
    "a host that waits is known by its listed address, and its cards by number": (
        [host(url="https://a", dpus=[DPU])],
        [],
        ["a", "b"],
        ["n0"],
        1,
        [],
    ),
    "a host that waits does not stand for its own card": (
        [host(url="https://a", dpus=[DPU])],
        [],
        ["a"],
        [],
        0,
        ["n0"],
    ),
    "with fewer waiting BMCs than cards nobody can tell whose is absent": (
        [host("n0", [DPU], serial="S1"), host("n1", [NIC], serial="S2")],
        [bmc("a", "S1"), bmc("b", "S2")],
        ["c"],
        [],
        0,
        ["n0", "n1"],
    ),
    "a host whose BMC is not found is refused, and its cards are not told besides": (
        [host("n0", [DPU], serial="S1"), host("n1", serial="S2")],
        [bmc("b", "S2")],
        ["c"],
        ["n1"],
        0,
        ["n0"],
    ),
    "a stranger is left alone and makes nothing fail": (
        [host(serial="S1")],
        [bmc("a", "S1"), bmc("x", "S9")],
        [],
        ["n0"],
        0,
        [],
    ),
}


@pytest.mark.parametrize("sentence", DRY)
def test_a_dry_run_tells_what_an_intake_would_do(sentence: str) -> None:
    nodes, found, waiting, ready, open_cards, refused = DRY[sentence]
    expected = Expected(site="x", nodes=tuple(nodes))

    seen = foresee_intake(
        expected, assemble_nodes(expected, found, NOW), [waits(u) for u in waiting], ()
    )

    assert list(seen.ready) == ready
    assert seen.open_cards == open_cards
    assert [b.subject for b in seen.refused] == refused
    assert all(b.unblock for b in seen.refused)
