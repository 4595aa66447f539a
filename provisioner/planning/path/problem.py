"""From an inventory to the search's tracks, or to what is missing before a search makes sense."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from provisioner.model.inventory import Component, Inventory
from provisioner.model.matrix import Release
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import History, Neighbour, StagedFact
from provisioner.planning.path import activation as act
from provisioner.planning.path import bundles, conditions
from provisioner.planning.path.hops import Moves
from provisioner.planning.path.pins import is_pinned
from provisioner.planning.path.tracks import MIXED, Problem, Seen, Staged, Track

FAILURES_MAX = 3  # a push or activation that failed this often needs a person


def relevant_kinds(moves: Moves, release: Release) -> frozenset[str]:
    """Every kind that a plan for this release can move, carry or ask about."""
    out = set(moves.pins)
    for rule in release.requires:
        for side in (rule.when, rule.needs):
            out |= _kinds_in(side)
    for kind in moves.pins:
        for edge in moves.matrix.edges.get(kind, ()):
            out |= _kinds_in(edge.requires) | edge.carries.keys()
    for kind in tuple(out):
        for contents in moves.matrix.bundles.get(kind, {}).values():
            out |= contents.keys()
    return frozenset(out)


def _kinds_in(side: Mapping[str, str]) -> set[str]:
    operands = (term for text in side.values() for term in conditions.terms(text))
    return set(side) | {operand for operator, operand in operands if operator == "="}


def pose(
    inventory: Inventory,
    moves: Moves,
    release: Release,
    relevant: frozenset[str],
    history: History,
    neighbours: tuple[Neighbour, ...],
) -> tuple[Problem, tuple[Blocker, ...]]:
    """The search problem, and what cannot be seen of it."""
    ledger = {(f.kind, f.slot): f for f in history.staged}
    seen = [  # whatever waits is told too: a reset makes it run, pinned or not
        c
        for c in inventory.components
        if c.kind in relevant or c.staged is not None or (c.kind, c.slot) in ledger
    ]
    waiting: dict[tuple[str, str], Staged | None] = {}
    for c in seen:
        waiting[c.kind, c.slot] = _waiting(c, moves, ledger)
    tracks = list(_tracks(seen, waiting, moves, history))
    for kind in sorted(relevant):
        declared = moves.kinds.get(kind)
        if declared and declared.derived and not any(c.kind == kind for c in seen):
            staged = _from_ledger(kind, bundles.SLOT, MIXED, moves, ledger)
            tracks.append(_derived(kind, staged, moves, history))
    at_ends: dict[str, tuple[str, ...]] = {}
    for kind in {k for n in neighbours for k in n.versions}:
        versions = {moves.spelled(kind, v) for n in neighbours for v in n.versions.get(kind, ())}
        at_ends[kind] = tuple(sorted(versions))
    tracks.sort(key=lambda t: (t.kind, t.slots))
    problem = Problem(tuple(tracks), moves, release.requires, at_ends)
    running = problem.changed(tuple(t.running for t in tracks), ())
    problem.tracks = tuple(
        replace(track, running=version) for track, version in zip(tracks, running, strict=True)
    )
    return problem, (*_unseen(inventory, moves), *_mixed(inventory, problem))


def _waiting(
    c: Component, moves: Moves, ledger: Mapping[tuple[str, str], StagedFact]
) -> Staged | None:
    """What the device says is staged, or what the ledger knows when the device shows nothing."""
    running = moves.spelled(c.kind, c.version or "")
    if c.staged is None:
        return _from_ledger(c.kind, c.slot, running, moves, ledger)
    version = moves.spelled(c.kind, c.staged)
    if version == running:
        return None
    hop = next((h for h in moves.from_(c.kind, running) if h.to == version), None)
    declared = moves.kinds.get(c.kind)
    known = c.pending or (hop.activation if hop else declared.activation if declared else None)
    if known is None or known in act.AT_ONCE:
        return None
    return Staged(version, known, hop.carries if hop else ())


def _from_ledger(
    kind: str, slot: str, running: str, moves: Moves, ledger: Mapping[tuple[str, str], StagedFact]
) -> Staged | None:
    fact = ledger.get((kind, slot))
    if fact is None or fact.activation in act.AT_ONCE:
        return None
    version = moves.spelled(kind, fact.version)
    if version == running:
        return None
    hop = next((h for h in moves.from_(kind, running) if h.to == version), None)
    carries = hop.carries if hop else tuple(sorted(moves.contents(kind, version).items()))
    return Staged(version, fact.activation, carries)


def _tracks(
    seen: Iterable[Component],
    waiting: Mapping[tuple[str, str], Staged | None],
    moves: Moves,
    history: History,
) -> Iterable[Track]:
    """Slots of one kind in one situation; a slot's situation is all that runs under its name."""
    situation: dict[str, list[tuple[str, str, Staged | None, bool]]] = {}
    for c in sorted(seen, key=lambda c: c.kind):
        facts = (
            c.kind,
            moves.spelled(c.kind, c.version or ""),
            waiting[c.kind, c.slot],
            c.updateable is not False,
        )
        situation.setdefault(c.slot, []).append(facts)
    groups: dict[tuple[object, ...], list[Component]] = {}
    for c in sorted(seen, key=lambda c: (c.kind, c.slot)):
        groups.setdefault((c.kind, tuple(situation[c.slot])), []).append(c)
    for (kind, _), members in groups.items():
        first = members[0]
        slots = tuple(c.slot for c in members)
        yield Track(
            kind=str(kind),
            slots=slots,
            running=moves.spelled(first.kind, first.version or ""),
            staged=waiting[first.kind, first.slot],
            seen=tuple(Seen(c.slot, c.version or "", c.staged, c.bmc) for c in members),
            goal=_goal(str(kind), moves),
            updateable=all(c.updateable is not False for c in members),
            exhausted=_exhausted(str(kind), slots, moves, history),
        )


def _derived(kind: str, staged: Staged | None, moves: Moves, history: History) -> Track:
    return Track(
        kind=kind,
        slots=(bundles.SLOT,),
        running=MIXED,
        staged=staged,
        seen=(),
        goal=_goal(kind, moves),
        derived=True,
        exhausted=_exhausted(kind, (bundles.SLOT,), moves, history),
    )


def _goal(kind: str, moves: Moves) -> frozenset[str] | None:
    pin = moves.pins.get(kind)
    if pin is None or not pin.known:
        return None
    grammar = moves.grammars.get(kind, "opaque")
    return frozenset(name for name in moves.names(kind) if is_pinned(grammar, name, pin))


def _exhausted(kind: str, slots: tuple[str, ...], moves: Moves, history: History) -> frozenset[str]:
    return frozenset(
        moves.spelled(kind, version)
        for failed, slot, version, times in history.failures
        if failed == kind and slot in slots and times >= FAILURES_MAX
    )


def _unseen(inventory: Inventory, moves: Moves) -> Iterable[Blocker]:
    for kind, pin in sorted(moves.pins.items()):
        declared = moves.kinds.get(kind)
        parts = inventory.of_kind(kind)
        if not pin.known or (declared and declared.derived and not parts):
            continue
        if not parts and pin.optional:
            continue  # for the nodes that have such a part; this one has none
        if not parts:
            yield Blocker(
                reason=Reason.VERSION_MISSING,
                subject=kind,
                detail=f"the profile pins {kind} to {pin.version}, but none was seen in this node",
                unblock="Make the component visible (its BMC, or in-band facts), or unpin it.",
            )
        for part in parts:
            if not part.version:
                yield Blocker(
                    reason=Reason.VERSION_MISSING,
                    subject=f"{kind}/{part.slot}",
                    detail=f"the device gives no version; {pin.version} is pinned",
                    unblock=f"Make {part.source or 'the device'} tell its version.",
                )


def _mixed(inventory: Inventory, problem: Problem) -> Iterable[Blocker]:
    moves = problem.moves
    for track in problem.tracks:
        if not track.derived or track.goal is None or track.running != MIXED or track.staged:
            continue
        if any(not h.objections for h in moves.from_(track.kind, MIXED)):
            continue  # an edge from "*" vouches for mixed contents too
        if any(t.staged for t in problem.tracks if t.kind in _parts(moves, track.kind)):
            continue  # the parts are on their way
        known = moves.matrix.bundles.get(track.kind, {})
        near = bundles.nearest(inventory, known, moves.grammars)
        if near is None:
            detail, unblock = (
                "the matrix lists no contents of any version of it",
                (f"Add the contents of the pinned version under bundles.{track.kind}."),
            )
        else:
            detail = f"what runs is no known version; next to {near[0]}: {'; '.join(near[1][:6])}"
            unblock = f"Add what runs under bundles.{track.kind} with an edge from it."
        yield Blocker(
            reason=Reason.NO_PATH if near else Reason.VERSION_MISSING,
            subject=track.kind,
            detail=detail,
            unblock=unblock,
        )


def _parts(moves: Moves, kind: str) -> set[str]:
    return {part for contents in moves.matrix.bundles.get(kind, {}).values() for part in contents}
