"""Build the search problem from an inventory, and report the parts that cannot be planned.

Components in equal situations become one track. A pinned component that is missing, reports no
version or runs a mix that no bundle lists becomes a blocker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from provisioner.model.inventory import Activation, Component, Inventory
from provisioner.model.machine.settings import (
    BOOT_SETTINGS,
    NO_SET,
    NVME_FIRMWARE,
    have_same_model,
    split_version,
)
from provisioner.model.matrix import Release
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import History, Neighbour, StagedFact
from provisioner.planning.path import activation as act
from provisioner.planning.path import conditions
from provisioner.planning.path import hops as bundles
from provisioner.planning.path.activation import AT_ONCE
from provisioner.planning.path.conditions import ONE_AT_A_TIME, get_rank, is_pinned, select_target
from provisioner.planning.path.distances import Distances
from provisioner.planning.path.hops import Moves
from provisioner.planning.path.solving import Shapes, solve
from provisioner.planning.path.tracks import (
    MIXED,
    Move,
    Problem,
    Push,
    ReportedSlot,
    Reset,
    SearchResult,
    Staged,
    State,
    Track,
    activate_staged,
    initial_state,
    push_hop,
)

# ------------------------------------------------------------------------------
# The order in which firmware is written behind one BMC, where costs alone do not decide it.
#
# Among the cheapest plans the ranks of kinds decide. Beyond that, a vendor may declare that its BMC
# is updated and restarted before anything else is pushed through it (`Quirk.bmc_first`, with its
# source). Then a plan that keeps this order is taken although it holds one restart more than the
# cheapest one. Roots of trust come before the BIOS that they protect: while a BIOS image is staged,
# its root of trust answers "ERoT is busy" (docs/sources/redfish.md#flash-order).


_HOST_BMC = "host.bmc"


@dataclass(frozen=True, slots=True)
class OrderedResult:
    """A plan's moves; `first` of them update and restart the BMC because its vendor says so.

    `extra_resets` are the resets that the cheapest plan does not need.
    """

    result: SearchResult
    first: int = 0
    extra_resets: int = 0


def solve_in_order(
    problem: Problem, distances: Distances, shapes: Shapes, *, bmc_first: bool
) -> OrderedResult:
    """Return the cheapest moves; with `bmc_first`, those that bring the host BMC ahead.

    Where the cheapest moves keep that order by themselves, where the BMC's own update needs another
    push first, or more than a restart of the BMC, the cheapest moves of all are returned.
    """
    cheapest = OrderedResult(solve(problem, distances, shapes))
    moves = cheapest.result.moves
    if not bmc_first or moves is None or _is_bmc_ahead(problem, [m for m, _ in moves]):
        return cheapest
    ahead = _keep_bmc_goal(problem)
    first = solve(ahead, Distances(ahead), shapes) if ahead is not None else SearchResult()
    if not first.moves or not _touches_bmc_only(problem, first):
        return cheapest
    state = _follow(problem, first)
    if state is None:
        return cheapest
    later = _move_on(problem, state)
    rest = solve(later, Distances(later), shapes)
    if rest.moves is None:
        return cheapest
    moves = first.moves + rest.moves
    if not _is_bmc_ahead(problem, [m for m, _ in moves]):
        return cheapest  # another push takes the BMC back: to write it twice keeps no order
    outages, resets, seconds = (a + b for a, b in zip(first.cost, rest.cost, strict=True))
    return OrderedResult(
        SearchResult(moves, (outages, resets, seconds)),
        len(first.moves),
        resets - cheapest.result.cost[1],
    )


def explain_order(ordered: OrderedResult, bmc_first: str) -> str:
    """Return the clause that says why the BMC is restarted ahead; "" where costs decided."""
    if not ordered.first:
        return ""
    more = f", {ordered.extra_resets} restart more than the cheapest plan has"
    return (
        "needed now because nothing else is pushed through a BMC with a waiting image "
        f"({bmc_first}){more if ordered.extra_resets else ''}"
    )


def _is_bmc_ahead(problem: Problem, moves: Sequence[Move]) -> bool:
    """Return whether no push goes through the host BMC before its own updates run."""
    own = set(problem.by_kind.get(_HOST_BMC, ()))
    waits = any(problem.tracks[i].staged is not None for i in own)
    others_pushed = False
    for move in moves:
        if isinstance(move, Reset):
            waits = waits and not own & set(move.tracks)
        elif move.track in own:
            if others_pushed:
                return False
            waits = waits or move.hop.activation not in AT_ONCE
        elif _goes_through_bmc(problem, move):
            if waits:
                return False
            others_pushed = True
    return True


def _goes_through_bmc(problem: Problem, push: Push) -> bool:
    bmcs = {slot.bmc for slot in problem.tracks[push.track].reported}
    return push.hop.method == "redfish_push" and bmcs <= {"host", ""}


def _keep_bmc_goal(problem: Problem) -> Problem | None:
    """Return the problem of the host BMC alone; None if its pin runs already.

    Rules that are broken at the start are for the rest of the plan to mend.
    """
    indexes = problem.by_kind.get(_HOST_BMC, ())
    tracks = problem.tracks
    if all(
        problem.is_at_goal(i, tracks[i].running) and (tracks[i].staged is None) for i in indexes
    ):
        return None
    broken = problem.find_broken_rules(tuple(t.running for t in tracks))
    return Problem(
        tuple(t if i in indexes else replace(t, goal=None) for i, t in enumerate(tracks)),
        problem.moves,
        tuple(rule for number, rule in enumerate(problem.rules) if number not in broken),
        problem.neighbours,
    )


def _touches_bmc_only(problem: Problem, result: SearchResult) -> bool:
    """Return whether the moves restart BMCs only, and push through the host BMC to itself only."""
    own = problem.by_kind.get(_HOST_BMC, ())
    return all(
        move.reset is Activation.BMC_RESET
        if isinstance(move, Reset)
        else move.track in own or not _goes_through_bmc(problem, move)
        for move, _ in result.moves or ()
    )


def _follow(problem: Problem, result: SearchResult) -> State | None:
    """Return the state after all moves; None if a rule of the whole node forbids one of them."""
    state = initial_state(problem)
    for move, _ in result.moves or ():
        if isinstance(move, Reset):
            state, _ = activate_staged(problem, state, move.reset)
            continue
        after = push_hop(problem, state, move.track, move.hop)
        if after is None:
            return None
        state = after
    return state


def _move_on(problem: Problem, state: State) -> Problem:
    tracks = (
        replace(track, running=running, staged=waiting)
        for track, running, waiting in zip(
            problem.tracks, state.running, state.waiting, strict=True
        )
    )
    return Problem(tuple(tracks), problem.moves, problem.rules, problem.neighbours)


FAILURES_MAX = 3  # a push or activation that failed this often needs a person


def relevant_kinds(moves: Moves, release: Release) -> frozenset[str]:
    """Return every kind that a plan for this release can move, carry or put a condition on."""
    out = set(moves.pins)
    for rule in release.requires:
        for side in (rule.when, rule.needs):
            out |= conditions.list_kinds(side)
    for kind in moves.pins:
        for edge in moves.matrix.edges.get(kind, ()):
            out |= conditions.list_kinds(edge.requires) | edge.carries.keys()
    for kind in tuple(out):
        for contents in moves.matrix.bundles.get(kind, {}).values():
            out |= contents.keys()
    return frozenset(out)


def build_problem(
    inventory: Inventory,
    moves: Moves,
    release: Release,
    relevant: frozenset[str],
    history: History,
    neighbours: tuple[Neighbour, ...],
) -> tuple[Problem, tuple[Blocker, ...]]:
    """Return the search problem, and blockers for the pinned parts that cannot be observed."""
    ledger = {(f.kind, f.slot): f for f in history.staged}
    components = [  # staged versions count even without a pin: a reset activates them
        doubt_settings(c, ledger.get((c.kind, c.slot)))
        for c in inventory.components
        if c.kind in relevant or c.staged is not None or (c.kind, c.slot) in ledger
    ]
    waiting: dict[tuple[str, str], Staged | None] = {}
    for c in components:
        waiting[c.kind, c.slot] = _find_staged(c, moves, ledger)
    tracks = list(_group_tracks(components, waiting, moves, history))
    for kind in sorted(relevant):
        declared = moves.kinds.get(kind)
        if declared and declared.derived and not any(c.kind == kind for c in components):
            staged = _from_ledger(kind, bundles.SLOT, MIXED, moves, ledger)
            tracks.append(_derived(kind, staged, moves, history))
    at_ends: dict[str, tuple[str, ...]] = {}
    for kind in {k for n in neighbours for k in n.versions}:
        versions = {
            moves.normalize_version(kind, v) for n in neighbours for v in n.versions.get(kind, ())
        }
        at_ends[kind] = tuple(sorted(versions))
    tracks.sort(key=lambda t: (get_rank(t.kind), t.kind, t.slots))
    problem = Problem(tuple(tracks), moves, release.requires, at_ends)
    running = problem.apply_changes(tuple(t.running for t in tracks), ())
    problem.tracks = tuple(
        replace(track, running=version) for track, version in zip(tracks, running, strict=True)
    )
    return problem, (
        *_find_missing_versions(inventory, moves),
        *_find_mixed_bundles(inventory, problem),
        *_find_models_without_pin(inventory, moves),
    )


def doubt_settings(c: Component, fact: StagedFact | None) -> Component:
    """Return settings of a start as waiting until it, where the service shows them as running.

    Some services show values that wait as current (libredfish 25: Dell); the ledger says that no
    boot has ended since they were written. Firmware is believed: a version shows only if it runs.
    """
    if c.kind not in BOOT_SETTINGS or fact is None or c.version != fact.version:
        return c
    return c.model_copy(
        update={"version": NO_SET, "staged": fact.version, "pending": fact.activation}
    )


def _find_staged(
    c: Component, moves: Moves, ledger: Mapping[tuple[str, str], StagedFact]
) -> Staged | None:
    """Return the version that the device reports as staged, or else the one in the ledger."""
    running = moves.normalize_version(c.kind, c.version or "")
    if c.staged is None:
        return _from_ledger(c.kind, c.slot, running, moves, ledger)
    version = moves.normalize_version(c.kind, c.staged)
    if version == running:
        return None
    hop = next((h for h in moves.find_hops(c.kind, running) if h.to == version), None)
    declared = moves.kinds.get(c.kind)
    activation = c.pending or (hop.activation if hop else declared.activation if declared else None)
    if activation is None or activation in act.AT_ONCE:
        return None
    return Staged(version, activation, hop.carries if hop else ())


def _from_ledger(
    kind: str, slot: str, running: str, moves: Moves, ledger: Mapping[tuple[str, str], StagedFact]
) -> Staged | None:
    fact = ledger.get((kind, slot))
    if fact is None or fact.activation in act.AT_ONCE:
        return None
    version = moves.normalize_version(kind, fact.version)
    if version == running:
        return None
    hop = next((h for h in moves.find_hops(kind, running) if h.to == version), None)
    carries = hop.carries if hop else tuple(sorted(moves.get_contents(kind, version).items()))
    return Staged(version, fact.activation, carries)


def _group_tracks(
    components: Iterable[Component],
    waiting: Mapping[tuple[str, str], Staged | None],
    moves: Moves,
    history: History,
) -> Iterable[Track]:
    """Group the slots of one kind that are in the same situation.

    The situation of a slot covers all components that share its name.
    """
    situation: dict[str, list[tuple[str, str, Staged | None, bool]]] = {}
    for c in sorted(components, key=lambda c: c.kind):
        facts = (
            c.kind,
            moves.normalize_version(c.kind, c.version or ""),
            waiting[c.kind, c.slot],
            c.updateable is not False,
        )
        situation.setdefault(c.slot, []).append(facts)
    groups: dict[tuple[object, ...], list[Component]] = {}
    for c in sorted(components, key=lambda c: (c.kind, c.slot)):
        alone = c.slot if c.kind in ONE_AT_A_TIME else ""
        groups.setdefault((c.kind, tuple(situation[c.slot]), alone), []).append(c)
    for (kind, *_), members in groups.items():
        first = members[0]
        slots = tuple(c.slot for c in members)
        completed = _list_completed(str(kind), slots, moves, history)
        yield Track(
            kind=str(kind),
            slots=slots,
            running=moves.normalize_version(first.kind, first.version or ""),
            staged=waiting[first.kind, first.slot],
            reported=tuple(ReportedSlot(c.slot, c.version or "", c.staged, c.bmc) for c in members),
            goal=_goal(str(kind), moves, first.version),
            updateable=all(c.updateable is not False for c in members),
            exhausted=_list_failed(str(kind), slots, moves, history) | completed,
            without_effect=completed,
        )


def _derived(kind: str, staged: Staged | None, moves: Moves, history: History) -> Track:
    slots = (bundles.SLOT,)
    completed = _list_completed(kind, slots, moves, history)
    return Track(
        kind=kind,
        slots=slots,
        running=MIXED,
        staged=staged,
        reported=(),
        goal=_goal(kind, moves, None),
        derived=True,
        exhausted=_list_failed(kind, slots, moves, history) | completed,
        without_effect=completed,
    )


def _goal(kind: str, moves: Moves, version: str | None) -> frozenset[str] | None:
    pin = moves.pins.get(kind)
    if pin is None or not pin.known:
        return None
    grammar = moves.grammars.get(kind, "opaque")
    names = frozenset(name for name in moves.list_versions(kind) if is_pinned(grammar, name, pin))
    if kind != NVME_FIRMWARE:
        return names
    return frozenset(name for name in names if have_same_model(name, version or "")) or None


def _list_completed(
    kind: str, slots: tuple[str, ...], moves: Moves, history: History
) -> frozenset[str]:
    return frozenset(
        moves.normalize_version(kind, version)
        for done, slot, version in history.completed
        if done == kind and slot in slots
    )


def _list_failed(
    kind: str, slots: tuple[str, ...], moves: Moves, history: History
) -> frozenset[str]:
    return frozenset(
        moves.normalize_version(kind, version)
        for failed, slot, version, times in history.failures
        if failed == kind and slot in slots and times >= FAILURES_MAX
    )


def _list_carried(inventory: Inventory, moves: Moves) -> frozenset[tuple[str, str]]:
    """Return (kind, version) that a first hop of some part brings with it.

    DOCA's stack is not there yet on a host with MLNX_OFED: the edge away from that installs it.
    """
    hops = (
        hop
        for part in inventory.components
        if part.kind in moves.pins and part.version
        for hop in moves.find_hops(part.kind, moves.normalize_version(part.kind, part.version))
    )
    return frozenset(c for hop in hops if not hop.objections for c in hop.carries)


def _find_missing_versions(inventory: Inventory, moves: Moves) -> Iterable[Blocker]:
    carried = _list_carried(inventory, moves)
    for kind, pin in sorted(moves.pins.items()):
        declared = moves.kinds.get(kind)
        parts = inventory.of_kind(kind)
        if not pin.known or (declared and declared.derived and not parts):
            continue
        if not parts and pin.optional:
            continue  # the pin applies only to nodes that have such a part
        if not parts and (kind, moves.normalize_version(kind, pin.version)) in carried:
            continue
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


def _find_models_without_pin(inventory: Inventory, moves: Moves) -> Iterable[Blocker]:
    """Name the drives of models that the pin does not list; a laboratory leaves them alone."""
    pin = moves.pins.get(NVME_FIRMWARE)
    if pin is None or not pin.known or not moves.production:
        return
    for part in inventory.of_kind(NVME_FIRMWARE):
        if not part.version or select_target(NVME_FIRMWARE, part.version, pin):
            continue
        model, firmware = split_version(part.version)
        yield Blocker(
            reason=Reason.UNKNOWN_PIN,
            subject=f"{NVME_FIRMWARE}/{part.slot}",
            detail=f"no firmware is pinned for drives of the model {model}; {firmware} runs",
            unblock=f"Add '{model}@FIRMWARE' under `also` of {NVME_FIRMWARE} in an overlay.",
        )


def _find_mixed_bundles(inventory: Inventory, problem: Problem) -> Iterable[Blocker]:
    moves = problem.moves
    for track in problem.tracks:
        if not track.derived or track.goal is None or track.running != MIXED or track.staged:
            continue
        if any(not h.objections for h in moves.find_hops(track.kind, MIXED)):
            continue  # an edge from "*" covers mixed contents too
        if any(t.staged for t in problem.tracks if t.kind in _parts(moves, track.kind)):
            continue  # the next reset activates parts that are staged
        listed_bundles = moves.matrix.bundles.get(track.kind, {})
        near = bundles.find_nearest_version(inventory, listed_bundles, moves.grammars)
        if near is None:
            detail = "the matrix lists no contents of any version of it"
            unblock = f"Add the contents of the pinned version under bundles.{track.kind}."
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
