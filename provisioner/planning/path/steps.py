"""Turn the search's moves into steps with their preconditions, costs and reasons."""

from __future__ import annotations

from provisioner.model.inventory import Activation
from provisioner.model.plan import Precondition, Step, StepKind
from provisioner.planning.path import activation as act
from provisioner.planning.path.search import Move, Push, Reset, State
from provisioner.planning.path.tracks import Problem


def build_steps(
    problem: Problem,
    moves: tuple[tuple[Move, State], ...],
    release: str,
    order: str = "",
    first: int = 0,
) -> tuple[Step, ...]:
    """Return one step per move, in order.

    `order` says why the `first` moves come before the others, where their costs do not.
    """
    out: list[Step] = []
    for position, (move, before) in enumerate(moves):
        later_moves = tuple(m for m, _ in moves[position + 1 :])
        if isinstance(move, Push):
            out.append(_update(problem, move, before, later_moves, release))
        else:
            ahead = order if position < first else ""
            out.append(_activate(problem, move, before, later_moves, ahead))
    return tuple(out)


def _update(
    problem: Problem, move: Push, before: State, later_moves: tuple[Move, ...], release: str
) -> Step:
    hop = move.hop
    track = problem.tracks[move.track]
    needed = [i for kind, _ in hop.requires for i in problem.by_kind.get(kind, ())]
    return Step(
        kind=StepKind.UPDATE,
        component=hop.kind,
        slots=track.slots,
        from_version=hop.start,
        to_version=hop.to,
        carries=hop.carries,
        method=hop.method,
        artifact=hop.artifact,
        sha256=hop.sha256,
        force=hop.downgrade,
        activation=hop.activation,
        bmcs=tuple(sorted({s.bmc for s in track.reported if s.bmc})),
        disruption=hop.disruption,
        duration_s=hop.duration_s,
        expected=_expected(problem, before, [move.track, *needed]),
        reason=_explain_update(problem, move, later_moves, release),
    )


def _explain_update(
    problem: Problem, move: Push, later_moves: tuple[Move, ...], release: str
) -> str:
    hop = move.hop
    goal = problem.name_goal(move.track)
    clauses = [f"{release} pins {hop.kind} to {goal}, {hop.start} runs"]
    if hop.to != goal:
        clauses.append(f"the way there leads through {hop.to}")
    if hop.requires:
        met = ", ".join(f"{kind} {text}" for kind, text in hop.requires)
        clauses.append(f"it may be written now because {met} is met")
    if hop.carries:
        clauses.append("it brings " + ", ".join(f"{k} {v}" for k, v in hop.carries))
    if hop.activation in act.AT_ONCE:
        clauses.append("it runs at once")
    else:
        reset = next(
            (m.reset for m in later_moves if isinstance(m, Reset) and move.track in m.tracks),
            hop.activation,
        )
        merged = "" if reset is hop.activation else f" (which covers its {hop.activation})"
        clauses.append(f"it waits for the {reset}{merged}")
    if hop.evidence:
        clauses.append(f"vouched for by {hop.evidence}")
    return "; ".join(clauses) + "."


def _activate(
    problem: Problem, move: Reset, before: State, later_moves: tuple[Move, ...], order: str
) -> Step:
    names: list[tuple[str, str]] = []
    kinds: dict[str, str] = {}
    bmcs: set[str] = set()
    for index in move.tracks:
        track = problem.tracks[index]
        waiting = before.waiting[index]
        assert waiting is not None
        names += [(f"{track.kind}/{slot}", waiting.version) for slot in track.slots]
        kinds[f"{track.kind} {waiting.version}"] = waiting.activation
        bmcs |= _find_bmcs(problem, index)
    listed = ", ".join(
        name if waits == move.reset else f"{name} (waits for {waits}, which this covers)"
        for name, waits in kinds.items()
    )
    reason = f"{listed} {'is' if len(kinds) == 1 else 'are'} written and will run after this"
    later = [m.hop for m in later_moves if isinstance(m, Push) and m.track in move.tracks]
    after = {hop.kind for hop in later}
    if after:
        reason += f"; needed now because {', '.join(sorted(after))} goes on from there"
    elif later_moves and (asking := _find_dependents(problem, move, later_moves)):
        reason += f"; needed now because {asking} requires it"
    if order:
        reason += f"; {order}"
    return Step(
        kind=StepKind.ACTIVATE,
        activation=move.reset,
        bmcs=tuple(sorted(bmcs)) if move.reset is Activation.BMC_RESET else (),
        activates=tuple(names),
        disruption=act.get_disruption(move.reset),
        duration_s=act.estimate_duration_s(move.reset),
        expected=_expected(problem, before, move.tracks),
        reason=reason + ".",
    )


def _find_dependents(problem: Problem, move: Reset, later_moves: tuple[Move, ...]) -> str:
    kinds = {problem.tracks[i].kind for i in move.tracks}
    asking = [
        f"{m.hop.kind} {m.hop.to}"
        for m in later_moves
        if isinstance(m, Push) and any(kind in kinds for kind, _ in m.hop.requires)
    ]
    return ", ".join(dict.fromkeys(asking))


def _find_bmcs(problem: Problem, index: int) -> set[str]:
    """Return the BMCs that manage a track, or the parts of a derived track."""
    track = problem.tracks[index]
    bmcs = {s.bmc for s in track.reported if s.bmc}
    if track.derived:
        for part in problem.moves.get_contents(track.kind, next(iter(track.goal or ()), "")):
            for i in problem.by_kind.get(part, ()):
                bmcs |= {s.bmc for s in problem.tracks[i].reported if s.bmc}
    return bmcs


def _expected(
    problem: Problem, before: State, indexes: tuple[int, ...] | list[int]
) -> tuple[Precondition, ...]:
    """Return the versions that must still be reported before the step.

    They are in the device's own spelling if no earlier step changes them.
    """
    out: list[Precondition] = []
    for index in dict.fromkeys(_parts(problem, indexes)):
        track = problem.tracks[index]
        waiting = before.waiting[index]
        for slot in track.reported:
            same = before.running[index] == track.running
            was_staged_before = waiting is not None and waiting == track.staged
            out.append(
                Precondition(
                    kind=track.kind,
                    slot=slot.slot,
                    version=(slot.version or None) if same else before.running[index],
                    staged=(slot.staged if was_staged_before and slot.staged else waiting.version)
                    if waiting
                    else None,
                )
            )
    return tuple(out)


def _parts(problem: Problem, indexes: tuple[int, ...] | list[int]) -> list[int]:
    """Replace each derived track by the tracks of its parts, since no device reports it by name."""
    out: list[int] = []
    for index in indexes:
        track = problem.tracks[index]
        if not track.derived:
            out.append(index)
            continue
        for contents in problem.moves.matrix.bundles.get(track.kind, {}).values():
            out += [i for part in contents for i in problem.by_kind.get(part, ())]
    return out
