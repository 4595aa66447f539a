"""Pairing of nodes, round by round: the circle method, within groups and across them.

The circle method is the round-robin tournament: one seat is fixed, the others move one seat a
round; n nodes meet in n - 1 rounds of n / 2 disjoint pairs (SuperBench's "pair-wise" pattern).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def pair_by_circle(names: Sequence[str], number: int) -> list[tuple[str, str]]:
    """Return the pairs of one round; of an odd number one node sits out, each in turn."""
    seats: list[str | None] = [*names]
    if len(seats) % 2:
        seats.append(None)
    if len(seats) < 2:
        return []
    first = seats[0]
    moving = seats[1:]
    turn = number % len(moving)
    seats = [first, *moving[turn:], *moving[:turn]]
    half = len(seats) // 2
    pairs = zip(seats[:half], reversed(seats[half:]), strict=True)
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def pair_within(groups: Sequence[Sequence[str]], number: int) -> list[tuple[str, str]]:
    """The pairs of one round within each group; nodes that sit out are paired across groups."""
    pairs: list[tuple[str, str]] = []
    alone: list[str] = []
    for group in groups:
        met = pair_by_circle(group, number)
        pairs += met
        alone += sorted(set(group) - {n for pair in met for n in pair})
    return pairs + pair_by_circle(alone, number)


def pair_across(groups: Sequence[Sequence[str]], number: int) -> list[tuple[str, str]]:
    """Return the pairs of one round between groups, as far as their sizes allow.

    Members are dealt in turn from all groups and paired with those half the list away, moved on by
    the round.
    """
    if len(groups) < 2:
        return pair_within(groups, number)
    ordered = [name for group in groups for name in group]
    half = (len(ordered) + 1) // 2
    first = ordered[:half]
    second = ordered[half:]
    if not second:
        return []
    turn = number % len(second)
    return list(zip(first, [*second[turn:], *second[:turn]], strict=False))


def split_into_groups(
    groups: Sequence[Sequence[str]], size: int, number: int
) -> list[tuple[str, ...]]:
    """Return disjoint groups of about `size`: neighbours in round 0, then mixed ones."""
    ordered = [name for group in groups for name in group]
    if not ordered:
        return []
    count = max(1, len(ordered) // size)
    if number == 0:
        bounds = [i * len(ordered) // count for i in range(count + 1)]
        return [tuple(ordered[a:b]) for a, b in pairwise(bounds) if b - a >= 2]
    mixed = [tuple(ordered[i::count]) for i in range(count)]
    return [bunch for bunch in mixed if len(bunch) >= 2]
