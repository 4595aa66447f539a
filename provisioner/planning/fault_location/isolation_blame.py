"""Derivation of blame from trials: leaves and their uplinks first, then nodes, then single links.

The largest explanation comes first, and the trials that it explains are removed before the next one
is tried: a node is not blamed for its leaf, nor a link for its node. More blame at once than is
plausible for a site has a common cause (a bad image, a power cut, a switch configuration); then no
part is condemned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp
from statistics import median

from provisioner.planning.fault_location.isolation_trials import Trial, Trials
from provisioner.planning.fault_location.isolation_words import Blame, Cell, Culprit

EVIDENCE_MAX = 32  # names of tests and partners in one blame
HELD_MIN = 3  # so many parts may be condemned in any fabric, however small


@dataclass(frozen=True)
class Judgement:
    """The blame, the cells that it explains, and the remaining trials."""

    blames: tuple[Blame, ...]
    explained: frozenset[Cell]  # cells of condemned nodes, links and leaves
    remaining: Trials
    # leaves with a bad uplink where the faulty end is not determined
    doubtful: tuple[Blame, ...] = ()
    held: str = ""


def judge_trials(trials: Trials) -> Judgement:
    """Return all blame that the trials prove."""
    leaves = _leaves(trials)
    cells: set[Cell] = set()
    for blame in leaves:
        cells.update(trials.fabric.cells_of_leaf[blame.leaf])
    remaining = trials.leave_out(cells)
    uplinks, doubtful = _uplinks(remaining, {b.leaf for b in leaves})
    remaining = remaining.leave_out((), [b.leaf for b in (*uplinks, *doubtful)])
    down = _fallen(remaining, cells)
    nodes = _nodes(remaining, cells)
    for blame in nodes:
        cells.update((blame.node, rail) for rail in trials.fabric.rails_of[blame.node])
    remaining = remaining.leave_out(cells)
    links = _links(remaining, cells)
    cells.update((blame.node, blame.rail) for blame in links)
    blames = (*leaves, *uplinks, *nodes, *links)
    remaining = remaining.leave_out(cells)
    return Judgement(
        blames, frozenset(cells), remaining, tuple(doubtful), _held(trials, blames, down)
    )


def _leaves(trials: Trials) -> list[Blame]:
    """Return leaves on which most cells fail, regardless of their partners."""
    blames = []
    fallen = _fallen(trials)
    for leaf, cells in sorted(trials.fabric.cells_of_leaf.items()):
        if sum(trials.raw[c] < 0 for c in cells) < trials.policy.partners_min:
            continue
        failures, passes = _leaf_trials(trials, cells, across=None)
        if not _fails_within(trials, failures, passes):
            continue
        standing = [c for c in cells if c[0] not in fallen]
        bad = _negative(standing, failures, passes)
        if 2 * len(bad) > len(standing) and _proved(trials, bad, failures, passes):
            symptom = f"{len(bad)} of {len(cells)} links on it fail, with any partner"
            blames.append(_blame(trials, Culprit.LEAF, failures, len(passes), symptom, leaf=leaf))
    return blames


def _fails_within(trials: Trials, failures: Sequence[Trial], passes: Sequence[Trial]) -> bool:
    """Return whether tests within the leaf fail too; otherwise the path to other leaves may be
    at fault.
    """
    bad, good = sum(t.local for t in failures), sum(t.local for t in passes)
    return bad >= trials.policy.partners_min and bad >= trials.policy.leaf_share * (bad + good)


def _uplinks(trials: Trials, condemned: set[str]) -> tuple[list[Blame], list[Blame]]:
    """Return leaves whose nodes reach one another and no other leaf: condemned, and doubtful ones.

    Two leaves that do not reach each other are both doubtful, unless one of them reaches a third.
    """
    cut: dict[str, tuple[list[Trial], list[Trial], int, int]] = {}
    for leaf, cells in sorted(trials.fabric.cells_of_leaf.items()):
        if leaf in condemned or not any(_crossing_failures(trials, c) for c in cells):
            continue
        failures, passes = _leaf_trials(trials, cells, across=True)
        bad = _negative(cells, failures, passes)
        tried = {c for t in (*failures, *passes) for c in (t.one, t.other)} & set(cells)
        if 2 * len(bad) <= len(tried) or not _proved(trials, bad, failures, passes):
            continue
        inside_failed, inside_passed = _leaf_trials(trials, cells, across=False)
        share = len(inside_passed) / max(1, len(inside_failed) + len(inside_passed))
        if len(inside_passed) >= trials.policy.partners_min and share >= trials.policy.leaf_share:
            cut[leaf] = failures, passes, len(bad), len(inside_passed)
    verdicts: tuple[list[Blame], list[Blame]] = ([], [])
    for leaf, (failures, passes, bad_count, inside) in cut.items():
        symptom = (
            f"its nodes reach one another ({inside} tests), and {bad_count} reach no other leaf"
        )
        partner_leaves = {trials.fabric.leaf_of[c] for t in failures for c in (t.one, t.other)}
        sure = bool(partner_leaves - set(cut) - {leaf})
        verdict = _blame(trials, Culprit.UPLINK, failures, len(passes), symptom, leaf=leaf)
        if not sure:
            symptom = f"{verdict.reason}; it, or the other leaf, or the path between"
            verdict = verdict.model_copy(update={"confidence": 0.0, "reason": symptom})
        verdicts[0 if sure else 1].append(verdict)
    return verdicts


def _crossing_failures(trials: Trials, cell: Cell) -> bool:
    return any(t.failed and not t.local for t in trials.by_cell.get(cell, ()))


def _nodes(trials: Trials, explained: set[Cell]) -> list[Blame]:
    """Return nodes that fail on more than half of the rails without another explanation."""
    blames = []
    for name, all_rails in trials.fabric.rails_of.items():
        rails = [r for r in all_rails if (name, r) not in explained]
        if len(rails) < 2 or 2 * sum(trials.raw[name, r] < 0 for r in rails) <= len(rails):
            continue
        failures: list[Trial] = []
        bad, passes = 0, 0
        per_partner: dict[str, int] = {}
        for rail in rails:
            counted, passed = trials.count_against((name, rail))
            if len(counted) > passed:
                bad += 1
                failures += counted
                passes += passed
                for partner in {t.get_far_end((name, rail))[0] for t in counted}:
                    per_partner[partner] = per_partner.get(partner, 0) + 1
        partners = [p for p, times in per_partner.items() if 2 * times > bad]
        score = (len(failures) - passes) * trials.weight
        if (
            2 * bad > len(rails)
            and len(partners) >= trials.policy.partners_min
            and score >= trials.condemn_at
        ):
            symptom = f"it fails on {bad} of {len(rails)} rails"
            blames.append(_blame(trials, Culprit.NODE, failures, passes, symptom, node=name))
    return blames


def _links(trials: Trials, explained: set[Cell]) -> list[Blame]:
    """Return single cells that fail with enough partners which are good on this rail."""
    blames = []
    for cell, leaf in trials.fabric.leaf_of.items():
        if cell in explained or trials.raw[cell] >= 0:
            continue
        failures, passes = trials.count_against(cell)
        partners = {t.get_far_end(cell)[0] for t in failures}
        if (
            len(partners) >= trials.policy.partners_min
            and (len(failures) - passes) * trials.weight >= trials.condemn_at
        ):
            symptom = "its other rails do not explain it"
            blames.append(
                _blame(
                    trials,
                    Culprit.LINK,
                    failures,
                    passes,
                    symptom,
                    node=cell[0],
                    rail=cell[1],
                    leaf=leaf,
                )
            )
    return blames


def _fallen(trials: Trials, explained: Iterable[Cell] = ()) -> set[str]:
    """Return nodes that fail on most of their rails, which their leaves cannot cause."""
    explained_cells = frozenset(explained)
    open_rails = {
        name: [r for r in rails if (name, r) not in explained_cells]
        for name, rails in trials.fabric.rails_of.items()
    }
    return {
        name
        for name, rails in open_rails.items()
        if len(rails) > 1 and 2 * sum(trials.raw[name, r] < 0 for r in rails) > len(rails)
    }


def _leaf_trials(
    trials: Trials, cells: Sequence[Cell], *, across: bool | None
) -> tuple[list[Trial], list[Trial]]:
    """Return counted failures and passes through a leaf.

    `across`: True for only those to other leaves, False for only those within, None for all. Within
    the leaf a failure needs no good end, because both ends share the leaf.
    """
    own = frozenset(c[0] for c in cells)
    failures: dict[tuple[str, int], Trial] = {}
    passes: dict[tuple[str, int], Trial] = {}
    for cell in cells:
        for trial in trials.by_cell.get(cell, ()):
            if across is not None and trial.local is across:
                continue
            key = trial.test, cell[1]
            if not trial.failed:
                passes[key] = trial
            elif trial.local or trials.is_good(trial.get_far_end(cell), own):
                failures[key] = trial
    return list(failures.values()), list(passes.values())


def _negative(
    cells: Iterable[Cell], failures: Iterable[Trial], passes: Iterable[Trial]
) -> list[Cell]:
    """Return the cells with more counted failures than passes."""
    net: dict[Cell, int] = {}
    for sign, trials in ((1, failures), (-1, passes)):
        for trial in trials:
            for cell in (trial.one, trial.other):
                net[cell] = net.get(cell, 0) + sign
    return [c for c in cells if net.get(c, 0) > 0]


def _proved(
    trials: Trials, bad: Sequence[Cell], failures: Sequence[Trial], passes: Sequence[Trial]
) -> bool:
    """Return whether cells and partners are enough, the majority clear, and noise excluded as
    cause.
    """
    enough = trials.policy.partners_min
    partners = {c[0] for t in failures for c in (t.one, t.other)} - {c[0] for c in bad[:1]}
    share = len(failures) / max(1, len(failures) + len(passes))
    score = (len(failures) - len(passes)) * trials.weight
    return (
        len(bad) >= enough
        and len(partners) >= enough
        and share >= trials.policy.leaf_share
        and score >= trials.condemn_at
    )


def _blame(
    trials: Trials,
    culprit: Culprit,
    failures: Sequence[Trial],
    passes: int,
    symptom: str,
    *,
    node: str = "",
    rail: int = -1,
    leaf: str = "",
) -> Blame:
    """Return the blame, with its evidence in a fixed order."""
    names = {c[0] for t in failures for c in (t.one, t.other)} - {node}
    ratios = [t.ratio for t in failures if t.ratio is not None and t.slow]
    slow = median(ratios) if len(ratios) * 2 > len(failures) else None
    verb = "were slow" if slow is not None else "failed"
    score = (len(failures) - passes) * trials.weight
    chance = len(trials.fabric.leaf_of) * exp(-max(0.0, score))
    return Blame(
        culprit=culprit,
        node=node,
        rail=rail,
        leaf=leaf,
        confidence=round(max(0.0, 1.0 - chance), 9),
        reason=f"{symptom}; "
        f"{len(failures)} results with {len(names)} nodes {verb}, {passes} passed",
        slow=slow,
        partners=tuple(sorted(names)[:EVIDENCE_MAX]),
        tests=tuple(sorted({t.test for t in failures})[:EVIDENCE_MAX]),
    )


def _held(trials: Trials, blames: Sequence[Blame], down: set[str]) -> str:
    """Return why all this blame is held back; "" if it is not.

    `down`: nodes that fail on most rails, proved or not. If many fail, there are too few good
    partners to prove a fault on any of them.
    """
    nodes = len({b.node for b in blames if b.node} | down)
    leaves = len({b.leaf for b in blames if b.culprit in (Culprit.LEAF, Culprit.UPLINK)})
    for count, whole, kind in (
        (nodes, len(trials.fabric.nodes), "nodes"),
        (leaves, len(trials.fabric.cells_of_leaf), "leaves"),
    ):
        if count > max(HELD_MIN, trials.policy.held_share * whole):
            return f"{count} of {whole} {kind} at once: look for a common cause first"
    return ""
