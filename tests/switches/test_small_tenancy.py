"""Ports of a node over its leaves: moved in order, read back, denied, waited for."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from small_site import SmallSite, play, replacing

from provisioner.execution.tenancy.spaces import TenantSpaces
from provisioner.execution.tenancy.tenancy import LeafLook, find_changed_groups, plan_move
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.recovery import GateCheck, RowVerdict
from provisioner.model.tenant import PortPlacement, Tenant
from provisioner.model.tenant_network import GroupRule, SecurityGroup
from provisioner.ports import Unreachable
from provisioner.settings.fabric import StorageSystem

SILENT = Unreachable("connection refused", maybe_executed=False)
MAC = "7c:fe:90:80:9f:05"
HOST = Node(id="host-1", kind=NodeKind.HOST)
HTTPS = GroupRule(protocol="tcp", ports=(443,), source="10.0.0.0/8")
WEB = SecurityGroup(name="web", nodes=(HOST.id,), rules=(HTTPS,))
RED = Tenant(name="red", vrf="RED", security_groups=(WEB,))
BLOCKER = Blocker(reason=Reason.TRESPASS, subject="node", detail="revoked", unblock="wait")


def placed(*vrfs: str) -> tuple[PortPlacement, ...]:
    """swp1 of the first leaf and of the second."""
    return tuple(
        PortPlacement(switch=f"leaf-{n}", interface="swp1", vrf=vrf) for n, vrf in enumerate(vrfs)
    )


def silence(site: SmallSite, leaf: str) -> None:
    """A leaf gives no answer any more."""
    site.transport.answer = lambda asked: SILENT if asked.switch == leaf else None


# --- reading


def test_every_port_is_read_with_each_network_it_may_be_in() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp1", "RED", leaf="leaf-1")
        site.put("swp1", "BLUE", "startup", leaf="leaf-1")
        return await site.tenancy.read(tuple(reversed(site.ports())))

    assert play(scenario) == (*placed("default", "BLUE"), placed("", "RED")[1])


def test_one_leaf_that_is_silent_is_why_nothing_is_known() -> None:
    async def scenario(site: SmallSite) -> Any:
        silence(site, "leaf-1")
        return (
            await site.tenancy.read(site.ports()),
            await site.tenancy.look(site.ports()),
            list(await site.tenancy.look_at(["leaf-0", "leaf-1"])),
        )

    read, look, looked_at = play(scenario)

    assert (read.reason, read.subject) == (Reason.UNREACHABLE, "leaf-1")
    assert (look.reason, look.subject) == (Reason.UNREACHABLE, "leaf-1")
    assert looked_at == ["leaf-0"]


def test_a_leaf_that_nobody_knows_is_named() -> None:
    async def scenario(site: SmallSite) -> Any:
        port = Port(switch="leaf-9", interface="swp1", rail=0, nic_slot="NIC_0")
        return await site.tenancy.read([port]), await site.tenancy.read([])

    blocker, nothing = play(scenario)

    assert (blocker.reason, blocker.subject) == (Reason.NOT_EXPECTED, "leaf-9")
    assert (blocker.detail, nothing) == ("no switch leaf-9 is known", ())


def test_ports_in_customers_networks_are_listed_of_one_leaf() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp2", "RED")
        site.put("swp3", "BLUE", leaf="leaf-1")
        found = await site.tenancy.tenant_ports("leaf-0", {"", "default", "mgmt", "MAINT"})
        return sorted(found)

    assert play(scenario) == ["swp2"]


def test_a_look_has_the_state_of_the_ports_of_each_leaf() -> None:
    async def scenario(site: SmallSite) -> Any:
        ports = (*site.ports(1), site.ports(2)[0])
        seen = await site.tenancy.look(ports)
        other = await site.tenancy.look_at(["leaf-1", "leaf-0"])
        return {n: sorted(s.ports) for n, s in seen.items()}, list(other)

    seen, other = play(scenario)

    assert seen == {"leaf-0": ["swp1", "swp2"], "leaf-1": ["swp1"]}
    assert other == ["leaf-1", "leaf-0"]


def test_whom_ports_hear_is_told_of_each_ethernet_port() -> None:
    async def scenario(site: SmallSite) -> Any:
        guid = Port(
            switch="leaf-0", interface="swp2", rail=0, nic_slot="NIC_0", guid="0002c903000e0b72"
        )
        return await site.tenancy.heard([*site.ports(), guid])

    assert play(scenario) == {
        ("leaf-0", "swp1"): frozenset({("host-1", "rail0")}),
        ("leaf-1", "swp1"): frozenset({("host-1", "rail1")}),
    }


def test_macs_that_leaves_learned_are_listed_and_a_silent_leaf_lists_none() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.planted.macs = {MAC: "swp2"}
        learned = await site.tenancy.learned(["leaf-0", "leaf-1"])
        silence(site, "leaf-0")
        return learned, await site.tenancy.learned(["leaf-0", "leaf-1"])

    learned, silent = play(scenario)

    assert MAC in learned["leaf-0", "swp2"]
    assert {leaf for leaf, _ in silent} <= {"leaf-1"}
    assert silent == {at: macs for at, macs in learned.items() if at[0] == "leaf-1"}


@pytest.mark.parametrize("question", ["heard", "learned"])
def test_a_leaf_that_was_silent_is_looked_up_again(question: str) -> None:
    """Its address may be another one by then: here it is the other leaf's."""

    async def scenario(site: SmallSite) -> Any:
        site.switches["leaf-1"].planted.macs = {MAC: "swp3"}

        async def ask() -> Any:
            if question == "heard":
                return await site.tenancy.heard(site.ports()[:1])
            return await site.tenancy.learned(["leaf-0"])

        before = await ask()
        leaf = await site.store.nodes.get("leaf-0")
        assert leaf is not None
        await site.store.nodes.save(leaf.model_copy(update={"address": "https://leaf-1"}))
        kept = await ask()
        silence(site, "leaf-0")
        silent = await ask()
        return before == kept, silent, await ask()

    kept, silent, after = play(scenario)

    assert kept
    if question == "heard":
        assert silent == {("leaf-0", "swp1"): frozenset()}
        assert after == {("leaf-0", "swp1"): frozenset({("host-1", "rail1")})}
    else:
        assert silent == {}
        assert MAC in after["leaf-0", "swp3"]


def test_ports_of_several_nodes_are_read_by_their_leaf() -> None:
    async def scenario(site: SmallSite) -> Any:
        ports = (*site.ports(2), *site.ports(1))
        groups = site.tenancy.group_ports(ports)
        listed = {leaf: [p.interface for p in mine] for leaf, mine in groups.items()}
        return listed, await site.tenancy.read_group(ports), await site.tenancy.read(ports)

    groups, read, alone = play(scenario)

    assert groups == {"leaf-0": ["swp1", "swp2"], "leaf-1": ["swp1", "swp2"]}
    assert len(read) == 4
    assert read == alone


def test_each_look_is_of_the_ports_that_it_was_asked_for_and_nothing_of_it_is_kept() -> None:
    async def scenario(site: SmallSite) -> Any:
        looks = [await site.tenancy.look(site.ports(n)[:1]) for n in (1, 2, 3)]
        gc.collect()
        tasks = [o for o in gc.get_objects() if isinstance(o, asyncio.Task)]
        return looks, sum(t.get_name() == "look at leaf-0" for t in tasks)

    looks, kept = play(scenario)

    assert [list(seen["leaf-0"].ports) for seen in looks] == [["swp1"], ["swp2"], ["swp3"]]
    assert kept <= 1  # the last one


def test_leaves_know_nothing_of_partitions() -> None:
    async def scenario(site: SmallSite) -> Any:
        guid = Port(
            switch="leaf-0", interface="swp2", rail=0, nic_slot="NIC_0", guid="0002c903000e0b72"
        )
        return await site.tenancy.partitions([guid], "RED")

    [row] = play(scenario)

    assert (row.check, row.subject) == (GateCheck.PORT_VRF, "0002c903000e0b72")
    assert row.verdict is RowVerdict.UNKNOWN


# --- towards a customer


def test_a_customers_leaves_are_changed_one_after_the_other() -> None:
    async def scenario(site: SmallSite) -> Any:
        outcome = await site.tenancy.move(site.ports(), "RED")
        order = [a.switch for a in site.transport.asked if a.method in ("PATCH", "POST")]
        return outcome, order, [site.vrf(leaf=leaf) for leaf in ("leaf-0", "leaf-1")]

    outcome, order, vrfs = play(scenario)

    assert outcome.placements == placed("RED", "RED")
    assert outcome.revisions == ("leaf-0:1", "leaf-1:1")
    assert (outcome.blockers, outcome.persisted) == ((), True)
    assert order == ["leaf-0"] * 4 + ["leaf-1"] * 4
    assert vrfs == ["RED", "RED"]


def test_the_address_goes_along_with_the_port() -> None:
    async def scenario(site: SmallSite) -> Any:
        await site.tenancy.move(site.ports()[:1], "RED")
        await site.tenancy.deny(site.ports()[:1], "RED")
        return [a.body for a in site.transport.asked if a.line.startswith("PATCH /?rev=")]

    moved, denied = play(scenario)

    assert moved["interface"] == {"swp1": {"ip": {"vrf": "RED", "address": {"172.16.0.3/31": {}}}}}
    assert set(denied["interface"]["swp1"]) == {"acl"}


@pytest.mark.parametrize(("node", "guard"), [(HOST, "provisioner_sg_RED_web"), (None, "")])
def test_a_port_gets_the_filter_of_the_groups_that_name_its_node(
    node: Node | None, guard: str
) -> None:
    port = Port(switch="leaf-0", interface="swp1", rail=0, nic_slot="NIC_0", address="10.0.0.0/31")

    move = plan_move(port, "RED", "label", RED, node)

    assert (move.interface, move.vrf, move.address) == ("swp1", "RED", "10.0.0.0/31")
    assert (move.description, move.guard, bool(move.rules)) == ("label", guard, bool(guard))
    assert plan_move(port, "RED", "label", None, node).guard == ""


@pytest.mark.parametrize("changed", [False, True])
def test_groups_that_were_changed_during_a_move_make_it_be_tried_again(changed: bool) -> None:
    async def scenario(site: SmallSite) -> Any:
        plain = RED.model_copy(update={"security_groups": ()})
        await site.store.tenants.put(plain)

        async def change() -> tuple[Blocker, ...]:
            if changed:
                await site.store.tenants.put(RED)
            return ()

        return await site.tenancy.move(site.ports()[:1], "RED", objections=change, node=HOST)

    outcome = play(scenario)

    assert [(b.reason, b.subject) for b in outcome.blockers] == (
        [(Reason.PRECONDITION, "red")] if changed else []
    )
    assert outcome.persisted is not changed


def test_a_tenant_that_is_gone_has_other_groups_than_it_had() -> None:
    [blocker] = find_changed_groups(RED, None)

    assert (blocker.reason, blocker.subject) == (Reason.PRECONDITION, "red")
    assert find_changed_groups(None, RED) == find_changed_groups(RED, RED) == ()


def test_the_groups_are_those_of_the_networks_tenant() -> None:
    async def scenario(site: SmallSite) -> Any:
        other = SecurityGroup(name="other", nodes=(HOST.id,), rules=(HTTPS,))
        await site.store.tenants.put(Tenant(name="blue", vrf="BLUE", security_groups=(other,)))
        await site.store.tenants.put(RED)
        outcome = await site.tenancy.move(site.ports()[:1], "RED", node=HOST)
        return outcome.blockers, list(site.switch.operational["interface"]["swp1"]["acl"])

    assert play(scenario) == ((), ["provisioner_sg_RED_web"])


def test_a_fence_needs_nothing_of_the_tenants_rows() -> None:
    async def scenario(site: SmallSite) -> Any:
        async def damaged() -> Any:
            raise AssertionError("a fence must not wait for tenants")

        site.tenancy._store.tenants.list = damaged  # type: ignore[method-assign]
        return await site.tenancy.fence(site.ports())

    assert play(scenario).blockers == ()


def test_the_first_obstacle_ends_the_way_to_a_customer() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.faults.add("apply_fails")
        outcome = await site.tenancy.move(site.ports(), "RED")
        return outcome, [site.vrf(leaf=leaf) for leaf in ("leaf-0", "leaf-1")]

    outcome, vrfs = play(scenario)

    assert [(b.reason, b.subject) for b in outcome.blockers] == [(Reason.SWITCH_REFUSED, "leaf-0")]
    assert (outcome.persisted, outcome.placements) == (False, placed("default", "default"))
    assert vrfs == ["default", "default"]


def test_a_later_obstacle_tells_what_was_changed_before() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switches["leaf-1"].faults.add("apply_fails")
        return await site.tenancy.move(site.ports(), "RED")

    outcome = play(scenario)

    assert outcome.revisions == ("leaf-0:1",)
    assert outcome.placements == placed("RED", "default")
    assert [b.subject for b in outcome.blockers] == ["leaf-1"]


def test_objections_are_read_before_each_leaf() -> None:
    async def scenario(site: SmallSite) -> Any:
        asked = 0

        async def objections() -> tuple[Blocker, ...]:
            nonlocal asked
            asked += 1
            return (BLOCKER,) if asked == 2 else ()

        outcome = await site.tenancy.move(site.ports(), "RED", objections=objections)
        return outcome, asked

    outcome, asked = play(scenario)

    assert (outcome.blockers, asked) == ((BLOCKER,), 2)
    assert outcome.placements == placed("RED", "default")


@pytest.mark.parametrize(("asked_at_most", "objected"), [(3, False), (2, True)])
def test_objections_are_read_once_more_before_storage_is_opened(
    asked_at_most: int, objected: bool
) -> None:
    async def scenario(site: SmallSite) -> Any:
        asked = 0
        system = StorageSystem(provider="sim", address="storage.example")
        settings = site.settings.model_copy(update={"storage": system})
        storage: Any = None  # no tenant of the site has any: nothing is asked of it
        site.tenancy.spaces = TenantSpaces(storage, site.store, site.clock, settings)

        async def objections() -> tuple[Blocker, ...]:
            nonlocal asked
            asked += 1
            return (BLOCKER,) if asked > asked_at_most else ()

        entered = await site.tenancy.move(site.ports(), "RED", objections=objections, node=HOST)
        return entered, await site.tenancy.move(site.ports(), "MAINT", node=HOST)

    entered, left = play(scenario)

    assert (entered.blockers, entered.persisted) == ((BLOCKER,) if objected else (), not objected)
    assert (entered.placements, len(entered.revisions)) == (placed("RED", "RED"), 2)
    assert (left.blockers, left.persisted, left.placements) == ((), True, placed("MAINT", "MAINT"))


def test_a_move_whose_end_cannot_be_read_proves_nothing() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = replacing({"GET /interface/swp1?rev=startup": SILENT})
        return await site.tenancy.move(site.ports()[:1], "RED")

    outcome = play(scenario)

    assert (outcome.placements, outcome.revisions) == ((), ("leaf-0:1",))
    assert [b.reason for b in outcome.blockers] == [Reason.UNREACHABLE]
    assert not outcome.persisted


def test_a_port_that_moves_on_by_itself_is_not_where_it_was_proved() -> None:
    async def scenario(site: SmallSite) -> Any:
        saved = site.switch.log_event

        def note(now: float, kind: str, subject: str, detail: str = "") -> None:
            saved(now, kind, subject, detail)
            if kind == "config_saved":
                heard.append(subject)
                site.put("swp1", "BLUE", "operational")

        heard: list[str] = []
        site.switch.log_event = note  # type: ignore[method-assign]
        return await site.tenancy.move(site.ports()[:1], "RED"), heard

    outcome, heard = play(scenario)

    assert heard

    assert [b.reason for b in outcome.blockers] == [Reason.ISOLATION]
    assert not outcome.persisted


def test_a_port_without_an_address_goes_to_no_customer() -> None:
    async def scenario(site: SmallSite) -> Any:
        ports = tuple(p.model_copy(update={"address": ""}) for p in site.ports())
        released = await site.tenancy.move(ports, "RED")
        asked = len(site.transport.asked)
        return released, asked, await site.tenancy.move(ports, "MAINT")

    released, asked, fenced = play(scenario)

    assert [b.reason for b in released.blockers] == [Reason.ISOLATION]
    assert (released.placements, asked) == ((), 0)
    assert (fenced.blockers, fenced.persisted) == ((), True)


# --- leaks


def test_a_leak_that_stands_is_told_with_its_leaf() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switches["leaf-1"].leaks["172.17.0.2/31"] = "BLUE"
        outcome = await site.tenancy.move(site.ports(), "RED")
        times = site.times("GET /vrf?rev=operational")
        unlooked = await site.tenancy.move(site.ports(), "RED", look_for_leaks=False)
        fenced = await site.tenancy.fence(site.ports())
        return outcome, times, unlooked, fenced

    settings = {"switch_apply_limit_s": 20.0, "switch_poll_s": 2.0}
    outcome, times, unlooked, fenced = play(scenario, **settings)

    assert [(b.reason, b.subject) for b in outcome.blockers] == [(Reason.ISOLATION, "leaf-1")]
    assert "BLUE: 172.17.0.2/31" in outcome.blockers[0].detail
    assert outcome.placements == placed("RED", "RED")
    assert not outcome.persisted
    assert times[-1] - times[0] == pytest.approx(20.0)  # a withdrawal is given its time, no more
    assert unlooked.blockers == fenced.blockers == ()
    assert fenced.placements == placed("MAINT", "MAINT")


def test_a_leak_that_is_withdrawn_in_time_is_none() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.leaks["172.16.0.2/31"] = "BLUE"
        moving = asyncio.create_task(site.tenancy.move(site.ports(), "RED"))
        while not site.times("GET /vrf?rev=operational"):
            await site.clock.sleep(0.5)
        await site.clock.sleep(5.0)
        site.switch.leaks.clear()
        outcome = await moving
        return outcome, site.times("GET /vrf?rev=operational")

    outcome, times = play(scenario, switch_apply_limit_s=20.0, switch_poll_s=2.0)

    assert (outcome.blockers, outcome.persisted) == ((), True)
    assert 4 <= len(times) <= 8  # two leaves, some looks


def test_routes_that_are_not_answered_are_no_proof() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = replacing({"GET /vrf?rev=operational": SILENT})
        return await site.tenancy.move(site.ports()[:1], "RED")

    outcome = play(scenario, switch_apply_limit_s=20.0)

    assert [b.reason for b in outcome.blockers] == [Reason.UNREACHABLE]
    assert not outcome.persisted


# --- towards maintenance


def test_a_fence_goes_to_all_leaves_at_once_and_past_a_silent_one() -> None:
    async def scenario(site: SmallSite) -> Any:
        await site.tenancy.move(site.ports(), "RED")
        done = len(site.transport.asked)
        await site.tenancy.fence(site.ports())
        order = [a.switch for a in site.transport.asked[done:] if a.method == "POST"]
        first = [a.at for a in site.transport.asked[done:] if a.method == "POST"]
        await site.tenancy.move(site.ports(), "RED")
        silence(site, "leaf-0")
        outcome = await site.tenancy.fence(site.ports())
        site.transport.answer = lambda _asked: None
        return order, first, outcome, [site.vrf(leaf=leaf) for leaf in ("leaf-0", "leaf-1")]

    order, first, outcome, vrfs = play(scenario)

    assert sorted(order) == ["leaf-0", "leaf-1"]
    assert first[0] == first[1]
    assert {(b.reason, b.subject) for b in outcome.blockers} == {(Reason.UNREACHABLE, "leaf-0")}
    assert outcome.revisions == ("leaf-1:4",)
    assert vrfs == ["RED", "MAINT"]


def test_a_node_without_ports_is_isolated_nowhere() -> None:
    async def scenario(site: SmallSite) -> Any:
        return await site.tenancy.fence(())

    outcome = play(scenario)

    assert [b.reason for b in outcome.blockers] == [Reason.ISOLATION]
    assert not outcome.persisted


# --- filters and silence


def test_every_port_is_denied_on_every_leaf_and_each_refusal_is_told() -> None:
    async def scenario(site: SmallSite) -> Any:
        await site.tenancy.move(site.ports(), "RED")
        good = await site.tenancy.deny(site.ports(), "RED")
        filters = [
            bool(s.operational["interface"]["swp1"].get("acl")) for s in site.switches.values()
        ]
        silence(site, "leaf-1")
        return good, filters, await site.tenancy.deny(site.ports(), "RED")

    good, filters, bad = play(scenario)

    assert (good, filters) == ((), [True, True])
    assert [(b.reason, b.subject) for b in bad] == [(Reason.UNREACHABLE, "leaf-1")]


def test_ports_that_send_nothing_are_quiet_after_two_looks() -> None:
    async def scenario(site: SmallSite) -> Any:
        began = site.clock.now()
        quiet = await site.tenancy.quiet(site.ports(), 60.0)
        return quiet, site.clock.now() - began

    quiet, took = play(scenario, switch_poll_s=3.0)

    assert quiet
    assert 3.0 <= took < 6.0


def test_a_port_that_goes_on_sending_is_waited_for_and_no_longer() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switches["leaf-1"].planted.busy.add("swp1")
        began = site.clock.now()
        quiet = await site.tenancy.quiet(site.ports(), 60.0)
        took = site.clock.now() - began
        return quiet, took, await site.tenancy.quiet(site.ports()[:1], 60.0)

    quiet, took, other = play(scenario, switch_poll_s=3.0)

    assert (quiet, other) == (False, True)
    assert 60.0 <= took < 66.0


def test_a_leaf_that_gives_no_answer_is_not_waited_for() -> None:
    async def scenario(site: SmallSite) -> Any:
        silence(site, "leaf-1")
        began = site.clock.now()
        return await site.tenancy.quiet(site.ports(), 60.0), site.clock.now() - began

    quiet, took = play(scenario)

    assert not quiet
    assert took < 5.0


def test_to_close_ends_every_writer_and_look() -> None:
    async def scenario(site: SmallSite) -> Any:
        moving = asyncio.create_task(site.tenancy.move(site.ports(), "MAINT"))
        looking = asyncio.create_task(site.tenancy.look(site.ports()))
        await site.clock.sleep(0.01)
        await site.tenancy.close()
        open_looks = [t for t in asyncio.all_tasks() if t.get_name().startswith("look at")]
        assert open_looks == []
        asked = len(site.transport.asked)
        ends = await asyncio.gather(moving, looking, return_exceptions=True)
        await site.clock.sleep(60.0)
        return [type(e).__name__ for e in ends], len(site.transport.asked) - asked

    assert play(scenario) == (["CancelledError"] * 2, 0)


def test_no_look_at_a_leaf_is_left_when_it_is_closed() -> None:
    async def scenario(site: SmallSite) -> Any:
        look = LeafLook(site.source(), site.clock, site.settings)
        waiting = asyncio.ensure_future(look.state(["swp1"]))
        for _ in range(3):
            await asyncio.sleep(0)
        await look.close()
        left = [t.get_name() for t in asyncio.all_tasks() if t.get_name() == "look at leaf-0"]
        await asyncio.gather(waiting, return_exceptions=True)
        return left

    assert play(scenario) == []
