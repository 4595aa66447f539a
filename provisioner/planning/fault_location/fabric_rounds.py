"""The next tests of a session from its stored runs, and the session's result. Pure.

Pairs come first, as the fault location asks for them, then collectives of the nodes that the pairs
cleared. A node passes only if it was cleared on all rails, and in each size of collective that the
site asks for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median

from provisioner.model.fabric_session import (
    CableEnds,
    DamageCount,
    FabricMember,
    FabricRun,
    FabricSession,
)
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.fault_location import fabric_verdicts, round_robin
from provisioner.planning.fault_location.fabric_session import SessionPolicy
from provisioner.planning.fault_location.fabric_verdicts import BothEnds, EndCounters, name_part
from provisioner.planning.fault_location.isolation import plan_next_round
from provisioner.planning.fault_location.isolation_words import (
    ALL_RAILS,
    Cell,
    Culprit,
    Fabric,
    FabricLink,
    FabricNode,
    FabricTest,
    FabricTestKind,
    IsolationPolicy,
    Observation,
    RailOutcome,
    RailResult,
    Round,
    SharedPart,
    Verdicts,
)

# ------------------------------------------------------------------------------
# Collectives over many nodes after the pair tests: their members, and the faults they prove. Pure.
#
# Only nodes that their pair tests cleared take part, so a failure here occurs only among many
# nodes. A passing collective clears all its nodes; a failing one blames none of them. A node that
# has passed none is tested again with nodes that have, or in halves where none has. It is condemned
# after failures with at least three distinct good nodes; otherwise it stays undecided.


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
    """The next collectives of the first size that is not complete; None: all are complete."""
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
        return round_robin.split_into_groups(list(units.values()), size, 0)
    free = [name for name in names if name in passed]
    if not free:  # in halves, and mixed where only one size remains
        return round_robin.split_into_groups(list(units.values()), max(2, size >> turn), turn % 2)
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
    name: str, size: int, mine: Sequence[Observation], passed: set[str], policy: IsolationPolicy
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
            f" though its pairs are good{_quote(alone, name)}",
            unblock="Open a repair case: it fails only among many nodes. Examine the evidence.",
        )
    detail = f"no collective over {size} nodes with it could be run"
    if failures:
        detail = (
            f"{len(failures)} collectives over {size} nodes failed, "
            f"and no node is proved to be at fault{_quote(failures, name)}"
        )
    return Blocker(
        reason=Reason.CHECK_SKIPPED,
        subject=f"{name}/gate C",
        detail=detail,
        unblock="Examine the session's evidence and the fabric's settings, then retry the node.",
    )


def _quote(failures: Sequence[Observation], name: str) -> str:
    """Return what most of these failures say, of this node if any does; "": they say nothing."""
    said = [r.detail for o in failures for r in o.results if r.detail]
    own = [words for words in said if words.startswith(f"{name}: ")] or said
    return f": {max(own, key=own.count)}"[:300] if own else ""


_PROVED = frozenset({Reason.CHECK_FAILED})


Above = Mapping[str, tuple[str, str]]  # leaf -> the groups of spines and superspines above it


def fabric_of(session: FabricSession, above: Above) -> Fabric:
    """Return the present members, with their cables, racks and PDUs from the site's plan.

    A rail's cables in several planes are in the order of the planes, for every node alike.
    """
    return Fabric(
        shared=list_shared_parts(session.present),
        nodes=tuple(
            FabricNode(
                name=m.node,
                links=tuple(
                    FabricLink(
                        rail=rail,
                        leaf=leaf,
                        interface=interface,
                        spines=above.get(leaf, ("", ""))[0],
                        superspines=above.get(leaf, ("", ""))[1],
                    )
                    for (rail, leaf), interface in _list_cables(m, above).items()
                ),
            )
            for m in session.present
        ),
    )


def _list_cables(member: FabricMember, above: Above) -> dict[tuple[int, str], str]:
    """Return (rail, leaf) -> the leaf's first port, of parallel cables too."""
    ports = sorted(member.ports, key=lambda p: (p.rail, above.get(p.switch, ("", "")), p.switch))
    return {(p.rail, p.switch): p.interface for p in reversed(ports)}


def list_shared_parts(members: Sequence[FabricMember]) -> tuple[SharedPart, ...]:
    """Return the racks and power feeds on which some of the members depend, but not all.

    What one node has alone is the node. Racks and feeds of the same members are one part, because
    no test distinguishes them: it is named after the rack, or after all these PDUs.
    """
    nodes: dict[tuple[Culprit, str], set[str]] = {}
    for member in members:
        if member.rack:
            nodes.setdefault((Culprit.RACK, member.rack), set()).add(member.node)
        for pdu in member.pdus:
            nodes.setdefault((Culprit.FEED, pdu), set()).add(member.node)
    alike: dict[frozenset[str], list[tuple[Culprit, str]]] = {}
    for part in sorted(nodes, key=lambda part: (part[0] is not Culprit.RACK, part[1])):
        if 1 < len(nodes[part]) < len(members):
            alike.setdefault(frozenset(nodes[part]), []).append(part)
    return tuple(
        SharedPart(
            kind=parts[0][0],
            name=_name_shared(parts),
            cells=tuple((m.node, p.rail) for m in members if m.node in names for p in m.ports),
        )
        for names, parts in alike.items()
    )


def _name_shared(parts: Sequence[tuple[Culprit, str]]) -> str:
    kind = parts[0][0]
    names = [name for _, name in parts if kind is Culprit.FEED] or [parts[0][1]]
    return f"{'power feed' if kind is Culprit.FEED else 'rack'} {' and '.join(names)}"


def list_observations(session: FabricSession) -> tuple[Observation, ...]:
    """Return the stored runs as observations, without tests of members that have left.

    A ratio is relative to the median of all rails in this session: a bad minority cannot move it,
    and for a bad majority there is the absolute floor that each run was judged by.
    """
    here = {m.node for m in session.present}
    runs = [r for r in session.runs if set(r.nodes) <= here]
    rdma = _usual_of_pairs(runs, "gbit_s")
    sizes = {_size(run) for run in runs}
    nccl = {size: _usual_of(runs, size, "bus_gb_s") for size in sizes}
    alltoall = {size: _usual_of(runs, size, "alltoall_gb_s") for size in sizes}
    return tuple(
        Observation(
            test=_test(run),
            round_number=run.round_number,
            results=tuple(
                RailResult(
                    rail=r.rail,
                    shown=RailOutcome(r.shown),
                    detail=r.detail,
                    ratio=_ratio(
                        (r.gbit_s, rdma),
                        (r.bus_gb_s, nccl[_size(run)]),
                        (r.alltoall_gb_s, alltoall[_size(run)]),
                    ),
                )
                for r in run.results
            ),
        )
        for run in runs
    )


def _size(run: FabricRun) -> int:
    return len(run.nodes) if run.kind == "group" else 0


def _usual_of(runs: Iterable[FabricRun], size: int, name: str) -> float:
    """Return the usual figure of NCCL on rails, or the median of each node's best in collectives of
    this size.

    A suspect is in more collectives than other nodes, but each node counts once.
    """
    if size == 0:
        return _usual_of_pairs(runs, name)
    mine = [(run, getattr(r, name)) for run in runs if _size(run) == size for r in run.results]
    measured = [(run, figure) for run, figure in mine if figure is not None]
    best: dict[str, float] = {}
    for run, figure in measured:
        for node in run.nodes:
            best[node] = max(figure, best.get(node, 0.0))
    return _usual(best.values())


def _usual_of_pairs(runs: Iterable[FabricRun], name: str) -> float:
    """Return the median of all nodes' rails, of each one's median over its partners.

    A suspect is in more tests than other nodes, but each of its rails counts once.
    """
    by_pair: dict[tuple[str, str, int], list[float]] = {}
    for run in runs:
        for rail in run.results if len(run.nodes) == 2 and run.kind != "group" else ():
            figure = getattr(rail, name)
            if figure is not None:
                one, other = run.nodes
                by_pair.setdefault((one, other, rail.rail), []).append(figure)
                by_pair.setdefault((other, one, rail.rail), []).append(figure)
    by_cell: dict[Cell, list[float]] = {}
    for (node, _, number), figures in by_pair.items():
        by_cell.setdefault((node, number), []).append(median(figures))
    return _usual(median(figures) for figures in by_cell.values())


def _usual(figures: Iterable[float | None]) -> float:
    measured = [f for f in figures if f is not None]
    return median(measured) if measured else 0.0


def _ratio(*pairs: tuple[float | None, float]) -> float | None:
    """Return the worst measurement relative to its median; None: there is no measurement."""
    ratios = [figure / usual for figure, usual in pairs if figure is not None and usual]
    return min(ratios, default=None)


def ends_of(session: FabricSession) -> dict[Cell, BothEnds]:
    """Return the damage that both ends of each cable counted, over all tests of suspects."""
    by_cell: dict[Cell, list[CableEnds]] = {}
    for run in session.runs:
        for ends in run.ends:
            if ends.at_node is not None and ends.at_leaf is not None:
                by_cell.setdefault((ends.node, ends.rail), []).append(ends)
    return {
        cell: BothEnds(
            node=_summed([e.at_node for e in listed if e.at_node is not None]),
            leaf=_summed([e.at_leaf for e in listed if e.at_leaf is not None]),
            detachable=all(e.detachable for e in listed),
        )
        for cell, listed in by_cell.items()
    }


def _summed(counted: Sequence[DamageCount]) -> EndCounters:
    return EndCounters(  # both ends report it as damaged frames
        uncorrectable=0,
        crc_errors=sum(c.damaged for c in counted),
        link_downs=sum(c.link_downs for c in counted),
        began_at=min(c.began_at for c in counted),
        ended_at=max(c.ended_at for c in counted),
    )


def _test(run: FabricRun) -> FabricTest:
    return FabricTest(
        name=run.test,
        kind=FabricTestKind(run.kind),
        nodes=run.nodes,
        rails=tuple(r.rail for r in run.results),
    )


def decide_next(session: FabricSession, policy: SessionPolicy, above: Above) -> Round | Verdicts:
    """The tests to run next, or the verdicts: pairs first, then collectives of cleared nodes."""
    fabric = fabric_of(session, above)
    runs = list_observations(session)
    answer = plan_next_round(fabric, runs, policy.isolation)
    if isinstance(answer, Round):
        return answer
    good = fabric_verdicts.find_cleared(session, answer, fabric)
    number = session.last_round + 1
    more = plan_round(fabric, runs, good, policy.collectives, number, policy.isolation)
    return answer if more is None else more


def find_outcome_blockers(
    session: FabricSession, verdicts: Verdicts, policy: SessionPolicy, above: Above
) -> dict[str, tuple[Blocker, ...]]:
    fabric = fabric_of(session, above)
    ends = ends_of(session)
    named = tuple(name_part(blame, ends) for blame in verdicts.condemned)
    verdicts = verdicts.model_copy(update={"condemned": named})
    by_subject = fabric_verdicts.find_blockers(session, verdicts, fabric)
    good = fabric_verdicts.find_cleared(session, verdicts, fabric)
    runs = list_observations(session)
    more = find_blockers(runs, good, policy.collectives, policy.isolation)
    seeks = {m.node for m in session.present if m.seeks}
    for name, listed in more.items():
        # a lent node is blocked only by a proved fault of its own
        by_subject[name] += tuple(b for b in listed if name in seeks or b.reason in _PROVED)
    return by_subject


def record_not_run(test: FabricTest, round_number: int) -> FabricRun:
    """Return a run without results, for a test that could not be run."""
    results = [{"rail": rail, "shown": "not_run"} for rail in test.rails]
    return FabricRun.model_validate(
        {
            "test": test.name,
            "kind": test.kind.value,
            "nodes": test.nodes,
            "round_number": round_number,
            "results": results,
        }
    )
