"""Whether calls of several daemons on one thing may have happened one after the other.

A history of a row, of an operation's epoch or of a leaf's port is *linearizable* if each call
took effect at one moment between its begin and its answer, so that every answer is what a single
copy would have said. The search is that of Wing and Gong with Lowe's memory of what was tried, as
in Porcupine: calls that may come next are tried in turn, and a set of calls that led to a value is
not tried twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

UNREAD: Any = None  # the value of a thing before the first call that says what it is
Step = Callable[[Any, "Call"], Iterable[Any]]


@dataclass
class Call:
    """One call on one thing. `ended` is inf where its caller never got an answer."""

    thing: tuple[str, ...]
    name: str
    given: Hashable
    answer: Hashable
    begun: int
    ended: float = inf
    caller: str = ""


def step_row(value: Any, call: Call) -> Iterator[Any]:
    """A node's row is its generation; a write names the one that it was read at."""
    if call.name == "read":
        if value in (UNREAD, call.answer):
            yield call.answer
    elif call.answer == "written":
        if value in (UNREAD, call.given):
            yield call.given + 1  # type: ignore[operator]
    elif value is UNREAD or value != call.given:
        yield value


def step_epoch(value: Any, call: Call) -> Iterator[Any]:
    """An operation is its epoch and version; its driver's writes name both."""
    if call.name == "take":
        epoch, version = call.answer  # type: ignore[misc]
        if value is UNREAD or value == (epoch - 1, version - 1):
            yield call.answer
    elif call.answer == "written":
        epoch, version = call.given  # type: ignore[misc]
        if value in (UNREAD, call.given):
            yield (epoch, version + 1)
    elif value is UNREAD or value != call.given:
        yield value


def step_port(value: Any, call: Call) -> Iterator[Any]:
    """A port is its VRF; a reading in the middle of a change names more than one."""
    if call.name == "move":
        yield call.given
    elif value is UNREAD:
        yield call.answer[0] if len(call.answer) == 1 else UNREAD  # type: ignore[index, arg-type]
    elif value in call.answer:  # type: ignore[operator]
        yield value


STEPS: dict[str, Step] = {"row": step_row, "epoch": step_epoch, "port": step_port}


def check_calls(calls: Iterable[Call]) -> list[str]:
    """Return a sentence for each thing whose calls cannot be put into one order."""
    of_thing: dict[tuple[str, ...], list[Call]] = defaultdict(list)
    for call in calls:
        of_thing[call.thing].append(call)
    wrong = []
    for thing, mine in sorted(of_thing.items()):
        stuck = find_stuck(mine, STEPS[thing[0]])
        if stuck is not None:
            wrong.append(
                f"{' '.join(thing)} is not linearizable: {stuck.caller} {stuck.name} "
                f"{stuck.given} was answered {stuck.answer}"
            )
    return wrong


def find_stuck(calls: Sequence[Call], step: Step) -> Call | None:
    """Return the call that no order can place, or None where there is an order.

    Of all orders that were tried, it is the call at which the longest one ended.
    """
    waiting = sorted(calls, key=lambda c: c.begun)
    answered = sum(call.ended < inf for call in waiting)
    tried: set[tuple[int, int, Hashable]] = set()
    stack: list[tuple[int, int, Any, int]] = [(0, 0, UNREAD, answered)]
    farthest = 0
    while stack:
        first, later, value, left = stack.pop()
        if not left:
            return None  # the others were never answered, and need not have happened
        while later & 1:  # `later`: bits of calls from `first` on that have taken effect
            first, later = first + 1, later >> 1
        farthest = max(farthest, first)
        for number, after in _list_next(waiting, first, later, value, step):
            state = (first, later | 1 << number - first, after)
            if state not in tried:
                tried.add(state)
                stack.append((*state, left - (waiting[number].ended < inf)))
    return next(c for c in waiting[farthest:] if c.ended < inf)


def _list_next(
    waiting: Sequence[Call], first: int, later: int, value: Any, step: Step
) -> Iterator[tuple[int, Any]]:
    """Yield each call that began before any other one that is left has ended."""
    until = inf
    for number in range(first, len(waiting)):
        call = waiting[number]
        if call.begun > until:
            return
        if later >> number - first & 1:
            continue
        until = min(until, call.ended)
        for after in step(value, call):
            yield number, after
