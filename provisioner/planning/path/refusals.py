"""Why there is no plan: each "no" with its reason, and with what would take it away."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count

from provisioner.model import versions
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.path.distances import Distances
from provisioner.planning.path.hops import Hop
from provisioner.planning.path.search import EXPANSIONS_MAX, Found
from provisioner.planning.path.tracks import Problem, Track

_WHAT: dict[Reason, tuple[str, str]] = {
    Reason.NOT_UPDATEABLE: (
        "the device says that it takes no update, or it is only updated by what carries it",
        "Make the device updateable, or give an edge of what carries it to the pinned version.",
    ),
    Reason.METHOD_FORBIDDEN: (
        "the site does not allow this method (ONIE destroys the configuration)",
        "Allow it by the setting `switch_methods_allowed`, or add an edge by image.",
    ),
    Reason.DOWNGRADE: (
        "it is older than what runs, and the edge does not allow a downgrade",
        "Pin a version that is not older, or mark the edge `downgrade: true` with its evidence.",
    ),
    Reason.ANTI_ROLLBACK: (
        "a one-way edge was passed: the device's security version forbids going back",
        "Pin a version that is not older; the device cannot go back.",
    ),
    Reason.MISSING_ARTIFACT: (
        "the matrix names no file to install it from",
        "Add `artifact` and `sha256` to the edge or pin (an overlay will do).",
    ),
    Reason.MISSING_DIGEST: (
        "its file has no SHA-256, so nobody can tell whether it is the right one",
        "Add `sha256` beside `artifact` (an overlay will do).",
    ),
    Reason.MISSING_EVIDENCE: (
        "nobody vouches for this edge: it has no evidence",
        "Add `evidence` to the edge, or try it in a lab.",
    ),
    Reason.ATTEMPTS_EXHAUSTED: (
        "it failed as often as is allowed",
        "Look at the failed attempts in the ledger, repair, and open a new operation.",
    ),
}


def per_track(problem: Problem) -> tuple[Blocker, ...]:
    """Components that cannot reach their pin even if every rule is left aside.

    What another component would bring is not told beside the reason why that one cannot move.
    """
    distances = Distances(problem)
    stuck = [
        track
        for index, track in enumerate(problem.tracks)
        if track.goal is not None and track.running and not distances.reachable(index)
    ]
    edges = problem.moves.matrix.edges
    brought = {k for t in stuck for e in edges.get(t.kind, ()) for k in e.carries}
    own = [t for t in stuck if t.kind not in brought or edges.get(t.kind)]
    return tuple(b for track in own or stuck for b in _unreachable(problem, track))


def exhausted(problem: Problem) -> tuple[Blocker, ...]:
    """What is staged and needed, but failed to activate too often."""
    return tuple(
        _blocker(Reason.ATTEMPTS_EXHAUSTED, track, f"activating {track.staged.version}")
        for track in problem.tracks
        if track.staged and track.goal and track.staged.version in track.exhausted
    )


def of_search(problem: Problem, found: Found, release: str) -> tuple[Blocker, ...]:
    """Why the search ended without a plan although each component has a path of its own."""
    if found.limited:
        return (
            Blocker(
                reason=Reason.SEARCH_LIMIT,
                subject=release,
                detail=f"no answer within {EXPANSIONS_MAX} states",
                unblock="Simplify the matrix: fewer parallel edges or rules for these components.",
            ),
        )
    blockers = (*_rules(problem, found), *_pushes(problem, found))
    if blockers:
        return blockers
    return tuple(
        Blocker(
            reason=Reason.NO_PATH,
            subject=_subject(track),
            detail=f"nothing brings it from {track.running} to {_goal(problem, track)}: no edge of "
            "its own, and what carries that version is not going to be updated",
            unblock=f"Add an edge for {track.kind} to the matrix, or correct its pin.",
        )
        for index, track in enumerate(problem.tracks)
        if track.goal is not None and index not in found.reached
    ) or (_together(release),)


def _together(release: str) -> Blocker:
    return Blocker(
        reason=Reason.CONSTRAINT,
        subject=release,
        detail="each pin can be reached, but not all of them in one node",
        unblock="Look for pins that contradict what other components carry.",
    )


def _rules(problem: Problem, found: Found) -> Iterable[Blocker]:
    """Rules that the pins themselves break here; if there are none, those met on the way."""
    pinned = _if_all_pins_ran(problem)
    names = problem.broken(pinned) or found.broken
    for rule in problem.rules:
        if rule.name not in names:
            continue
        needs = " and ".join(f"{kind} {text}" for kind, text in sorted(rule.needs.items()))
        yield Blocker(
            reason=Reason.CONSTRAINT,
            subject=min(rule.needs, default=rule.name),
            detail=f"rule '{rule.name}' ({rule.reason}) needs {needs}{_run(problem, rule.needs)}",
            unblock=f"Bring {', '.join(sorted(rule.needs))} to what the rule needs first.",
        )


def _pushes(problem: Problem, found: Found) -> Iterable[Blocker]:
    for index, to, kind, text in sorted(found.hindered):
        track = problem.tracks[index]
        if index in found.reached:
            continue
        yield Blocker(
            reason=Reason.CONSTRAINT,
            subject=kind,
            detail=f"{track.kind} {to} may only be written while {kind} {text}"
            f"{_run(problem, {kind: text})}",
            unblock=f"Bring {kind} to {text} first.",
        )


def _run(problem: Problem, kinds: Iterable[str]) -> str:
    """What runs now of these kinds, here or at the other ends of the cables."""
    words: list[str] = []
    for kind in sorted(kinds):
        own = sorted({problem.tracks[i].running for i in problem.by_kind.get(kind, ())})
        there = problem.neighbours.get(kind, ())
        if own:
            words.append(f"{kind} runs {', '.join(own)}")
        elif there:
            words.append(f"{kind} of its neighbours runs {', '.join(there)}")
        else:
            words.append(f"no {kind} is in sight")
    return "; " + ", ".join(words)


def _if_all_pins_ran(problem: Problem) -> tuple[str, ...]:
    pins = problem.moves.pins
    return tuple(
        t.running if t.goal is None else problem.moves.spelled(t.kind, pins[t.kind].version)
        for t in problem.tracks
    )


def _unreachable(problem: Problem, track: Track) -> tuple[Blocker, ...]:
    goal = _goal(problem, track)
    path = _least_objected(problem, track)
    if path is not None:
        return tuple(
            _blocker(reason, track, f"{hop.kind} {hop.start} → {hop.to}")
            for hop in path
            for reason in _objections(track, hop)
        )
    grammar = problem.moves.grammars.get(track.kind, "opaque")
    order = versions.compare(grammar, track.running, goal)
    what = f"{track.running} runs, {goal} is pinned"
    if order == 1 or order is None:
        if problem.moves.bars(track.kind, track.running, goal):
            return (_blocker(Reason.ANTI_ROLLBACK, track, what),)
        if order == 1:
            return (_blocker(Reason.DOWNGRADE, track, what),)
    if grammar != "opaque" and versions.key(grammar, track.running) is None:
        return (
            Blocker(
                reason=Reason.UNKNOWN_GRAMMAR,
                subject=_subject(track),
                detail=f"{track.running!r} cannot be read as a version of the form '{grammar}', "
                "and no edge starts at exactly this text",
                unblock=f"Add an edge from exactly this version under edges.{track.kind}.",
            ),
        )
    starts = sorted(
        {v for e in problem.moves.matrix.edges.get(track.kind, ()) for v in e.from_versions}
    )
    known = f"edges start at {', '.join(starts[:8])}" if starts else "the matrix has no edge for it"
    return (
        Blocker(
            reason=Reason.NO_PATH,
            subject=_subject(track),
            detail=f"no chain of edges leads from {track.running} to {goal}; {known}",
            unblock=f"Add an edge from {track.running}, with evidence, under edges.{track.kind}.",
        ),
    )


def _least_objected(problem: Problem, track: Track) -> tuple[Hop, ...] | None:
    """The chain of hops to the pin with the fewest objections, objections being allowed."""
    ticket = count()  # equal paths are taken in the order of the matrix
    queue: list[tuple[int, int, str, tuple[Hop, ...]]] = [(0, next(ticket), track.running, ())]
    if track.staged:
        queue.append((0, next(ticket), track.staged.version, ()))
    done: set[str] = set()
    while queue:
        against, _, version, path = heapq.heappop(queue)
        if track.goal is not None and version in track.goal:
            return path
        if version in done:
            continue
        done.add(version)
        for hop in problem.moves.from_(track.kind, version):
            if hop.to not in done:
                more = against + len(_objections(track, hop))
                heapq.heappush(queue, (more, next(ticket), hop.to, (*path, hop)))
    return None


def _objections(track: Track, hop: Hop) -> tuple[Reason, ...]:
    out = list(hop.objections)
    device_says = not track.updateable and hop.method.startswith(("redfish", "bluefield"))
    if device_says and Reason.NOT_UPDATEABLE not in out:
        out.append(Reason.NOT_UPDATEABLE)
    if hop.to in track.exhausted:
        out.append(Reason.ATTEMPTS_EXHAUSTED)
    return tuple(out)


def _goal(problem: Problem, track: Track) -> str:
    return problem.moves.spelled(track.kind, problem.moves.pins[track.kind].version)


def _subject(track: Track) -> str:
    return track.kind if track.derived else f"{track.kind}/{','.join(track.slots)}"


def _blocker(reason: Reason, track: Track, what: str) -> Blocker:
    detail, unblock = _WHAT[reason]
    return Blocker(
        reason=reason, subject=_subject(track), detail=f"{what}: {detail}", unblock=unblock
    )
