"""Who is asked to send what to whom at a release, and how silence and answers are judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from release_world import ASK

from provisioner.model.location import Port
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.model.recovery import GateCheck, RowVerdict
from provisioner.planning.release.release_cables import judge_probes
from provisioner.planning.release.release_probes import (
    Partners,
    Ping,
    ProbeSet,
    host_end,
    judge,
    plan_probe_sets,
)

REACHES, ROUTE, RDMA = GateCheck.REACHES, GateCheck.HOST_ROUTE, GateCheck.RDMA
OUT, IN = GateCheck.SHUT_OUT, GateCheck.SHUT_IN


def host(number: int, state: State, vrf: str, **changes: Any) -> Node:
    """A host with a port on each of two leaves."""
    ports = tuple(
        Port(
            switch=f"leaf-{rail}",
            interface=f"swp{number}",
            rail=rail,
            nic_slot=f"NIC_{rail}",
            address=f"172.{32 * rail}.0.{2 * number}/31",
        )
        for rail in range(2)
    )
    place = Placement.MAINTENANCE if vrf == "MAINT" else Placement.CUSTOMER
    given: dict[str, Any] = {"state": state, "vrf": vrf, "placement": place, "ports": ports}
    given |= {"address": f"10.64.0.{number}"}
    return Node(id=f"n{number}", kind=NodeKind.HOST, **{**given, **changes})


MINE = host(0, State.CERTIFIED, "MAINT", bmcs=(BmcRef(name="host", url="https://10.1.0.9"),))
LEAF = Node(id="leaf-0", kind=NodeKind.SWITCH, address="https://10.1.0.50:8765")


def sent(*others: Node, node: Node = MINE, **given: Any) -> tuple[ProbeSet, ...]:
    return plan_probe_sets(node, ASK, Partners(nodes=(MINE, *others), tenants=(), **given))


def pings(probe_set: ProbeSet, rail: int = 0) -> list[tuple[str, int, GateCheck]]:
    source = f"172.{32 * rail}.0."
    mine = (p for p in probe_set.pings if p.source.startswith(source))
    return [(p.target, p.size, p.check) for p in mine]


def test_a_port_tries_its_tenants_network_and_everything_outside_of_it() -> None:
    (own,) = sent(
        LEAF,
        host(1, State.RELEASED, "RED"),
        host(2, State.RELEASED, "BLUE"),
        host(3, State.VALIDATING, "MAINT", address=""),
        host(4, State.DRAINING, "MAINT"),  # its own system may be off: silence says nothing
        host(5, State.DRAINING, "RED"),
        host(6, State.DRAINING, "BLUE"),
        host(7, State.RELEASED, ""),  # whose place is not known
        host(8, State.CERTIFIED, "MAINT", placement=Placement.MIXED),
        reached=("STORE=10.200.0.1", "OTHER=10.200.0.2"),
        never=("10.250.0.1",),
        canaries=("RED=10.201.0.1", "BLUE=10.201.0.2"),
        size=4000,
    )

    assert (own.host, own.address) == ("n0", "10.64.0.0")
    assert pings(own) == [
        ("172.0.0.0", 4000, REACHES),
        ("172.0.0.0", 56, ROUTE),
        ("10.201.0.1", 4000, REACHES),
        ("10.201.0.1", 56, ROUTE),
        ("10.201.0.1", 18600, RDMA),
        ("172.0.0.3", 4000, REACHES),  # the peer's end on the same rail
        ("172.0.0.3", 56, ROUTE),
        ("10.200.0.1", 4000, REACHES),
        ("10.200.0.1", 56, ROUTE),
        ("10.200.0.2", 56, OUT),  # storage of others
        ("172.0.0.7", 56, OUT),  # in maintenance
        ("172.0.0.5", 56, OUT),  # another tenant's
        ("10.1.0.9", 56, OUT),
        ("10.1.0.50", 56, OUT),
        ("10.250.0.1", 56, OUT),
    ]
    assert ("10.201.0.1", 18601, RDMA) in pings(own, rail=1)
    assert ("172.32.0.3", 4000, REACHES) in pings(own, rail=1)  # the peer's end on that rail
    assert "10.1.0.50" not in [target for target, *_ in pings(own, rail=1)]
    (named,) = sent(LEAF.model_copy(update={"address": "https://leaf.example"}))
    assert [target for target, _, check in pings(named) if check is OUT] == ["10.1.0.9"]


def test_two_nodes_of_each_class_are_enough() -> None:
    classes = {State.RELEASED: ("RED", "BLUE"), State.CERTIFIED: ("MAINT",)}
    names = [(state, vrf) for state, vrfs in classes.items() for vrf in vrfs for _ in range(3)]
    own, *inward = sent(*(host(n, *name) for n, name in enumerate(names, 1)))

    targets = [target for target, _, check in pings(own) if check in (REACHES, OUT)]
    assert targets[1:-1] == [f"172.0.0.{2 * n + 1}" for n in (1, 2, 7, 8, 4, 5)]
    assert [s.host for s in inward] == ["n7", "n8"]


def test_a_front_end_port_sends_packets_that_fit_and_no_rdma() -> None:
    front = MINE.ports[0].model_copy(update={"rail": -1})
    node = MINE.model_copy(update={"ports": (front, MINE.ports[1])})
    partners = Partners(nodes=(), tenants=(), canaries=("RED=10.201.0.1",))
    (small,) = plan_probe_sets(node, replace(ASK, front_mtu=1500), partners)
    (plain,) = plan_probe_sets(node, ASK, partners)

    (rails,) = plan_probe_sets(MINE, replace(ASK, front_mtu=1500), partners)
    assert {size for _, size, check in pings(rails) if check is REACHES} == {8972}
    assert {size for _, size, check in pings(small) if check is REACHES} == {1472}
    assert {size for _, size, check in pings(plain) if check is REACHES} == {8972}
    assert {size for _, size, check in pings(small, rail=1) if check is REACHES} == {8972}
    assert RDMA not in {check for *_, check in pings(small)}


def test_a_rail_that_only_one_of_two_has_is_tried_on_no_side_and_the_others_are() -> None:
    unplanned = MINE.ports[0].model_copy(update={"rail": 2, "address": "10.0.0.1/24"})
    node = MINE.model_copy(update={"ports": (*MINE.ports, unplanned)})
    canary = host(1, State.CERTIFIED, "MAINT")
    canary = canary.model_copy(update={"ports": canary.ports[1:]})
    own, inward = sent(canary, node=node)

    assert {p.source for p in own.pings} == {"172.0.0.1", "172.32.0.1"}
    assert {p.source for p in inward.pings} == {"172.32.0.3"}


@pytest.mark.parametrize(
    ("leaf", "node"),
    [
        ("172.0.0.0/31", "172.0.0.1"),
        ("172.0.0.1/31", "172.0.0.0"),
        ("10.0.0.1/30", "10.0.0.2"),
        ("10.0.0.2/30", "10.0.0.1"),
        ("10.0.0.1/24", ""),
        ("10.0.0.1/32", ""),
        ("2001:db8::/31", ""),
        ("", ""),
    ],
)
def test_the_node_has_the_other_address_of_its_leafs_link(leaf: str, node: str) -> None:
    assert host_end(leaf) == node


@pytest.mark.parametrize(
    "changes",
    [
        {"placement": Placement.CUSTOMER},
        {"address": ""},
        {"state": State.DRAINING},
        {"kind": NodeKind.SWITCH},
        {"ports": ()},
    ],
)
def test_only_a_host_in_maintenance_that_can_be_logged_in_to_is_asked_to_try(
    changes: dict[str, Any],
) -> None:
    canary = host(1, State.CERTIFIED, "MAINT")
    _, asked = sent(canary)

    assert (asked.host, asked.address) == ("n1", "10.64.0.1")
    assert pings(asked) == [("172.0.0.2", 8972, REACHES), ("172.0.0.1", 56, IN)]
    assert pings(asked, rail=1) == [("172.32.0.2", 8972, REACHES), ("172.32.0.1", 56, IN)]
    assert len(sent(canary.model_copy(update=changes))) == 1


def rows(*answers: tuple[GateCheck, int | None], rdma: str = "listed") -> dict[GateCheck, Any]:
    """The rows of probes that ended so, all from one address."""
    asked = {Ping("10.0.0.1", f"10.0.1.{n}", 56, "x", c): end for n, (c, end) in enumerate(answers)}
    probe_set = ProbeSet("n0", "10.64.0.1", tuple(asked))
    judged = judge([probe_set], {("n0", p): end for p, end in asked.items()}, rdma)
    return {r.check: (r.verdict, r.seen) for r in judged}


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (REACHES, "no answer with 56 bytes (ping ended with 1)"),
        (ROUTE, "its system does not send this through the interface of that address"),
        (RDMA, "no RDMA at port 56 (ib_write_bw ended with 1)"),
    ],
)
def test_what_must_answer_and_does_not_is_told(check: GateCheck, words: str) -> None:
    assert rows((check, 1))[check] == (RowVerdict.FAIL, words)
    assert rows((check, 0))[check] == (RowVerdict.PASS, "")
    for no_tool in (126, 127):
        assert rows((check, no_tool))[check] == (
            RowVerdict.UNKNOWN,
            "it was not sent (no such tool)",
        )


@pytest.mark.parametrize("check", [OUT, IN])
def test_silence_counts_where_the_same_source_is_answered_by_another(check: GateCheck) -> None:
    assert rows((REACHES, 0), (check, 1))[check] == (RowVerdict.PASS, "")
    assert rows((REACHES, 0), (check, 0))[check] == (RowVerdict.FAIL, "it was answered")
    alone = (RowVerdict.UNKNOWN, "nothing else is answered from there either")
    assert rows((REACHES, 1), (check, 1))[check] == alone
    assert rows((ROUTE, 0), (check, 1))[check] == alone  # of an echo only
    assert rows((REACHES, 0), (check, None))[check] == (RowVerdict.UNKNOWN, "it was not sent")
    for not_sent in (126, 127):  # its silence proves nothing, whatever else was sent from there
        assert rows((REACHES, 0), (check, not_sent))[check] == (
            RowVerdict.UNKNOWN,
            "it was not sent (no such tool)",
        )


@pytest.mark.parametrize("check", [OUT, IN])
@pytest.mark.parametrize("code", [2, 124, 137, 255])
def test_a_ping_that_could_not_send_or_was_killed_is_no_silence(
    check: GateCheck, code: int
) -> None:
    reading = f"it was not sent (ping ended with {code}: its system has no route there?)"
    assert rows((REACHES, 0), (check, code))[check] == (RowVerdict.UNKNOWN, reading)


@pytest.mark.parametrize(
    ("check", "beside", "verdict"),
    [
        (OUT, False, RowVerdict.UNKNOWN),
        (IN, False, RowVerdict.UNKNOWN),
        (OUT, True, RowVerdict.NONE),  # a BMC is reached over management by the host's own default
    ],
)
def test_silence_by_another_interface_says_nothing_of_the_leaf(
    check: GateCheck, beside: bool, verdict: RowVerdict
) -> None:
    control = Ping("10.0.0.1", "10.0.0.0", 56, "its leaf", REACHES)
    never = Ping("10.0.0.1", "10.1.0.9", 56, "x", check, beside)
    judged = judge([ProbeSet("n0", "", (control, never))], {("n0", control): 0, ("n0", never): 3})

    (row,) = (r for r in judged if r.check is check)
    assert row.verdict is verdict
    assert "its leaf was not tried" in row.seen
    assert ("source rule" in row.seen) is not beside


@pytest.mark.parametrize(
    ("code", "verdict"),
    [(2, RowVerdict.NONE), (124, RowVerdict.UNKNOWN), (137, RowVerdict.UNKNOWN)],
)
def test_a_host_without_any_way_to_management_is_not_kept_back(
    code: int, verdict: RowVerdict
) -> None:
    control = Ping("10.0.0.1", "10.0.0.0", 56, "its leaf", REACHES)
    never = Ping("10.0.0.1", "10.1.0.9", 56, "BMC", OUT, beside=True)
    for reached, wanted in ((0, verdict), (2, RowVerdict.UNKNOWN)):
        answers = {("n0", control): reached, ("n0", never): code}
        judged = judge([ProbeSet("n0", "", (control, never))], answers)
        (row,) = (r for r in judged if r.check is OUT)
        assert row.verdict is wanted


@pytest.mark.parametrize("code", [1, 3])
def test_hosts_that_are_apart_are_silent_on_whichever_way(code: int) -> None:
    apart = Ping("10.64.0.0", "10.64.0.1", 56, "host n1", GateCheck.HOSTS_APART)
    (row,) = judge_probes([ProbeSet("n0", "", (apart,))], {("n0", apart): code})

    assert row.verdict is RowVerdict.PASS


def test_only_what_a_host_has_other_ways_to_may_go_beside_the_leaf() -> None:
    others = (host(1, State.RELEASED, "BLUE"), host(2, State.CERTIFIED, "MAINT"), LEAF)
    own, *inward = sent(*others, reached=("OTHER=10.200.0.2",), never=("10.250.0.1",))

    kinds = {(p.what.split()[0], p.beside) for s in (own, *inward) for p in s.pings if not p.wanted}
    assert kinds == {
        ("other", False),
        ("maintenance", False),
        ("n0", False),
        ("storage", True),
        ("BMC", True),
        ("switch", True),
        ("never", True),
    }


def test_a_release_without_any_probe_says_so_of_each_class() -> None:
    told = {r.check: (r.verdict, r.seen[:3]) for r in judge([], {})}

    assert told == dict.fromkeys((REACHES, ROUTE, RDMA, OUT, IN), (RowVerdict.NONE, "no "))


@pytest.mark.parametrize(
    ("setting", "row"),
    [
        ("off", (RowVerdict.NONE, "the site's settings have it off")),
        ("listed", (RowVerdict.NONE, "no canary in the tenant's VRF")),
        ("required", (RowVerdict.UNKNOWN, "no canary in the tenant's VRF")),
    ],
)
def test_a_class_without_probes_is_told_with_its_reason(
    setting: str, row: tuple[RowVerdict, str]
) -> None:
    judged = rows((REACHES, 0), rdma=setting)

    assert judged[RDMA] == row
    assert judged[OUT] == (RowVerdict.NONE, "no address that must not answer")
