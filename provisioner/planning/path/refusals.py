"""Explain why there is no plan: a blocker for each cause, with the action that removes it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import count

from provisioner.components.kind import DEPLOY
from provisioner.model import versions
from provisioner.model.inventory import WriteObstacle, build_obstacle_blocker
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Step, StepKind
from provisioner.planning.path.distances import Distances
from provisioner.planning.path.hops import Hop
from provisioner.planning.path.tracks import Problem, SearchResult, Track
from provisioner.settings.maintenance import BootWay

_PUSHED = frozenset({"redfish_push", "bluefield_bfb"})  # methods that write through a BMC

_WHAT: dict[Reason, tuple[str, str]] = {
    Reason.NOT_UPDATEABLE: (
        "the device reports that it is not updateable, or only its carrier updates it",
        "Make the device updateable, or add an edge of its carrier to the pinned version.",
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
        "its file has no SHA-256, so its content cannot be verified",
        "Add `sha256` beside `artifact` (an overlay will do).",
    ),
    Reason.MISSING_EVIDENCE: (
        "this edge has no evidence",
        "Add `evidence` to the edge, or try it in a lab.",
    ),
    Reason.ATTEMPTS_EXHAUSTED: (
        "it failed as often as is allowed",
        "Look at the failed attempts in the ledger, repair, and open a new operation.",
    ),
    Reason.NOT_ACTIVATED: (
        "each step of it ended well, as often as is sensible, and another version still runs",
        "Look in the device or host for what holds the old version, then open a new operation.",
    ),
}


def explain_unreachable_pins(problem: Problem, distances: Distances) -> tuple[Blocker, ...]:
    """Return blockers for the components that cannot reach their pin even without any rules.

    If such a component is carried by another one that is blocked too, only the carrier is reported.
    """
    stuck = [
        track
        for index, track in enumerate(problem.tracks)
        if track.goal is not None and track.running and not distances.can_reach_pin(index)
    ]
    edges = problem.moves.matrix.edges
    brought = {k for t in stuck for e in edges.get(t.kind, ()) for k in e.carries}
    own = [t for t in stuck if t.kind not in brought or edges.get(t.kind)]
    return tuple(b for track in own or stuck for b in _explain_unreachable(problem, track))


def explain_failed_activations(problem: Problem) -> tuple[Blocker, ...]:
    """Return blockers for staged, pinned versions whose activation failed too often."""
    return tuple(
        _blocker(Reason.ATTEMPTS_EXHAUSTED, track, f"activating {track.staged.version}")
        for track in problem.tracks
        if track.staged
        and track.goal
        and track.staged.version in track.exhausted - track.without_effect
    )


def explain_failed_search(
    problem: Problem, result: SearchResult, release: str
) -> tuple[Blocker, ...]:
    """Return why the search found no plan although each component has a path of its own."""
    blockers = (*_explain_rules(problem, result), *_explain_pushes(problem, result))
    if blockers:
        return blockers
    if result.exhausted:
        return (_refuse_unfinished(release),)
    return tuple(
        Blocker(
            reason=Reason.NO_PATH,
            subject=_subject(track),
            detail=f"nothing brings it from {track.running} to {_goal(problem, track)}: no edge of "
            "its own, and what carries that version is not going to be updated",
            unblock=f"Add an edge for {track.kind} to the matrix, or correct its pin.",
        )
        for index, track in enumerate(problem.tracks)
        if track.goal is not None and index not in result.hindrances.reached
    ) or (_refuse_combination(release),)


def explain_obstacles(
    steps: Sequence[Step], obstacles: Sequence[WriteObstacle], way: BootWay
) -> tuple[Blocker, ...]:
    """Return a blocker for each obstacle that a BMC reports to a step of the plan.

    A push needs no obstacle to "push" at its BMC, and a set of settings none to "settings"; an
    image of the system boots the maintenance image, by virtual media unless the site's way is
    another one.
    """
    needs: set[tuple[str, str]] = set()
    for step in steps:
        if step.kind is StepKind.UPDATE and step.method in _PUSHED:
            needs |= {(bmc, "push") for bmc in step.bmcs or ("host",)}
        elif step.method.endswith(("_bios_settings", "_bmc_settings")):
            needs |= {(bmc, "settings") for bmc in step.bmcs or ("host",)}
        elif step.method == DEPLOY:
            needs |= {("host", "boot")}
            needs |= {("host", "media")} if way in ("vendor", "virtual_media") else set()
    return tuple(
        build_obstacle_blocker(o)
        for o in obstacles
        if any((o.bmc, need) in needs for need in o.hinders)
    )


def _refuse_unfinished(release: str) -> Blocker:
    return Blocker(
        reason=Reason.CONSTRAINT,
        subject=release,
        detail="no order of updates was met that keeps every rule, and not all orders were tried",
        unblock="Bring some of the components to their pins by hand, or split the rules.",
    )


def _refuse_combination(release: str) -> Blocker:
    return Blocker(
        reason=Reason.CONSTRAINT,
        subject=release,
        detail="each pin can be reached, but not all of them in one node",
        unblock="Look for pins that contradict what other components carry.",
    )


def _explain_rules(problem: Problem, result: SearchResult) -> Iterable[Blocker]:
    """Return the rules that the pins themselves break; if there are none, those met on the way."""
    pinned = _assume_pins(problem)
    numbers = problem.find_broken_rules(pinned) or result.hindrances.rules
    for number, rule in enumerate(problem.rules):
        if number not in numbers:
            continue
        needs = " and ".join(f"{kind} {text}" for kind, text in sorted(rule.needs.items()))
        running = _describe_running(problem, rule.needs)
        yield Blocker(
            reason=Reason.CONSTRAINT,
            subject=min(rule.needs, default=rule.name),
            detail=f"rule '{rule.name}' ({rule.reason}) needs {needs}{running}",
            unblock=f"Bring {', '.join(sorted(rule.needs))} to what the rule needs first.",
        )


def _explain_pushes(problem: Problem, result: SearchResult) -> Iterable[Blocker]:
    for index, to, kind, text in sorted(result.hindrances.conditions):
        track = problem.tracks[index]
        if index in result.hindrances.reached:
            continue
        yield Blocker(
            reason=Reason.CONSTRAINT,
            subject=kind,
            detail=f"{track.kind} {to} may only be written while {kind} {text}"
            f"{_describe_running(problem, {kind: text})}",
            unblock=f"Bring {kind} to {text} first.",
        )


def _describe_running(problem: Problem, kinds: Iterable[str]) -> str:
    """Return a sentence part with the running versions of these kinds, here or on neighbours."""
    sentences: list[str] = []
    for kind in sorted(kinds):
        own = sorted({problem.tracks[i].running for i in problem.by_kind.get(kind, ())})
        neighbour_versions = problem.neighbours.get(kind, ())
        if own:
            sentences.append(f"{kind} runs {', '.join(own)}")
        elif neighbour_versions:
            sentences.append(f"{kind} of its neighbours runs {', '.join(neighbour_versions)}")
        else:
            sentences.append(f"no {kind} is in sight")
    return "; " + ", ".join(sentences)


def _assume_pins(problem: Problem) -> tuple[str, ...]:
    return tuple(
        t.running if t.goal is None else problem.name_goal(index)
        for index, t in enumerate(problem.tracks)
    )


def _explain_unreachable(problem: Problem, track: Track) -> tuple[Blocker, ...]:
    goal = _goal(problem, track)
    path = _find_least_objected_path(problem, track)
    if path is not None:
        return tuple(
            _blocker(reason, track, f"{hop.kind} {hop.start} → {hop.to}", hop.sought)
            for hop in path
            for reason in _objections(track, hop)
        )
    grammar = problem.moves.grammars.get(track.kind, "opaque")
    order = versions.compare(grammar, track.running, goal)
    situation = f"{track.running} runs, {goal} is pinned"
    if order == 1 or order is None:
        if problem.moves.find_one_way_edge(track.kind, track.running, goal):
            return (_blocker(Reason.ANTI_ROLLBACK, track, situation),)
        if order == 1:
            return (_blocker(Reason.DOWNGRADE, track, situation),)
    if grammar != "opaque" and versions.parse_version(grammar, track.running) is None:
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
    listed = (
        f"edges start at {', '.join(starts[:8])}" if starts else "the matrix has no edge for it"
    )
    return (
        Blocker(
            reason=Reason.NO_PATH,
            subject=_subject(track),
            detail=f"no chain of edges leads from {track.running} to {goal}; {listed}",
            unblock=f"Add an edge from {track.running}, with evidence, under edges.{track.kind}.",
        ),
    )


def _find_least_objected_path(problem: Problem, track: Track) -> tuple[Hop, ...] | None:
    """Return the chain of hops to the pin with the fewest objections, or None."""
    ticket = count()  # equal paths are taken in the order of the matrix
    queue: list[tuple[int, int, str, tuple[Hop, ...]]] = [(0, next(ticket), track.running, ())]
    if track.staged:
        queue.append((0, next(ticket), track.staged.version, ()))
    visited: set[str] = set()
    while queue:
        against, _, version, path = heapq.heappop(queue)
        if track.goal is not None and version in track.goal:
            return path
        if version in visited:
            continue
        visited.add(version)
        for hop in problem.moves.find_hops(track.kind, version):
            if hop.to not in visited:
                more = against + len(_objections(track, hop))
                heapq.heappush(queue, (more, next(ticket), hop.to, (*path, hop)))
    return None


def _objections(track: Track, hop: Hop) -> tuple[Reason, ...]:
    out = list(hop.objections)
    device_says = not track.updateable and hop.method.startswith(("redfish", "bluefield"))
    if device_says and Reason.NOT_UPDATEABLE not in out:
        out.append(Reason.NOT_UPDATEABLE)
    if hop.to in track.without_effect:
        out.append(Reason.NOT_ACTIVATED)
    elif hop.to in track.exhausted:
        out.append(Reason.ATTEMPTS_EXHAUSTED)
    return tuple(out)


def name_sought(document: str) -> str:
    """Return the sentence about the document that would close a gap of the matrix, or nothing."""
    return f" Sought: {document}" if document else ""


def _goal(problem: Problem, track: Track) -> str:
    return problem.name_goal(problem.tracks.index(track))


def _subject(track: Track) -> str:
    return track.kind if track.derived else f"{track.kind}/{','.join(track.slots)}"


def _blocker(reason: Reason, track: Track, situation: str, sought: str = "") -> Blocker:
    detail, unblock = _WHAT[reason]
    if reason is Reason.MISSING_EVIDENCE:
        unblock += name_sought(sought)
    return Blocker(
        reason=reason, subject=_subject(track), detail=f"{situation}: {detail}", unblock=unblock
    )
