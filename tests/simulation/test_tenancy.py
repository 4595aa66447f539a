"""Moves of ports on simulated leaves: what is proved, and what is refused."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from leaf_rig import Rig

from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.release.port_isolation import placement_of

A, B, C = "su0-n00", "su0-n01", "su0-n02"


def play(scenario: Callable[[Rig], Awaitable[Any]], **options: Any) -> Any:
    """Run a scenario on a fresh site."""

    async def main() -> Any:
        rig = await Rig(**options).open()
        try:
            return await scenario(rig)
        finally:
            await rig.close()

    return asyncio.run(main())


def test_a_move_is_proved_by_the_operational_state_and_survives_a_reboot() -> None:
    async def scenario(rig: Rig) -> Any:
        ports = rig.nodes[A].ports
        outcome = await rig.tenancy.move(ports, "RED")
        for port in ports:
            switch = rig.site.switches[port.switch]
            assert switch.startup == switch.applied
        return outcome, rig.truth(A), rig.truth(B), placement_of(ports, outcome.placements)

    outcome, mine, others, placement = play(scenario)

    assert outcome.blockers == ()
    assert outcome.persisted
    assert len(outcome.revisions) == 8
    assert (mine, others) == ({"RED"}, {"default"})
    assert placement == ("customer", "RED")


def test_a_second_move_to_the_same_place_changes_nothing() -> None:
    async def scenario(rig: Rig) -> Any:
        await rig.tenancy.move(rig.nodes[A].ports, "RED")
        before = rig.revisions()
        again = await rig.tenancy.move(rig.nodes[A].ports, "RED")
        return again, before == rig.revisions()

    again, unchanged = play(scenario)

    assert again.blockers == ()
    assert again.persisted
    assert again.revisions == ()
    assert unchanged


def test_moves_of_many_nodes_share_one_revision_on_each_leaf() -> None:
    async def scenario(rig: Rig) -> Any:
        hosts = [n for n in rig.nodes.values() if n.ports]
        outcomes = await asyncio.gather(
            *(rig.tenancy.move(n.ports, "RED" if i % 2 else "BLUE") for i, n in enumerate(hosts))
        )
        return outcomes, rig.revisions(), [rig.truth(n.id) for n in hosts]

    outcomes, revisions, truth = play(scenario, nodes=12)

    assert [o.blockers for o in outcomes] == [()] * 12
    assert set(revisions.values()) == {1}
    assert truth == [{"BLUE"}, {"RED"}] * 6


def test_leaves_of_one_host_are_never_changed_at_the_same_time() -> None:
    async def scenario(rig: Rig) -> Any:
        await rig.tenancy.move(rig.nodes[A].ports, "RED")
        return [name for name, method, _ in rig.switches.calls if method == "PATCH"]

    patched = play(scenario)

    assert patched == sorted(patched)


def test_a_fence_goes_to_all_leaves_at_once() -> None:
    async def scenario(rig: Rig) -> Any:
        ports = rig.nodes[A].ports
        await rig.tenancy.move(ports, "RED")
        began = rig.clock.now()
        await rig.tenancy.move(ports, "MAINT")
        leaves = [rig.site.switches[p.switch] for p in ports]
        moves = [e.time - began for s in leaves for e in s.log if e.kind == "vrf"]
        return [at for at in moves if at > 0]

    moved_after_s = play(scenario)

    assert len(moved_after_s) == 8
    assert max(moved_after_s) - min(moved_after_s) < 2.0  # a revision alone takes 5.5 s


@pytest.mark.parametrize("lost", range(1, 40))
def test_a_lost_answer_is_repaired_by_looking(lost: int) -> None:
    async def scenario(rig: Rig) -> Any:
        rig.switches.lose = lambda count, _method, _path: count == lost
        outcome = await rig.tenancy.move(rig.nodes[A].ports, "RED")
        if outcome.blockers:  # the last reading was lost: the turn is made again
            assert {b.reason for b in outcome.blockers} == {Reason.UNREACHABLE}
            outcome = await rig.tenancy.move(rig.nodes[A].ports, "RED")
        return outcome, rig.truth(A)

    outcome, truth = play(scenario)

    assert outcome.blockers == ()
    assert truth == {"RED"}


@pytest.mark.parametrize("crashed_after", [1, 3, 5, 8, 13, 21, 34])
def test_a_crash_at_any_point_is_repaired_by_looking(crashed_after: int) -> None:
    class Crash(Exception):
        pass

    async def scenario(rig: Rig) -> Any:
        def crash(count: int, _method: str, _path: str) -> bool:
            if count == crashed_after:
                raise Crash
            return False

        rig.switches.lose = crash
        with pytest.raises(Crash):
            await rig.tenancy.move(rig.nodes[A].ports, "RED")
        rig.switches.lose = lambda _count, _method, _path: False
        outcome = await rig.tenancy.move(rig.nodes[A].ports, "RED")
        return outcome, rig.truth(A)

    outcome, truth = play(scenario)

    assert outcome.blockers == ()
    assert truth == {"RED"}


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        ("apply_fails", Reason.SWITCH_REFUSED, "switchd did not accept"),
        ("apply_hangs", Reason.SWITCH_REFUSED, "does not end"),
        ("moves_ignored", Reason.ISOLATION, "not where they should be"),
        ("save_lost", Reason.ISOLATION, "startup differs"),
    ],
)
def test_a_leaf_that_does_not_follow_is_named(fault: str, reason: Reason, words: str) -> None:
    async def scenario(rig: Rig) -> Any:
        rig.site.switches["leaf-su0-r3"].faults.add(fault)
        outcome = await rig.tenancy.move(rig.nodes[A].ports, "RED")
        return outcome, rig.truth(A)

    outcome, truth = play(scenario)

    assert [(b.reason, b.subject) for b in outcome.blockers] == [(reason, "leaf-su0-r3")]
    assert words in outcome.blockers[0].detail
    assert not outcome.persisted
    assert "default" in truth  # the first obstacle ended it: later rails were not moved


def test_a_leak_into_another_vrf_is_seen() -> None:
    async def scenario(rig: Rig) -> Any:
        port = rig.nodes[A].ports[2]
        rig.site.switches[port.switch].leaks["172.64.0.0/31"] = "BLUE"
        return await rig.tenancy.move(rig.nodes[A].ports, "RED")

    outcome = play(scenario)

    assert [(b.reason, b.subject) for b in outcome.blockers] == [(Reason.ISOLATION, "leaf-su0-r2")]
    assert "BLUE: 172.64.0.0/31" in outcome.blockers[0].detail


def test_fencing_goes_on_past_a_silent_leaf() -> None:
    async def scenario(rig: Rig) -> Any:
        await rig.tenancy.move(rig.nodes[A].ports, "RED")
        rig.site.nvue["leaf-su0-r0"].reachable = lambda: False
        return await rig.tenancy.move(rig.nodes[A].ports, "MAINT"), rig.truth(A)

    outcome, truth = play(scenario)

    assert {b.reason for b in outcome.blockers} == {Reason.UNREACHABLE}
    assert not outcome.persisted
    assert truth == {"RED", "MAINT"}


def test_one_bad_port_does_not_stop_the_other_nodes_of_its_revision() -> None:
    async def scenario(rig: Rig) -> Any:
        bad = tuple(p.model_copy(update={"interface": "swp99s9"}) for p in rig.nodes[B].ports)
        moves = (rig.nodes[A].ports, bad, rig.nodes[C].ports)
        outcomes = await asyncio.gather(*(rig.tenancy.move(p, "RED") for p in moves))
        return outcomes, rig.truth(A), rig.truth(C)

    (good, bad, also), mine, theirs = play(scenario)

    assert good.blockers == also.blockers == ()
    assert bad.blockers[0].reason is Reason.SWITCH_REFUSED
    assert mine == theirs == {"RED"}


def test_a_port_without_an_address_is_not_released_but_can_be_fenced() -> None:
    async def scenario(rig: Rig) -> Any:
        ports = tuple(p.model_copy(update={"address": ""}) for p in rig.nodes[A].ports)
        return await rig.tenancy.move(ports, "RED"), await rig.tenancy.move(ports, "MAINT")

    released, fenced = play(scenario)

    assert released.blockers[0].reason is Reason.ISOLATION
    assert fenced.blockers == ()


def test_a_read_says_where_every_port_is_or_why_not() -> None:
    async def scenario(rig: Rig) -> Any:
        ports = rig.nodes[A].ports
        before = await rig.tenancy.read(ports)
        unknown = (ports[0].model_copy(update={"switch": "nobody"}),)
        return placement_of(ports, before), await rig.tenancy.read(unknown)

    placement, unknown = play(scenario)

    assert placement == ("none", "")
    assert isinstance(unknown, Blocker)
    assert unknown.reason is Reason.NOT_EXPECTED


def test_a_caller_that_gives_up_leaves_the_others_their_answers() -> None:
    async def scenario(rig: Rig) -> Any:
        leaving = asyncio.create_task(rig.tenancy.move(rig.nodes[A].ports, "RED"))
        staying = asyncio.create_task(rig.tenancy.move(rig.nodes[B].ports, "BLUE"))
        for _ in range(200):
            await asyncio.sleep(0)
        leaving.cancel()
        outcome = await staying
        return outcome, leaving.cancelled(), rig.truth(B)

    outcome, cancelled, truth = play(scenario)

    assert outcome.blockers == ()
    assert cancelled
    assert truth == {"BLUE"}


def test_a_switch_that_refuses_the_login_is_named_and_not_asked_again() -> None:
    async def scenario(rig: Rig) -> Any:
        rig.site.switches["leaf-su0-r0"].password_expired = True
        outcome = await rig.tenancy.move(rig.nodes[A].ports, "RED")
        asked = [c for c in rig.switches.calls if c[0] == "leaf-su0-r0"]
        return outcome, len(asked)

    outcome, asked = play(scenario)

    assert {b.reason for b in outcome.blockers} == {Reason.LOGIN_REFUSED}
    assert asked == 2  # one look to move, one to say where the ports are


def test_a_revision_that_a_crashed_daemon_has_sent_is_waited_for() -> None:
    async def scenario(rig: Rig) -> Any:
        port = rig.nodes[A].ports[0]
        await rig.tenancy.move(rig.nodes[A].ports, "MAINT")
        switch = rig.site.switches[port.switch]
        sent = switch.new_revision()
        sent.changes.append(((), {"interface": {port.interface: {"ip": {"vrf": "RED"}}}}))
        switch.apply(sent, rig.clock.now())
        read = await rig.tenancy.read(rig.nodes[A].ports)
        fenced = await rig.tenancy.move(rig.nodes[A].ports, "MAINT")
        await rig.clock.sleep(60.0)
        return placement_of(rig.nodes[A].ports, read), fenced, rig.truth(A)

    read, fenced, truth = play(scenario)

    assert read == ("mixed", "")
    assert fenced.blockers == ()
    assert truth == {"MAINT"}


def test_a_port_whose_vrf_a_reboot_would_change_is_not_settled() -> None:
    async def scenario(rig: Rig) -> Any:
        ports = rig.nodes[A].ports
        await rig.tenancy.move(ports, "RED")
        switch = rig.site.switches[ports[0].switch]
        saved = copy.deepcopy(switch.startup)
        await rig.tenancy.move(ports, "MAINT")
        switch.startup = saved  # it was never saved: the daemon ended before
        before = placement_of(ports, await rig.tenancy.read(ports))
        again = await rig.tenancy.move(ports, "MAINT")
        return before, again, placement_of(ports, await rig.tenancy.read(ports))

    before, again, after = play(scenario)

    assert before == ("mixed", "")
    assert again.blockers == ()
    assert after == ("maintenance", "MAINT")


def test_a_port_that_a_foreign_hand_moved_is_denied_where_it_stands() -> None:
    async def scenario(rig: Rig) -> Any:
        ports = rig.nodes[A].ports
        await rig.tenancy.move(ports, "RED")
        switch = rig.site.switches[ports[0].switch]
        for tree in (switch.applied, switch.startup, switch.operational):
            tree["interface"][ports[0].interface]["ip"]["vrf"] = "BLUE"
        problems = await rig.tenancy.deny(ports, "RED")
        entry = switch.operational["interface"][ports[0].interface]
        entered = [e.detail for e in switch.log if e.kind == "vrf"]
        await rig.tenancy.move(ports, "MAINT")
        return problems, set(entry["acl"]), entered, rig.truth(A)

    problems, filters, entered, truth = play(scenario)

    assert problems == ()
    assert filters == {"provisioner_deny4", "provisioner_deny6"}
    assert entered == ["default -> RED"]  # once, and not again by the filter
    assert truth == {"MAINT"}
