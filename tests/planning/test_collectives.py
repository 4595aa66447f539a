"""Collectives over many nodes: who is with whom, who is condemned, and who stays open."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from provisioner.model.outcome import Reason
from provisioner.planning.fault_location.fabric_rounds import ROUNDS_MAX, find_blockers, plan_round
from provisioner.planning.fault_location.isolation_words import (
    Fabric,
    FabricLink,
    FabricNode,
    FabricTest,
    IsolationPolicy,
    Observation,
    RailOutcome,
    RailResult,
)

POLICY = IsolationPolicy()
Show = Callable[[FabricTest, int], RailOutcome]


def fabric(count: int) -> Fabric:
    return Fabric(
        nodes=tuple(
            FabricNode(name=f"n{i:02d}", links=(FabricLink(rail=0, leaf=f"leaf{i // 8}"),))
            for i in range(count)
        )
    )


def lived(
    count: int, sizes: tuple[int, ...], show: Show, good: Collection[str] | None = None
) -> tuple[list[Observation], dict[str, tuple[Reason, str]]]:
    """Every round to its end, and who is blocked by what."""
    site = fabric(count)
    names = [n.name for n in site.nodes] if good is None else sorted(good)
    seen: list[Observation] = []
    for number in range(2, 40):
        found = plan_round(site, seen, names, sizes, number, POLICY)
        if found is None:
            blocked = find_blockers(seen, names, sizes, POLICY)
            return seen, {n: (b[0].reason, b[0].subject) for n, b in blocked.items()}
        used = [n for t in found.tests for n in t.nodes]
        assert len(used) == len(set(used))
        assert set(used) <= set(names)
        for test in found.tests:
            shown = show(test, number)
            result = RailResult(rail=-1, shown=shown)
            seen.append(Observation(test=test, round_number=number, results=(result,)))
    raise AssertionError("it never ends")


def bad(*culprits: str, shown: RailOutcome = RailOutcome.FAIL) -> Show:
    return lambda test, _number: shown if set(culprits) & set(test.nodes) else RailOutcome.PASS


@pytest.mark.parametrize(("count", "sizes"), [(4, (2,)), (9, (2, 4)), (64, (8, 16)), (3, (64,))])
def test_sound_nodes_are_each_in_one_collective_of_each_size(
    count: int, sizes: tuple[int, ...]
) -> None:
    seen, blocked = lived(count, sizes, bad())

    assert blocked == {}
    for size in sizes:
        mine = [n for o in seen if o.test.name.startswith(f"c{size}r") for n in o.test.nodes]
        assert sorted(mine) == [f"n{i:02d}" for i in range(count)]


@pytest.mark.parametrize("shown", [RailOutcome.FAIL, RailOutcome.TIMEOUT, RailOutcome.WRONG_DATA])
@pytest.mark.parametrize(
    ("count", "size", "culprit"),
    [(8, 4, "n05"), (8, 8, "n02"), (32, 8, "n17"), (64, 64, "n63"), (8, 2, "n00")],
)
def test_a_node_that_fails_only_among_many_is_named_alone(
    count: int, size: int, culprit: str, shown: RailOutcome
) -> None:
    _, blocked = lived(count, (size,), bad(culprit, shown=shown))

    assert blocked == {culprit: (Reason.CHECK_FAILED, f"{culprit}/collectives")}


def test_two_of_them_are_both_named() -> None:
    _, blocked = lived(32, (8,), bad("n03", "n20"))

    assert {s for _, s in blocked.values()} == {"n03/collectives", "n20/collectives"}


def test_one_bad_result_by_chance_blames_nobody() -> None:
    first: list[str] = []

    def show(test: FabricTest, number: int) -> RailOutcome:
        if number == 2 and not first:
            first.append(test.name)
            return RailOutcome.FAIL
        return RailOutcome.PASS

    assert lived(16, (4,), show)[1] == {}


def test_where_every_collective_fails_nobody_is_condemned_and_nobody_passes() -> None:
    seen, blocked = lived(16, (8,), lambda _t, _n: RailOutcome.FAIL)

    assert {r for r, _ in blocked.values()} == {Reason.CHECK_SKIPPED}
    assert len(blocked) == 16
    assert len({o.round_number for o in seen}) == ROUNDS_MAX


def test_what_could_not_be_run_is_no_pass() -> None:
    _, blocked = lived(4, (4,), lambda _t, _n: RailOutcome.NOT_RUN)

    assert {r for r, _ in blocked.values()} == {Reason.CHECK_SKIPPED}


def test_wrong_data_that_never_comes_again_is_not_outweighed_by_passes() -> None:
    def show(_test: FabricTest, number: int) -> RailOutcome:
        return RailOutcome.WRONG_DATA if number == 2 else RailOutcome.PASS

    _, blocked = lived(4, (4,), show)

    assert len(blocked) == 4
    assert {r for r, _ in blocked.values()} == {Reason.CHECK_SKIPPED}


def test_only_nodes_that_their_pairs_cleared_take_part() -> None:
    seen, _ = lived(8, (4,), bad(), good={"n00", "n01", "n02", "n03", "n07"})

    assert {n for o in seen for n in o.test.nodes} == {"n00", "n01", "n02", "n03", "n07"}


def test_a_slow_collective_is_no_pass() -> None:
    site = fabric(4)
    found = plan_round(site, [], [n.name for n in site.nodes], (4,), 2, POLICY)
    assert found is not None
    slow = RailResult(rail=-1, shown=RailOutcome.PASS, ratio=0.8)
    seen = [Observation(test=t, round_number=2, results=(slow,)) for t in found.tests]

    assert len(find_blockers(seen, [n.name for n in site.nodes], (4,), POLICY)) == 4
