"""Which daemon gives its work away: one that reaches markedly fewer devices than its peers."""

from __future__ import annotations

import random

import pytest

from provisioner.planning.watch.membership import (
    HOLD_S,
    RETURN_S,
    Fitness,
    Standing,
    describe_unfit_peers,
    find_difference,
    is_alone,
    judge_fitness,
    list_asked,
    read_standing,
    says_the_same,
    shorten,
)

NOW = 1000.0
LOOK_S = 5.0
SILENT = tuple(f"10.0.0.{i}:443" for i in range(8))
OURS = Standing(id="a", at=NOW, tried=12, silent=8, sample=SILENT, round_trip_ms=1.0)
IDLE = Standing(id="b", at=NOW, probed=dict.fromkeys(SILENT, True), round_trip_ms=1.0)


def test_a_peer_that_reaches_the_silent_devices_is_named_with_the_counts():
    told = find_difference(OURS, [IDLE], NOW)

    assert told.startswith("4 of 12 devices that it asked answered; of 8 silent ones 8 answer b")


@pytest.mark.parametrize("asked", [1, 2])
def test_one_or_two_devices_are_enough_where_nothing_else_was_asked_and_a_peer_reaches_all(asked):
    ours = OURS.model_copy(update={"tried": asked, "silent": asked, "sample": SILENT[:asked]})
    told = find_difference(ours, [IDLE], NOW)
    assert told.startswith(f"0 of {asked} devices that it asked answered; of {asked} silent ones")
    gone = IDLE.model_copy(update={"probed": dict.fromkeys(SILENT[1:], True)})
    assert find_difference(ours, [gone], NOW) == ""  # one of them was not tried
    off = IDLE.model_copy(update={"probed": dict.fromkeys(SILENT, False)})
    assert find_difference(ours, [off], NOW) == ""


NO_DIFFERENCE = {
    "nobody else is there": (OURS, []),
    "they are silent for the peer too": (
        OURS,
        [IDLE.model_copy(update={"probed": dict.fromkeys(SILENT, False)})],
    ),
    "the peer has not tried them": (OURS, [IDLE.model_copy(update={"probed": {}})]),
    "two devices are silent": (
        OURS.model_copy(update={"tried": 4, "silent": 2, "sample": SILENT[:2]}),
        [IDLE],
    ),
    "a few of many": (OURS.model_copy(update={"tried": 100}), [IDLE]),
    "the peer's statement is old": (OURS, [IDLE.model_copy(update={"at": NOW - 60.0})]),
    "the peer is not fit": (OURS, [IDLE.model_copy(update={"fit": False})]),
    "the peer is of a version that states nothing": (OURS, [Standing(id="b")]),
    "the peer misses as many others": (
        OURS,
        [IDLE.model_copy(update={"tried": 40, "silent": 32, "sample": ("10.0.9.1:443",)})],
    ),
    "nothing was asked": (Standing(id="a", at=NOW), [IDLE]),
    "the database is slow for all": (
        Standing(id="a", at=NOW, round_trip_ms=300.0),
        [IDLE.model_copy(update={"round_trip_ms": 250.0})],
    ),
    "a round trip within a metropolitan area": (
        Standing(id="a", at=NOW, round_trip_ms=15.0),
        [IDLE],
    ),
}


@pytest.mark.parametrize("case", NO_DIFFERENCE)
def test_there_is_no_difference_where(case):
    ours, peers = NO_DIFFERENCE[case]

    assert find_difference(ours, peers, NOW) == ""


@pytest.mark.parametrize("delay_ms", [50, 100, 500, 1500])
def test_a_member_far_from_the_database_gives_its_work_to_a_near_one(delay_ms):
    ours = Standing(id="a", at=NOW, round_trip_ms=delay_ms)

    told = find_difference(ours, [IDLE], NOW)

    assert told.startswith(f"a round trip to the database takes {delay_ms} ms, from b 1 ms")


def test_a_member_far_from_the_database_keeps_its_work_where_the_near_one_reaches_few_devices():
    slow = Standing(id="a", at=NOW, tried=12, probed=dict.fromkeys(SILENT, True), round_trip_ms=100)

    assert find_difference(slow, [OURS.model_copy(update={"id": "b"})], NOW) == ""
    assert find_difference(OURS, [slow.model_copy(update={"id": "b"})], NOW)
    assert find_difference(slow, [OURS.model_copy(update={"id": "b"}), IDLE], NOW)


def test_a_difference_is_held_before_work_goes_and_over_for_a_minute_before_it_returns():
    fitness = Fitness()
    lasted = []
    for second in range(0, 200, 5):
        why = "less" if 20 <= second < 60 else ""
        fitness = judge_fitness(fitness, why, float(second), alone=False)
        lasted.append((second, fitness.fit))

    unfit = [second for second, fit in lasted if not fit]
    assert unfit[0] == 20 + HOLD_S
    assert unfit[-1] == 60 + RETURN_S - LOOK_S


def test_a_difference_that_comes_and_goes_gives_nothing_away():
    fitness = Fitness()
    for second in range(0, 600, 5):
        why = "less" if second % 10 else ""
        fitness = judge_fitness(fitness, why, float(second), alone=False)
        assert fitness.fit


def test_a_lone_daemon_keeps_its_work_and_takes_it_back():
    assert judge_fitness(Fitness(why="x", since=0.0), "x", 99.0, alone=True).fit
    assert judge_fitness(Fitness(fit=False, why="x"), "x", 99.0, alone=True).fit
    assert is_alone([IDLE.model_copy(update={"fit": False})], NOW)
    assert is_alone([], NOW)
    assert not is_alone([IDLE], NOW)


def test_peers_say_who_drives_nothing():
    [told] = describe_unfit_peers([IDLE, OURS.model_copy(update={"fit": False})], NOW)

    assert told.startswith("a drives nothing")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"tried": "x"}', '{"sample": 3}', '{"surplus": 1}', "null"]
)
def test_what_is_no_statement_states_nothing(text):
    assert read_standing("b", text) == Standing(id="b")


def test_a_statement_is_bounded_and_read_back():
    long = OURS.model_copy(update={"sample": SILENT * 40})

    assert read_standing("a", OURS.model_dump_json(exclude={"id"})) == OURS
    assert len(read_standing("a", long.model_dump_json(exclude={"id"})).sample) == 16
    assert len(list_asked(IDLE, [long.model_copy(update={"sample": SILENT * 40})])) <= 128


class Site:
    """Daemons that look in turn, each with the devices that it has a way to."""

    def __init__(self, ways: list[set[int]], devices: int, work: list[int]) -> None:
        self.ways, self.devices = ways, devices
        self.work = work  # devices that each asks
        self.told = [Standing(id=str(i), at=NOW) for i in range(len(ways))]
        self.fitness = [Fitness() for _ in ways]
        self.remembered = [()] * len(ways)
        self.given_up = [0] * len(ways)
        self.written = 0  # statements that a row was written for; of the others only the time
        self.now = NOW

    def look(self, i: int) -> None:
        fit = self.fitness[i].fit
        peers = [t for j, t in enumerate(self.told) if j != i]
        share = [d for d in range(self.devices) if d % len(self.ways) == i][: self.work[i]]
        asked = {f"{d}:443": d in self.ways[i] for d in share} if fit else {}
        own = [w for w, a in asked.items() if not a][:16] if fit else self.remembered[i]
        sample = tuple(w for w in own if int(w[:-4]) not in self.ways[i])
        before = Standing(id=str(i), fit=fit, sample=tuple(own))
        probed = {w: int(w[:-4]) in self.ways[i] for w in list_asked(before, peers) if w not in own}
        silent = sum(not a for a in asked.values()) if fit else len(sample)
        ours = Standing(
            id=str(i),
            at=self.now,
            fit=fit,
            tried=len(asked) if fit else len(own),
            silent=silent,
            sample=sample,
            probed=probed,
        )
        told = shorten(ours)
        if says_the_same(self.told[i], told):
            self.told[i] = self.told[i].model_copy(update={"at": self.now})
        else:
            self.told[i] = told
            self.written += 1
        why = find_difference(ours, peers, self.now)
        alone = is_alone(peers, self.now)
        self.fitness[i] = judge_fitness(self.fitness[i], why, self.now, alone=alone)
        if fit and not self.fitness[i].fit:
            self.given_up[i] += 1
            self.remembered[i] = sample
            self.told[i] = ours.model_copy(update={"fit": False})


def test_no_reach_makes_daemons_hand_work_to_and_fro_and_one_always_drives():
    chance = random.Random(46)
    gave = 0
    for _ in range(40):
        members, devices = chance.choice((2, 3, 5)), 60
        ways = [
            {d for d in range(devices) if chance.random() < chance.choice((0.0, 0.5, 1.0))}
            if chance.random() < 0.6
            else set(range(devices))
            for _ in range(members)
        ]
        site = Site(ways, devices, [chance.choice((0, 1, 2, 3, 20)) for _ in range(members)])
        for _ in range(60):  # five minutes
            site.now += LOOK_S
            for i in chance.sample(range(members), members):
                site.look(i)
                assert any(f.fit for f in site.fitness)
        assert max(site.given_up) <= 1, (ways, site.given_up)
        gave += sum(site.given_up)
    assert gave > 5


def test_one_without_any_way_gives_all_away_and_takes_it_again_when_the_way_is_back():
    site = Site([set(), set(range(60)), set(range(60))], 60, [20, 20, 0])
    for _ in range(12):
        site.now += LOOK_S
        for i in range(3):
            site.look(i)
    assert [f.fit for f in site.fitness] == [False, True, True]

    site.ways[0] = set(range(60))
    for _ in range(15):
        site.now += LOOK_S
        for i in range(3):
            site.look(i)
    assert [f.fit for f in site.fitness] == [True, True, True]


def test_a_fault_of_all_devices_for_everybody_moves_nothing():
    site = Site([set(), set(), set()], 60, [20, 20, 0])
    for _ in range(60):
        site.now += LOOK_S
        for i in range(3):
            site.look(i)
    assert site.given_up == [0, 0, 0]


@pytest.mark.parametrize("members", [1, 2, 3, 5])
def test_where_nothing_happens_no_daemon_writes_what_it_reaches_however_many_there_are(members):
    """Six of 100 devices are silent, and never the same ones were asked."""
    site = Site([set(range(30, 600))] * members, 600, [0] * members)
    for look in range(60):
        site.now += LOOK_S
        for i in range(members):
            site.work[i] = 500 // members + look % 3
            site.look(i)
        if look == 1:
            site.written = 0

    assert site.written == 0
    assert all(told.at == site.now and told.silent for told in site.told)


STATED = OURS.model_copy(update={"tried": 100, "silent": 50})
CHANGES = {
    "it drives nothing": {"fit": False},
    "it stands elsewhere": {"place": "machine 2"},
    "another device is silent": {"sample": SILENT[1:]},
    "a peer's device answered": {"probed": {"10.0.9.1:443": True}},
    "three more of 100 are silent": {"silent": 53},
    "the database is far": {"round_trip_ms": 100.0},
    "no round trip is known": {"round_trip_ms": 0.0},
}


@pytest.mark.parametrize("case", CHANGES)
def test_what_a_peer_would_judge_by_is_stated_anew_where(case):
    changed = STATED.model_copy(update=CHANGES[case])

    assert says_the_same(STATED, STATED.model_copy(update={"at": NOW + 5, "tried": 101}))
    assert not says_the_same(STATED, changed)
    assert not says_the_same(changed, STATED)


def test_a_daemon_that_drives_nothing_says_so_at_each_look_with_its_silent_devices():
    """Its next life inherits them, if this was said lately."""
    unfit = OURS.model_copy(update={"fit": False, "silent": 0})

    assert not says_the_same(unfit, unfit)
    assert shorten(unfit) == unfit


def test_a_statement_that_was_shown_to_hold_is_as_fresh_as_that_and_no_fresher():
    text = IDLE.model_dump_json(exclude={"id"})

    assert read_standing("b", text, NOW + 7).at == NOW + 7
    assert read_standing("b", text, NOW - 7).at == NOW
    assert read_standing("b", "", NOW) == Standing(id="b"), "who stated nothing shows nothing"
