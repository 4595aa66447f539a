"""What a leaf is asked for when a port moves, when, and what is made of its answers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from small_site import LOOK, LOST, NOT_SENT, RED, SAVED, SmallSite, described, ok, play, replacing

from provisioner.model.outcome import Reason
from provisioner.model.switch import Move
from provisioner.ports import Reply

# --- a move


def test_a_move_looks_sends_one_revision_proves_it_and_saves() -> None:
    async def scenario(site: SmallSite) -> Any:
        outcome = await site.leaf().move([RED])
        return outcome, site.lines(), site.switch.startup == site.switch.applied, site.vrf()

    outcome, lines, saved, vrf = play(scenario)

    assert (outcome.revision, outcome.blockers, saved, vrf) == ("1", (), True, "RED")
    assert lines[:8] == [
        *LOOK,
        "GET /revision",
        "POST /revision",
        "PATCH /?rev=1",
        "PATCH /revision/1",
        "GET /revision/1",
    ]
    assert lines[-6:] == [*LOOK, "PATCH /revision/applied", *SAVED]
    middle = lines[8:-6]
    assert set(middle) == {"GET /revision/1", *LOOK}


def test_a_port_that_is_there_and_saved_is_only_looked_at() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp1", "RED")
        return await site.leaf().move([RED]), site.lines()

    outcome, lines = play(scenario)

    assert (outcome.revision, outcome.blockers) == ("", ())
    assert lines == [*LOOK, *SAVED]


def test_a_port_that_is_there_and_not_saved_is_saved() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp1", "RED", "applied", "operational")
        outcome = await site.leaf().move([RED])
        return outcome, site.lines("PATCH"), site.switch.startup == site.switch.applied

    outcome, patched, saved = play(scenario)

    assert (outcome.revision, outcome.blockers) == ("", ())
    assert (patched, saved) == (["PATCH /revision/applied"], True)


def test_each_leaf_is_asked_with_its_limit() -> None:
    async def scenario(site: SmallSite) -> Any:
        await site.leaf().move([RED])
        return {a.timeout_s for a in site.transport.asked}

    assert play(scenario) == {30.0}


def test_the_looks_at_a_revision_come_later_and_later() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.faults.add("apply_hangs")
        outcome = await site.leaf().move([RED])
        return outcome, site.times("GET /revision/1"), site.lines("POST")

    outcome, times, posted = play(scenario, switch_poll_s=1.0, switch_apply_limit_s=30.0)

    assert described(outcome) == [(Reason.SWITCH_REFUSED, "leaf-0")]
    assert "revision 1 does not end" in outcome.blockers[0].detail
    assert posted == ["POST /revision"]  # a refusal is not tried again
    pauses = [round(b - a, 3) for a, b in itertools.pairwise(times)]
    assert pauses[:3] == [0.2, 0.2, 0.2]
    assert pauses == sorted(pauses)
    assert max(pauses) == 1.0
    assert 30.0 <= times[-1] - times[0] < 31.1


def test_the_looks_at_a_port_that_does_not_follow_come_later_and_later() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.faults.add("moves_ignored")
        outcome = await site.leaf().move([RED])
        return outcome, site.times("GET /interface/swp1?rev=operational")

    outcome, times = play(scenario, switch_poll_s=1.0, switch_apply_limit_s=30.0)

    assert described(outcome) == [(Reason.ISOLATION, "leaf-0")]
    pauses = [round(b - a, 3) for a, b in itertools.pairwise(times[1:])]  # after the first look
    assert pauses[:3] == [0.2, 0.2, 0.2]
    assert pauses == sorted(pauses)
    assert max(pauses) == 1.0
    assert 30.0 <= times[-1] - times[1] < 31.1


def test_a_revision_that_is_refused_is_told_in_the_switchs_words() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.faults.add("apply_fails")
        return await site.leaf().move([RED]), site.lines("POST"), site.vrf()

    outcome, posted, vrf = play(scenario)

    assert described(outcome) == [(Reason.SWITCH_REFUSED, "leaf-0")]
    assert outcome.revision == ""
    assert outcome.blockers[0].detail == (
        "revision 1 is invalid: switchd did not accept the configuration"
    )
    assert (posted, vrf) == (["POST /revision"], "default")


def test_a_revision_that_fails_without_words_says_so() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = replacing({"GET /revision/1": ok({"state": "aborted"})})
        return await site.leaf().move([RED])

    assert play(scenario).blockers[0].detail == "revision 1 is aborted: no reason given"


def test_a_revision_that_cannot_be_read_is_looked_at_again() -> None:
    async def scenario(site: SmallSite) -> Any:
        unread = [ok([]), ok({"state": 1})]

        def answer(asked: Any) -> Reply | None:
            return unread.pop() if asked.line == "GET /revision/1" and unread else None

        site.transport.answer = answer
        return await site.leaf().move([RED])

    assert play(scenario).blockers == ()


def test_a_port_that_does_not_follow_what_was_applied_is_told() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.faults.add("moves_ignored")
        return await site.leaf().move([RED]), site.lines("PATCH")

    outcome, patched = play(scenario, switch_apply_limit_s=20.0)

    assert described(outcome) == [(Reason.ISOLATION, "leaf-0")]
    assert outcome.blockers[0].detail == "applied, but the ports are not where they should be"
    assert outcome.revision == "1"
    assert patched == ["PATCH /?rev=1", "PATCH /revision/1"]  # and nothing is saved


def test_a_configuration_that_is_not_kept_is_told() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.switch.faults.add("save_lost")
        return await site.leaf().move([RED])

    outcome = play(scenario, switch_apply_limit_s=20.0)

    assert described(outcome) == [(Reason.ISOLATION, "leaf-0")]
    assert outcome.blockers[0].detail == "startup differs from applied after saving"
    assert outcome.revision == "1"


def test_a_revision_without_a_name_is_malformed() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = replacing({"POST /revision": ok({})})
        return await site.leaf().move([RED]), site.times("POST /revision")

    outcome, times = play(scenario, switch_poll_s=1.0)

    assert [b.reason for b in outcome.blockers] == [Reason.MALFORMED]
    pauses = [b - a for a, b in itertools.pairwise(times)]
    assert pauses == [pytest.approx(2.0), pytest.approx(4.0)]  # three tries, and no more


@pytest.mark.parametrize("line", [*LOOK, "POST /revision", "PATCH /?rev=1", "PATCH /revision/1"])
def test_one_answer_that_is_lost_is_repaired_by_looking(line: str) -> None:
    async def scenario(site: SmallSite) -> Any:
        lost: list[str] = []

        def lose(asked: Any) -> Exception | None:
            if asked.line == line and not lost:
                lost.append(line)
                return LOST
            return None

        site.transport.lose = lose
        outcome = await site.leaf().move([RED])
        return outcome, lost, site.vrf(), site.switch.startup == site.switch.applied

    outcome, lost, vrf, saved = play(scenario)

    assert (lost, outcome.blockers, vrf, saved) == ([line], (), "RED", True)


def test_a_leaf_that_never_answers_is_tried_three_times() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = lambda _asked: NOT_SENT
        return await site.leaf().move([RED]), site.times("GET /revision")

    outcome, times = play(scenario, switch_poll_s=1.0)

    assert described(outcome) == [(Reason.UNREACHABLE, "leaf-0")]
    assert times == [0.0, 2.0, 6.0]


def test_the_revision_of_an_earlier_try_is_named_though_the_last_one_fails() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.transport.answer = replacing({"GET /?rev=startup": NOT_SENT})
        return await site.leaf().move([RED])

    outcome = play(scenario)

    assert (outcome.revision, described(outcome)) == ("1", [(Reason.UNREACHABLE, "leaf-0")])


# --- filters


def test_a_filter_is_set_where_the_port_stands_and_taken_off_by_the_move() -> None:
    async def scenario(site: SmallSite) -> Any:
        site.put("swp1", "BLUE")
        leaf = site.leaf()
        denied = await leaf.move([Move("swp1", "RED", "172.16.0.3/31", denied=True)])
        again = await leaf.move([Move("swp1", "RED", "172.16.0.3/31", denied=True)])
        during = set(site.switch.operational["interface"]["swp1"]["acl"]), site.vrf()
        moved = await leaf.move([RED])
        return denied, again, during, moved, site.switch.operational["interface"]["swp1"]

    denied, again, during, moved, entry = play(scenario)

    assert (denied.blockers, again.blockers, moved.blockers) == ((), (), ())
    assert (denied.revision, again.revision, moved.revision) == ("1", "", "2")
    assert during == ({"provisioner_deny4", "provisioner_deny6"}, "BLUE")
    assert not entry.get("acl")


def test_a_port_in_its_vrf_with_our_filter_is_not_where_it_should_be() -> None:
    async def scenario(site: SmallSite) -> Any:
        leaf = site.leaf()
        await leaf.move([Move("swp1", "RED", denied=True), Move("swp2", "RED", denied=True)])
        site.put("swp1", "RED")
        outcome = await leaf.move([RED])
        interfaces = site.switch.operational["interface"]
        return outcome, [bool(interfaces[i].get("acl")) for i in ("swp1", "swp2")]

    outcome, filtered = play(scenario)

    assert (outcome.blockers, filtered) == ((), [False, True])


# --- revisions of others


def test_a_revision_of_others_is_waited_for_before_ours_is_made() -> None:
    async def scenario(site: SmallSite) -> Any:
        other = site.switch.new_revision()
        other.changes.append(((), {"interface": {"swp1": {"ip": {"vrf": "BLUE"}}}}))
        site.switch.apply(other, site.clock.now())
        read = await site.leaf().vrfs(["swp1"])
        outcome = await site.leaf().move([RED])
        return read, outcome, site.vrf(), site.times("GET /revision"), site.times("POST /revision")

    read, outcome, vrf, looks, [posted] = play(scenario, switch_poll_s=1.0)

    assert read == {"swp1": {"default", "BLUE"}}
    assert (outcome.blockers, vrf) == ((), "RED")
    waits = [t for t in looks[2:] if t <= posted]
    assert len(waits) > 5
    assert {round(b - a, 3) for a, b in itertools.pairwise(waits)} == {0.2}


def test_a_revision_of_others_that_never_ends_does_not_keep_a_port_for_ever() -> None:
    async def scenario(site: SmallSite) -> Any:
        stuck = ok({"7": {"state": "reloading"}, "8": {"state": "pending"}})
        empty = ok({"ip": {}})
        site.transport.answer = replacing(
            {"GET /revision": stuck, "GET /interface/swp1?rev=7": empty}
        )
        await site.leaf().move([RED])
        return site.lines(), site.times("POST /revision")

    lines, times = play(scenario, switch_apply_limit_s=20.0, switch_poll_s=1.0)

    assert "GET /interface/swp1?rev=7" in lines
    assert "GET /interface/swp1?rev=8" not in lines  # it was never sent
    assert 20.0 <= times[0] < 20.5
