"""Collectives over many nodes after the pair tests: their members, and the faults they prove. Pure.

Only nodes that their pair tests cleared take part, so a failure here occurs only among many nodes.
A passing collective clears all its nodes; a failing one blames none of them. A node that has passed
none is tested again with nodes that have, or in halves where none has. It is condemned after
failures with at least three distinct good nodes; otherwise it stays undecided.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.fault_location import round_robin as rounds
from provisioner.planning.fault_location.isolation_words import (
    ALL_RAILS,
    Fabric,
    FabricTest,
    FabricTestKind,
    IsolationPolicy,
    Observation,
    RailOutcome,
    Round,
)

ROUNDS_MAX = 6  # of one size: halves of eight are four rounds, and two more show the culprit
FAILURES_MIN = 2  # of one node, with good ones: a single result may be wrong by chance


def plan_round(
    fabric: Fabric,
    seen: Sequence[Observation],
    good: Collection[str],
    sizes: Sequence[int],
    number: int,
    policy: IsolationPolicy,
) -> Round | None:
    """Return the next collectives of the first size that is not complete; None: all are
    complete.
    """
    for size in sizes:
        mine = [o for o in seen if _is_of(o, size)]
        tests = _tests(fabric, mine, good, size, policy)
        if tests:
            named = tuple(
                FabricTest(
                    name=f"c{size}r{number}t{i}",
                    kind=FabricTestKind.GROUP,
                    nodes=nodes,
                    rails=(ALL_RAILS,),
                )
                for i, nodes in enumerate(tests)
            )
            spent = sum(policy.group_minutes * len(t.nodes) for t in named)
            why = f"collectives over {size} nodes"
            return Round(number=number, why=why, tests=named, node_minutes=spent)
    return None


def find_blockers(
    seen: Sequence[Observation],
    good: Collection[str],
    sizes: Sequence[int],
    policy: IsolationPolicy,
) -> dict[str, tuple[Blocker, ...]]:
    """Return the blockers from collectives for each node that its pair tests cleared."""
    by_node: dict[str, list[Blocker]] = {}
    for size in sizes:
        mine = [o for o in seen if _is_of(o, size)]
        passed = _passed(mine, policy)
        for name in sorted(set(good) - passed):
            by_node.setdefault(name, []).append(_block_node(name, size, mine, passed, policy))
    return {name: tuple(listed) for name, listed in by_node.items()}


def _tests(
    fabric: Fabric,
    mine: Sequence[Observation],
    good: Collection[str],
    size: int,
    policy: IsolationPolicy,
) -> list[tuple[str, ...]]:
    units: dict[tuple[str, ...], list[str]] = {}
    for node in fabric.nodes:
        if node.name in good:
            units.setdefault(fabric.group_of[node.name], []).append(node.name)
    names = [name for unit in units.values() for name in unit]
    turn = len({o.round_number for o in mine})
    passed = _passed(mine, policy)
    unproved = [name for name in names if name not in passed]
    if not unproved or len(names) < 2 or turn >= ROUNDS_MAX:
        return []
    if turn == 0:
        return rounds.split_into_groups(list(units.values()), size, 0)
    free = [name for name in names if name in passed]
    if not free:  # in halves, and mixed where only one size remains
        return rounds.split_into_groups(list(units.values()), max(2, size >> turn), turn % 2)
    met = _list_partners(mine)
    each = min(size - 1, max(1, len(free) // len(unproved)))
    tests = []
    for name in unproved:
        mates = sorted(free, key=lambda n: n in met.get(name, ()))[:each]
        if not mates:
            break
        free = [n for n in free if n not in mates]
        tests.append((name, *mates))
    return tests


def _is_of(seen: Observation, size: int) -> bool:
    return seen.test.kind is FabricTestKind.GROUP and seen.test.name.startswith(f"c{size}r")


def _passed(mine: Sequence[Observation], policy: IsolationPolicy) -> set[str]:
    """Return the nodes that were in a passing collective.

    Wrong data is never outweighed: where every node of such a collective was in a passing one as
    well, none of them counts as passed.
    """
    wrong = [o for o in mine if any(r.shown is RailOutcome.WRONG_DATA for r in o.results)]
    well = {n for o in mine if not _failed(o, policy) and _ran(o) for n in o.test.nodes}
    suspects = [set(o.test.nodes) - well for o in wrong]
    return well if all(suspects) else well - {n for o in wrong for n in o.test.nodes}


def _ran(seen: Observation) -> bool:
    return any(r.shown is not RailOutcome.NOT_RUN for r in seen.results)


def _failed(seen: Observation, policy: IsolationPolicy) -> bool:
    return any(
        r.shown not in (RailOutcome.PASS, RailOutcome.NOT_RUN)
        or (r.ratio is not None and r.ratio < policy.slow_below)
        for r in seen.results
    )


def _list_partners(mine: Sequence[Observation]) -> Mapping[str, set[str]]:
    met: dict[str, set[str]] = {}
    for observation in mine:
        for name in observation.test.nodes:
            met.setdefault(name, set()).update(observation.test.nodes)
    return met


def _block_node(
    name: str,
    size: int,
    mine: Sequence[Observation],
    passed: set[str],
    policy: IsolationPolicy,
) -> Blocker:
    tried = [o for o in mine if name in o.test.nodes]
    failures = [o for o in tried if _failed(o, policy)]
    alone = [o for o in failures if set(o.test.nodes) - {name} <= passed]
    partners = sorted({n for o in alone for n in o.test.nodes} - {name})
    if len(alone) >= FAILURES_MIN and len(partners) >= policy.partners_min:
        names = ", ".join(partners[:5])
        return Blocker(
            reason=Reason.CHECK_FAILED,
            subject=f"{name}/collectives",
            detail=f"{len(alone)} collectives with good nodes failed with it (with {names}),"
            " though its pairs are good",
            unblock="Open a repair case: it fails only among many nodes. Examine the evidence.",
        )
    detail = f"no collective over {size} nodes with it could be run"
    if failures:
        detail = (
            f"{len(failures)} collectives over {size} nodes failed, "
            "and no node is proved to be at fault"
        )
    return Blocker(
        reason=Reason.CHECK_SKIPPED,
        subject=f"{name}/gate C",
        detail=detail,
        unblock="Examine the session's evidence and the fabric's settings, then retry the node.",
    )
