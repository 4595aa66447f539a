"""The planner's judge: its own small model of a node, searched without cleverness.

It shares no code with `planning`. Versions are integers; state is what runs and what waits.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

SECONDS = {"bmc_reset": 300, "warm_reboot": 600, "cold_boot": 900, "ac_cycle": 1200}
COVERS = {
    "bmc_reset": {"bmc_reset"},
    "warm_reboot": {"warm_reboot"},
    "cold_boot": {"cold_boot", "warm_reboot"},
    "ac_cycle": {"ac_cycle", "cold_boot", "warm_reboot", "bmc_reset"},
}


@dataclass(frozen=True)
class Way:
    """An edge. `needs`: (kind, least version) when it is pushed; `brings`: (kind, version)."""

    kind: str
    start: int
    to: int
    resets_by: str  # "none" or a reset
    via: int | None = None
    brings: tuple[str, int] | None = None
    needs: tuple[str, int] | None = None
    downgrade: bool = False
    one_way: bool = False
    seconds: int = 60


@dataclass(frozen=True)
class Law:
    """When `kind` is at least `least`, `other` must be at least `other_least`."""

    kind: str
    least: int
    other: str
    other_least: int


@dataclass(frozen=True)
class Case:
    """`push_is_outage` names kinds whose push alone is an outage."""

    start: dict[str, int]
    staged: dict[str, tuple[int, str]]
    pins: dict[str, int]
    ways: tuple[Way, ...]
    laws: tuple[Law, ...]
    push_is_outage: frozenset[str]
    goals: frozenset[str] | None = None  # the pins that must run at the end; None: all


Waiting = tuple[int, str, tuple[str, int] | None]
State = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, Waiting], ...]]


def broken(case: Case, running: dict[str, int]) -> set[Law]:
    return {
        law
        for law in case.laws
        if running[law.kind] >= law.least and running[law.other] < law.other_least
    }


def ended(case: Case, running: dict[str, int], waiting: dict[str, Waiting]) -> bool:
    goals = case.pins.keys() if case.goals is None else case.goals
    pinned_waits = any(kind in goals for kind in waiting)
    there = all(running[k] == case.pins[k] for k in goals)
    return there and not pinned_waits and not broken(case, running)


def pushes(case: Case, running: dict[str, int]) -> Iterator[Way]:
    """Every single push that the edges allow from here, chains taken apart."""
    for way in case.ways:
        if way.kind not in case.pins:
            continue
        stops = [way.to] if way.via is None else [way.via, way.to]
        nexts = [stops[0]] if running[way.kind] == way.start else []
        if way.via is not None and running[way.kind] == way.via:
            nexts.append(way.to)
        for to in nexts:
            here = running[way.kind]
            if to < here and not way.downgrade:
                continue
            if any(o.one_way and o.kind == way.kind and here >= o.to > to for o in case.ways):
                continue
            if to == way.to:
                sources: list[Way | None] = [way]
            else:  # a stop on the way is installed as any edge that ends there says
                sources = [o for o in case.ways if o.kind == way.kind and o.to == to]
            for source in sources or [None]:
                yield Way(
                    way.kind,
                    here,
                    to,
                    (source or way).resets_by,
                    brings=source.brings if source else None,
                    needs=way.needs if to == way.to else None,
                    seconds=(source or way).seconds,
                )


def collides(kind: str, push: Way, waiting: dict[str, Waiting]) -> bool:
    brought = waiting.get(push.brings[0]) if push.brings and push.brings[0] != kind else None
    if push.brings and brought and brought[0] != push.brings[1]:
        return True
    return any(
        w[2] is not None and w[2][0] == kind and k != kind and w[2][1] != push.to
        for k, w in waiting.items()
    )


def run(
    running: dict[str, int], changes: dict[str, tuple[int, tuple[str, int] | None]]
) -> dict[str, int]:
    """What runs after these kinds begin to run these versions."""
    after = dict(running)
    for _, brings in changes.values():
        if brings and brings[0] in after:
            after[brings[0]] = brings[1]
    return after | {kind: version for kind, (version, _) in changes.items()}


def settle(running: dict[str, int], waiting: dict[str, Waiting]) -> dict[str, Waiting]:
    return {k: w for k, w in waiting.items() if w[0] != running[k]}


def initial(case: Case) -> tuple[dict[str, int], dict[str, Waiting]]:
    waiting: dict[str, Waiting] = {}
    for kind, (version, reset) in case.staged.items():
        if version != case.start[kind]:
            waiting[kind] = (version, reset, None)
    return dict(case.start), waiting


def cheapest(case: Case) -> tuple[int, int, int] | None:
    """(outages, resets, seconds) of the cheapest way, or None after trying everything.

    A reset is only used while something waits for exactly it, unless nothing else helps.
    """
    return search(case, covering=False) or search(case, covering=True)


def search(case: Case, *, covering: bool) -> tuple[int, int, int] | None:
    """The cheapest way; with `covering`, by any reset that activates something."""
    ends = find_ends(case, covering=covering)
    return ends[0] if ends else None


def find_ends(
    case: Case, *, covering: bool, allowed: Callable[[Way | str], bool] = lambda _: True
) -> tuple[tuple[int, int, int], list[State]] | None:
    """The least cost, and every state in which a way of that cost ends, by allowed moves."""
    first, found = initial(case)
    begin: State = (tuple(sorted(first.items())), tuple(sorted(found.items())))
    best = {begin: (0, 0, 0)}
    queue = [((0, 0, 0), 0, begin)]
    ticket = 0
    ends: list[State] = []
    least: tuple[int, int, int] | None = None
    while queue:
        cost, _, state = heapq.heappop(queue)
        if least is not None and cost > least:
            break
        if best[state] < cost:
            continue
        running, waiting = dict(state[0]), dict(state[1])
        if ended(case, running, waiting):
            least = cost
            ends.append(state)
            continue
        for move, step, after_running, after_waiting in moves(
            case, running, waiting, found, covering=covering
        ):
            after: State = (
                tuple(sorted(after_running.items())),
                tuple(sorted(after_waiting.items())),
            )
            total = (cost[0] + step[0], cost[1] + step[1], cost[2] + step[2])
            if allowed(move) and (after not in best or total < best[after]):
                best[after] = total
                ticket += 1
                heapq.heappush(queue, (total, ticket, after))
    return None if least is None else (least, ends)


def cheapest_with_first(case: Case, first: str) -> set[tuple[int, int, int]]:
    """Costs of ways that bring one kind to its pin before any other is pushed, by its own restart.

    Both parts are the cheapest ones; ways to the first end that are equally cheap may differ in
    the rest. Empty: there is no such way.
    """
    begins, _ = initial(case)
    kept = tuple(law for law in case.laws if law not in broken(case, begins))
    ahead = replace(case, goals=frozenset({first}), laws=kept)

    def own(move: Way | str) -> bool:
        return move == "bmc_reset" if isinstance(move, str) else move.kind == first

    part = find_ends(ahead, covering=False, allowed=own)
    if part is None:
        return set()
    costs = set()
    for running, waiting in part[1]:
        staged = {kind: (wait[0], wait[1]) for kind, wait in waiting}
        rest = cheapest(replace(case, start=dict(running), staged=staged))
        if rest is not None:
            costs.add((part[0][0] + rest[0], part[0][1] + rest[1], part[0][2] + rest[2]))
    return costs


def moves(
    case: Case,
    running: dict[str, int],
    waiting: dict[str, Waiting],
    found: dict[str, Waiting],
    *,
    covering: bool,
) -> Iterator[tuple[Way | str, tuple[int, int, int], dict[str, int], dict[str, Waiting]]]:
    """Everything that may be done next: (move, (outages, resets, seconds), running, waiting)."""
    for push in pushes(case, running):
        own = waiting.get(push.kind)
        if own is not None and (own != found.get(push.kind) or own[0] == push.to):
            continue
        if push.needs and running[push.needs[0]] < push.needs[1]:
            continue
        if collides(push.kind, push, waiting):
            continue
        cost = (int(push.kind in case.push_is_outage), 0, push.seconds)
        if push.resets_by == "none":
            after = run(running, {push.kind: (push.to, push.brings)})
            if broken(case, after) <= broken(case, running):
                left = {k: w for k, w in waiting.items() if k != push.kind}
                yield push, cost, after, settle(after, left)
        else:
            yield push, cost, running, waiting | {push.kind: (push.to, push.resets_by, push.brings)}
    waits = {w[1] for w in waiting.values()}
    resets = {r for r, under in COVERS.items() if under & waits} if covering else waits
    for reset in sorted(resets):
        covered = {k: (w[0], w[2]) for k, w in waiting.items() if w[1] in COVERS[reset]}
        after = run(running, covered)
        if broken(case, after) <= broken(case, running):
            left = {k: w for k, w in waiting.items() if k not in covered}
            cost = (int(reset != "bmc_reset"), 1, SECONDS[reset])
            yield reset, cost, after, settle(after, left)
