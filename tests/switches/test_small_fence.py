"""Fences with the filter between hosts, and what else is asked of a leaf: on two small leaves."""

from __future__ import annotations

from typing import Any

import pytest
from small_site import NOT_SENT, Asked, SmallSite, play

from provisioner.integrations.cumulus.port_filter import NAME
from provisioner.model.host_filter import DatabaseMark
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Reason
from provisioner.model.recovery import GateCheck, RowVerdict
from provisioner.ports import Malformed, Reply

ON = {"lookup_networks": ("10.64.0.0/16",), "switch_apply_limit_s": 10.0}
MARK = DatabaseMark("0123abcd" * 4, 1)
NODE = Node(id="node-1", kind=NodeKind.HOST, tenant="red")


def bound(site: SmallSite) -> list[bool]:
    """Whether the first port of each leaf has the filter."""
    entries = [s.operational["interface"]["swp1"] for s in site.switches.values()]
    return [NAME in entry.get("acl", {}) for entry in entries]


def vrfs(site: SmallSite) -> list[str]:
    return [site.vrf(leaf=leaf) for leaf in site.switches]


def has_filter(asked: Asked) -> bool:
    """Whether a revision is given the filter."""
    return asked.line.startswith("PATCH /?rev=") and NAME in str(asked.body)


def test_a_fence_brings_the_filter_where_the_site_keeps_hosts_apart() -> None:
    async def scenario(site: SmallSite) -> Any:
        outcome = await site.tenancy.fence(site.ports())
        return outcome.blockers, vrfs(site), bound(site), site.lines("POST")

    with_filter, without = play(scenario, **ON), play(scenario)

    assert with_filter == ((), ["MAINT"] * 2, [True] * 2, ["POST /revision"] * 2)
    assert without == ((), ["MAINT"] * 2, [False] * 2, ["POST /revision"] * 2)


def test_a_fence_that_was_taken_with_its_filter_is_not_asked_for_again() -> None:
    async def scenario(site: SmallSite) -> Any:
        await site.tenancy.fence(site.ports())
        began = site.clock.now()
        await site.tenancy.fence(site.ports())
        return site.clock.now() - began

    with_filter, without = play(scenario, **ON), play(scenario)

    assert with_filter == without


@pytest.mark.parametrize(
    "answer", [Reply(400, {}, b"no such filter"), Malformed("nonsense")], ids=["refused", "garbled"]
)
def test_a_leaf_that_takes_no_filter_is_fenced_all_the_same(answer: Any) -> None:
    async def scenario(site: SmallSite) -> Any:
        await site.tenancy.move(site.ports(), "RED")
        site.transport.answer = lambda asked: answer if has_filter(asked) else None
        outcome = await site.tenancy.fence(site.ports())
        return outcome.blockers, vrfs(site), bound(site)

    assert play(scenario, **ON) == ((), ["MAINT"] * 2, [False] * 2)


def test_a_filter_that_is_on_a_port_stays_where_the_leaf_takes_no_rules() -> None:
    async def scenario(site: SmallSite) -> Any:
        for tree in (site.switch.operational, site.switch.applied, site.switch.startup):
            tree["interface"]["swp1"]["acl"] = {NAME: {"inbound": {}}}
        refusal = Reply(400, {}, b"no such filter")
        site.transport.answer = lambda asked: refusal if has_filter(asked) else None
        outcome = await site.tenancy.fence(site.ports()[:1])
        return outcome.blockers, site.vrf(), bound(site)[0]

    assert play(scenario, **ON) == ((), "MAINT", True)


def test_a_leaf_whose_filter_does_not_follow_is_fenced_all_the_same() -> None:
    async def scenario(site: SmallSite) -> Any:
        await site.tenancy.move(site.ports(), "RED")
        saved = site.switch.log_event

        def note(now: float, kind: str, subject: str, detail: str = "") -> None:
            saved(now, kind, subject, detail)
            site.switch.operational["interface"]["swp1"].get("acl", {}).pop(NAME, None)

        site.switch.log_event = note  # type: ignore[method-assign]
        outcome = await site.tenancy.fence(site.ports()[:1])
        return outcome.blockers, site.vrf(), len(site.lines("POST"))

    blockers, vrf, posts = play(scenario, **ON)

    assert (blockers, vrf) == ((), "MAINT")
    assert posts >= 3


def test_a_leaf_that_does_not_answer_is_not_asked_twice_for_a_fence() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = lambda _asked: NOT_SENT
        outcome = await site.tenancy.fence(site.ports()[:1])
        return {b.reason for b in outcome.blockers}, site.lines("GET")

    reasons, asked = play(scenario, **ON)

    assert reasons == {Reason.UNREACHABLE}
    assert len(asked) == 4  # three tries, and where the ports are


def test_ports_get_the_filter_where_they_are() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp1", "RED")
        door = ("10.64.0.7", "10.64.0.8")
        outcome = await site.tenancy.keep_apart("leaf-0", ["swp2", "swp1"], [door])
        began = site.clock.now()
        nothing = await site.tenancy.keep_apart("leaf-0", [], [door])
        took = site.clock.now() - began
        state = await site.tenancy.filter_state("leaf-0")
        return outcome, nothing, took, state, site.vrf()

    outcome, nothing, took, state, vrf = play(scenario, **ON)

    assert (outcome.revision, outcome.blockers, vrf) == ("1", (), "RED")
    assert (nothing.revision, nothing.blockers, took) == ("", (), 0.0)
    assert set(state.filters["applied"].rules) == {1, 2, 30000}
    assert state.ports["applied"]["swp2"] == ("default", True)
    assert state.ports["applied"]["swp3"] == ("default", False)


def test_descriptions_name_the_node_its_tenant_and_its_epoch() -> None:
    async def scenario(site: SmallSite) -> Any:
        node, ports = NODE.model_copy(update={"generation": 7}), site.ports()[:1]
        before = await site.tenancy.move(ports, "BLUE", node=node)
        unmarked = await site.tenancy.read_labels("leaf-0")
        site.tenancy.mark = MARK
        await site.tenancy.move(ports, "RED")
        unnamed = await site.tenancy.read_labels("leaf-0")
        await site.tenancy.move(ports, "BLUE", node=node)
        customer = await site.tenancy.read_labels("leaf-0")
        await site.tenancy.fence(ports, node)
        return (
            before.blockers,
            unmarked,
            unnamed,
            customer,
            await site.tenancy.read_labels("leaf-0"),
        )

    blockers, unmarked, unnamed, customer, fenced = play(scenario)

    assert (blockers, unmarked, unnamed) == ((), {}, {})
    assert customer["swp1"][2:] == ("node-1", "red", 7)
    assert fenced["swp1"][2:] == ("node-1", "-", 7)


def test_ports_of_a_network_without_leaves_are_heard_by_nobody_and_unknown() -> None:
    card = Port(switch="", interface="", rail=0, nic_slot="NIC_0", guid="0002c903000e0b72")

    async def scenario(site: SmallSite) -> Any:
        heard = await site.tenancy.heard((*site.ports(), card))
        return heard, await site.tenancy.partitions([card], "RED")

    heard, [row] = play(scenario)

    assert set(heard) == {("leaf-0", "swp1"), ("leaf-1", "swp1")}
    assert heard["leaf-0", "swp1"] == {("host-1", "rail0")}
    assert (row.check, row.verdict) == (GateCheck.PORT_VRF, RowVerdict.UNKNOWN)


def test_a_customers_ports_of_a_leaf_are_read_with_who_is_not_the_sites() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp2", "RED", leaf="leaf-1")
        return await site.tenancy.tenant_ports("leaf-1", {"", "default", "mgmt", "MAINT"})

    assert {n: p.vrfs for n, p in play(scenario).items()} == {"swp2": {"RED"}}
