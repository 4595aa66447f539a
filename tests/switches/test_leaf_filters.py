"""Filters between hosts and descriptions of ports on one small leaf: set, left, read, refused."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from small_site import NOT_SENT, RED, SmallSite, described, ok, play

from provisioner.execution.tenancy import leaf
from provisioner.integrations.cumulus.port_filter import NAME, read_filters
from provisioner.model.host_filter import DatabaseMark, PortLabel, write_label
from provisioner.model.outcome import Reason
from provisioner.model.switch import DEFAULT_VRF, Move, Place
from provisioner.model.tenant_network import FilterMatch
from provisioner.ports import Reply

ON = {"lookup_networks": ("10.64.0.0/16",), "lookup_reached": ("10.64.0.2/32",)}
APART = Move("swp1", "MAINT", "172.16.0.3/31", apart=True)
DOOR = ("10.64.0.7", "10.64.0.8")
TREES = ("applied", "startup", "operational")


def filters(site: SmallSite, interface: str = "swp1") -> set[bool]:
    """Whether a port has the filter, in every tree."""
    trees = (getattr(site.switch, name) for name in TREES)
    return {NAME in tree["interface"][interface].get("acl", {}) for tree in trees}


def rules(site: SmallSite) -> list[set[str]]:
    """The numbers of the filter's rules, in every tree."""
    trees = (getattr(site.switch, name) for name in TREES)
    return [set(tree.get("acl", {}).get(NAME, {}).get("rule", {})) for tree in trees]


def bind(site: SmallSite, interface: str, acl: str, *trees: str) -> None:
    """Somebody has set a filter on a port."""
    for name in trees or TREES:
        entry = getattr(site.switch, name)["interface"][interface]
        entry.setdefault("acl", {})[acl] = {"inbound": {}}


def unbound(site: SmallSite) -> list[Any]:
    """What each revision wrote of the first port's filters."""
    asked = [a for a in site.transport.asked if a.line.startswith("PATCH /?rev=")]
    return [a.body["interface"]["swp1"].get("acl") for a in asked]


# --- the filter between hosts


def test_a_port_comes_into_maintenance_with_its_filter_and_the_rules() -> None:
    async def scenario(site: SmallSite) -> Any:
        first = await site.leaf().move([APART])
        again = await site.leaf().move([APART])
        return first, again, filters(site), rules(site), site.lines("POST")

    first, again, bound, numbers, posts = play(scenario, **ON)

    assert (first.blockers, again.blockers, again.revision) == ((), (), "")
    assert (bound, numbers) == ({True}, [{"20000", "30000"}] * 3)
    assert posts == ["POST /revision"]


@pytest.mark.parametrize("tree", ["applied", "operational"])
def test_a_rule_that_is_missing_is_put_back_where_the_port_is_in_place(tree: str) -> None:
    async def scenario(site: SmallSite) -> Any:
        await site.leaf().move([APART])
        getattr(site.switch, tree)["acl"][NAME]["rule"].pop("30000")
        outcome = await site.leaf().move([APART])
        return outcome, rules(site), len(site.lines("POST"))

    outcome, numbers, posts = play(scenario, **ON)

    assert outcome.blockers == ()
    assert numbers == [{"20000", "30000"}] * 3
    assert posts == 2


def test_one_of_several_moves_that_sets_the_filter_is_enough() -> None:
    async def scenario(site: SmallSite) -> Any:
        other = Move("swp2", "RED", "172.16.0.5/31")
        await site.leaf().move([APART, other])
        for name in TREES:
            getattr(site.switch, name)["acl"][NAME]["rule"].pop("30000")
        await site.leaf().move([other, APART])
        return rules(site), filters(site), filters(site, "swp2")

    assert play(scenario, **ON) == ([{"20000", "30000"}] * 3, {True}, {False})


def test_doors_are_opened_kept_and_closed() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf, seen = site.leaf(), []
        for doors in ((DOOR,), None, ()):
            outcome = await leaf.move([Move("swp1", "MAINT", apart=True, doors=doors)])
            assert outcome.blockers == ()
            seen.append(rules(site))
        return seen

    opened, kept, closed = play(scenario, **ON)

    assert opened == [{"1", "2", "20000", "30000"}] * 3
    assert (kept, closed) == (opened, [{"20000", "30000"}] * 3)


def test_the_doors_of_one_move_count_for_all_of_its_batch() -> None:
    async def scenario(site: SmallSite) -> Any:
        doors = Move("swp2", "MAINT", apart=True, doors=(DOOR,))
        outcome = await site.leaf().move([APART, doors])
        return outcome.blockers, rules(site)

    assert play(scenario, **ON) == ((), [{"1", "2", "20000", "30000"}] * 3)


def test_a_port_may_have_its_filter_set_where_it_is() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp1", "RED")
        bind(site, "swp1", NAME, "operational")
        leaf = site.leaf()
        outcome = await leaf.move([Move("swp1", "", apart=True)])
        bound = filters(site)
        off = await leaf.move([Move("swp1", "", apart=False)])
        bind(site, "swp1", NAME, "startup")
        return outcome.blockers, bound, off.blockers, filters(site), site.vrf()

    assert play(scenario, **ON) == ((), {True}, (), {True, False}, "RED")


def test_a_move_may_leave_the_filter_as_it_is() -> None:
    async def scenario(site: SmallSite) -> Any:
        bind(site, "swp1", NAME)
        leaf = site.leaf()
        first = await leaf.move([Move("swp1", "RED", "172.16.0.3/31", apart=None)])
        second = await leaf.move([Move("swp1", "RED", "172.16.0.3/31", apart=None)])
        return first.blockers, second.revision, filters(site), site.vrf(), unbound(site)

    assert play(scenario, **ON) == ((), "", {True}, "RED", [None])


def test_a_move_that_leaves_the_filter_proves_where_the_port_is() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.faults.add("moves_ignored")
        return await site.leaf().move([Move("swp1", "RED", "172.16.0.3/31", apart=None)])

    outcome = play(scenario, switch_apply_limit_s=20.0)

    assert described(outcome) == [(Reason.ISOLATION, "leaf-0")]


@pytest.mark.parametrize("tree", ["applied", "operational"])
def test_a_filter_of_ours_in_any_tree_is_taken_off_with_a_move(tree: str) -> None:
    async def scenario(site: SmallSite) -> Any:
        bind(site, "swp1", NAME, tree)
        bind(site, "swp1", "provisioner_deny4", tree)
        await site.leaf().move([RED])
        return unbound(site)

    [written] = play(scenario)

    assert written[NAME] is None
    assert written["provisioner_deny4"] is None


def test_a_filter_that_is_not_there_is_not_taken_off() -> None:
    async def scenario(site: SmallSite) -> Any:
        await site.leaf().move([RED])
        return unbound(site)

    assert play(scenario) == [None]


def test_every_port_of_a_move_has_to_be_in_place() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp1", "RED")
        outcome = await site.leaf().move([RED, Move("swp2", "RED", "172.16.0.5/31")])
        return outcome.revision, site.vrf("swp2")

    assert play(scenario) == ("1", "RED")


# --- read


def test_the_filter_and_its_ports_are_read_from_every_tree() -> None:
    async def scenario(site: SmallSite) -> Any:
        await site.leaf().move([APART])
        site.put("swp2", "RED", "startup")
        site.put("swp3", "", "startup")
        state = await site.leaf().filter_state()
        site.transport.answer = lambda _asked: NOT_SENT
        return state, await site.leaf().filter_state()

    state, silent = play(scenario, **ON)

    assert [set(f.rules) for f in state.filters.values()] == [{20000, 30000}] * 3
    assert {tree: ports["swp1"] for tree, ports in state.ports.items()} == dict.fromkeys(
        TREES, ("MAINT", True)
    )
    assert state.ports["startup"]["swp2"] == ("RED", False)
    assert state.ports["startup"]["swp3"] == (DEFAULT_VRF, False)
    assert (silent.reason, silent.subject) == (Reason.UNREACHABLE, "leaf-0")


def test_a_port_whose_network_cannot_be_read_spoils_the_reading_of_the_filter() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.applied["interface"]["swp2"]["ip"]["vrf"] = 5
        return await site.leaf().filter_state()

    blocker = play(scenario)

    assert blocker.reason is Reason.MALFORMED
    assert "swp2" in blocker.detail


def test_descriptions_of_ours_are_read_and_others_are_not() -> None:
    label = PortLabel("0123abcd", 1, "node-1", "red", 7)

    async def scenario(site: SmallSite) -> Any:
        ports = site.switch.applied["interface"]
        ports["swp1"]["description"] = written(label)
        ports["swp2"]["description"] = "uplink of the old rack"
        labels = await site.leaf().labels()
        site.transport.answer = lambda _asked: NOT_SENT
        silent = await site.leaf().labels()
        site.transport.answer = lambda _asked: ok([])
        unread = await site.leaf().labels()
        many = ok({f"swp{n}": {} for n in range(8193)})
        site.transport.answer = lambda _asked: many
        return labels, [b.reason for b in (silent, unread, await site.leaf().labels())]

    labels, reasons = play(scenario)

    assert labels == {"swp1": label}
    assert reasons == [Reason.UNREACHABLE, Reason.MALFORMED, Reason.MALFORMED]


def written(label: PortLabel) -> str:
    mark = DatabaseMark(label.database, label.life)
    return write_label(mark, label.node, label.tenant, label.epoch)


# --- descriptions


DESCRIBED = Move("swp1", "RED", "172.16.0.3/31", description="provisioner: node-1")


def descriptions(site: SmallSite) -> list[str | None]:
    asked = [a for a in site.transport.asked if a.line.startswith("PATCH /?rev=")]
    return [a.body["interface"]["swp1"].get("description") for a in asked]


def test_a_switch_that_refuses_a_description_is_moved_without_it() -> None:
    async def scenario(site: SmallSite) -> Any:
        def refuse(asked: Any) -> Reply | None:
            has = asked.line.startswith("PATCH /?rev=") and "description" in str(asked.body)
            return Reply(400, {}, b"unknown property") if has else None

        site.transport.answer = refuse
        outcome = await site.leaf().move([DESCRIBED])
        return outcome, descriptions(site), site.vrf()

    outcome, sent, vrf = play(scenario)

    assert (outcome.blockers, outcome.revision, vrf) == ((), "2", "RED")
    assert sent == [DESCRIBED.description, None]


def test_a_switch_that_takes_no_login_is_not_asked_again_without_a_description() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = lambda asked: (
            Reply(401, {}, b"") if asked.method == "POST" else None
        )
        return await site.leaf().move([DESCRIBED]), site.lines("POST")

    outcome, posts = play(scenario)

    assert described(outcome) == [(Reason.LOGIN_REFUSED, "leaf-0")]
    assert posts == ["POST /revision"]


# --- who waits


def test_a_move_is_put_off_if_any_of_its_ports_is_on_its_way_elsewhere() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        one, other = Move("swp1", "RED"), Move("swp2", "RED")
        outcomes = await asyncio.gather(leaf.move([other]), leaf.move([one, Move("swp2", "BLUE")]))
        return [o.revision for o in outcomes], site.vrf("swp1"), site.vrf("swp2")

    assert play(scenario) == (["1", "2"], "RED", "BLUE")


def test_a_leaf_that_is_closed_while_others_wait_ends_them_and_itself() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        moves = [asyncio.create_task(leaf.move([m])) for m in (RED, Move("swp1", "BLUE"))]
        await site.clock.sleep(1.0)
        writer = leaf._writer
        await leaf.close()
        await asyncio.gather(*moves, return_exceptions=True)
        later = await leaf.move([Move("swp2", "RED")])
        return writer.cancelled(), [m.cancelled() for m in moves], later.blockers, site.vrf()

    cancelled, ended, blockers, vrf = play(scenario)

    assert (cancelled, ended, blockers) == (True, [True, True], ())
    assert vrf in ("default", "RED")  # never the one that had not begun


def test_the_objections_of_who_gave_up_are_not_asked() -> None:
    async def scenario(site: SmallSite) -> Any:
        asked: list[str] = []
        leaf = site.leaf()

        async def objections() -> tuple[()]:
            asked.append("gone")
            return ()

        gone = asyncio.create_task(leaf.move([RED], objections))
        alone = asyncio.create_task(leaf.move([Move("swp2", "RED")]))
        await asyncio.sleep(0)
        gone.cancel()
        await alone
        return asked, site.vrf()

    assert play(scenario) == ([], "default")


def test_one_who_gives_up_while_its_objections_are_read_is_not_moved() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        tasks: list[asyncio.Task[Any]] = []

        async def objections() -> Any:
            tasks[0].cancel()
            await asyncio.sleep(0)
            return (site,)  # some objection: nobody is left to hear of it

        tasks.append(asyncio.create_task(leaf.move([RED], objections)))
        other = await leaf.move([Move("swp2", "RED")])
        await asyncio.gather(*tasks, return_exceptions=True)
        return other.blockers, tasks[0].cancelled(), site.vrf("swp1"), site.vrf("swp2")

    assert play(scenario) == ((), True, "default", "RED")


def test_a_request_is_given_half_a_minute() -> None:
    async def scenario(site: SmallSite) -> Any:
        await site.line().get("/nvue_v1/revision")
        return [a.timeout_s for a in site.transport.asked]

    assert play(scenario) == [30.0]


# --- where a port is, by its filters


GUARD = frozenset({"provisioner_sg_RED_web"})
FREE = Place("RED", False, False)


@pytest.mark.parametrize(
    ("move", "seen", "there"),
    [
        (Move("swp1", "RED"), {FREE}, True),
        (Move("swp1", "RED"), {FREE, FREE._replace(vrf="MAINT")}, False),
        (Move("swp1", "RED"), {FREE._replace(denied=True)}, False),
        (Move("swp1", "RED"), {FREE._replace(apart=True)}, False),
        (Move("swp1", "RED", apart=True), {FREE._replace(apart=True)}, True),
        (Move("swp1", "RED", apart=True), {FREE}, False),
        (Move("swp1", "RED", apart=None), {FREE, FREE._replace(apart=True)}, True),
        (Move("swp1", "RED", apart=None), {FREE._replace(denied=True)}, False),
        (Move("swp1", "RED", guard=min(GUARD)), {FREE._replace(guards=GUARD)}, True),
        (Move("swp1", "RED", guard=min(GUARD)), {FREE, FREE._replace(guards=GUARD)}, False),
        (Move("swp1", "RED"), {FREE._replace(guards=GUARD)}, False),
        (Move("swp1", "RED", denied=True), {FREE._replace(vrf="BLUE", denied=True)}, True),
        (Move("swp1", "RED", denied=True), {FREE, FREE._replace(denied=True)}, False),
        (Move("swp1", "", apart=True), {FREE._replace(apart=True, guards=GUARD)}, True),
        (Move("swp1", "", apart=True), {FREE, FREE._replace(apart=True)}, False),
    ],
)
def test_every_tree_has_the_port_and_its_filters_as_the_move_asks(
    move: Move, seen: set[Place], there: bool
) -> None:
    assert leaf._is_there(move, seen) is there


def test_a_leaf_without_the_filter_has_none_in_any_tree() -> None:
    async def scenario(site: SmallSite) -> Any:
        before = await site.leaf().filter_state()
        await site.leaf().move([APART])
        return before, await site.leaf().filter_state()

    before, after = play(scenario, **ON)

    assert before.filters == dict.fromkeys(TREES)
    assert None not in after.filters.values()
    assert {held for ports in before.ports.values() for _, held in ports.values()} == {False}
    assert {tree: ports["swp1"] for tree, ports in after.ports.items()} == dict.fromkeys(
        TREES, ("MAINT", True)
    )


RULES = (FilterMatch("permit", "icmp"), FilterMatch("deny"))
GUARDED = Move("swp1", "RED", guard=min(GUARD), rules=RULES)


def test_no_move_is_done_while_a_groups_rule_stands_as_a_hand_opened_it() -> None:
    async def scenario(site: SmallSite) -> Any:
        moving = site.leaf()
        first = await moving.move([GUARDED])
        made = [read_filters(getattr(site.switch, tree)["acl"]) for tree in TREES]
        for tree in TREES:
            for rule in getattr(site.switch, tree)["acl"][GUARDED.guard]["rule"].values():
                rule["action"] = {"permit": {}}
        again = await moving.move([GUARDED])
        site.vrf()  # time has passed
        now = [read_filters(getattr(site.switch, tree)["acl"]) for tree in TREES]
        return first.blockers, again.blockers, now == made

    first, refused, closed = play(scenario)

    assert first == ()
    assert refused or closed


@pytest.mark.parametrize(
    ("applied", "in_force", "holds"),
    [(RULES, RULES, True), (RULES[1:], RULES, False), (RULES, RULES[1:], False),
     (RULES, None, False)],
)  # fmt: skip
def test_a_tenants_filter_holds_where_its_rules_are_applied_and_in_force(
    applied: Any, in_force: Any, holds: bool
) -> None:
    class Read:
        async def read_networks(self, _vrfs: Any) -> Any:
            name = GUARDED.guard
            return SimpleNamespace(filters={name: applied}, filters_in_force={name: in_force})

    reading: Any = Read()
    assert asyncio.run(leaf._guards_hold(reading, [GUARDED])) is holds
    nothing: Any = None  # without a tenant's filter, nothing is read
    assert asyncio.run(leaf._guards_hold(nothing, [RED])) is True
