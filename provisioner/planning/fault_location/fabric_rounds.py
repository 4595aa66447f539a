"""Which tests of a session come next, from what its stored runs say, and how it ended. Pure.

Pairs first, as isolation asks for them; then collectives of the nodes that they cleared. Nobody
passes who was not cleared on all rails, and in each size of collective that the site asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from provisioner.model.fabric_session import CableEnds, Counted, FabricRun, FabricSession
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.fault_location import collectives, fabric_verdicts
from provisioner.planning.fault_location.fabric_session import SessionPolicy
from provisioner.planning.fault_location.isolation import next_round
from provisioner.planning.fault_location.isolation_ends import BothEnds, EndCounters, name_part
from provisioner.planning.fault_location.isolation_words import (
    Cell,
    Fabric,
    FabricLink,
    FabricNode,
    FabricTest,
    FabricTestKind,
    Observation,
    RailResult,
    Round,
    Shown,
    Verdicts,
)

_PROVED = frozenset({Reason.CHECK_FAILED})


def fabric_of(session: FabricSession) -> Fabric:
    """The members that are there, with the cables that the site's plan gives them."""
    return Fabric(
        nodes=tuple(
            FabricNode(
                name=m.node,
                links=tuple(
                    FabricLink(rail=p.rail, leaf=p.switch, interface=p.interface) for p in m.ports
                ),
            )
            for m in session.present
        )
    )


def observations(session: FabricSession) -> tuple[Observation, ...]:
    """The stored runs as isolation takes them; tests with who left tell nothing.

    A ratio is over the median of all that this session measured: a bad minority cannot move it,
    and for a bad majority there is the absolute floor that each run was judged by.
    """
    here = {m.node for m in session.present}
    runs = [r for r in session.runs if set(r.nodes) <= here]
    rails = [rail for run in runs for rail in run.results]
    rdma = _usual([r.gbit_s for r in rails])
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
                    shown=Shown(r.shown),
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
    """The median of NCCL's figures on rails, or of each node's best in collectives of this size.

    Who is suspected is in more collectives than others; each node counts once.
    """
    mine = [(run, getattr(r, name)) for run in runs if _size(run) == size for r in run.results]
    known = [(run, figure) for run, figure in mine if figure is not None]
    if size == 0:
        return _usual(figure for _, figure in known)
    best: dict[str, float] = {}
    for run, figure in known:
        for node in run.nodes:
            best[node] = max(figure, best.get(node, 0.0))
    return _usual(best.values())


def _usual(figures: Iterable[float | None]) -> float:
    known = [f for f in figures if f is not None]
    return median(known) if known else 0.0


def _ratio(*pairs: tuple[float | None, float]) -> float | None:
    """The worst of what was measured over what is usual; None: nothing was measured."""
    ratios = [figure / usual for figure, usual in pairs if figure is not None and usual]
    return min(ratios, default=None)


def ends_of(session: FabricSession) -> dict[Cell, BothEnds]:
    """What both ends of each cable received damaged, over all tests of suspects."""
    found: dict[Cell, list[CableEnds]] = {}
    for run in session.runs:
        for ends in run.ends:
            if ends.at_node is not None and ends.at_leaf is not None:
                found.setdefault((ends.node, ends.rail), []).append(ends)
    return {
        cell: BothEnds(
            node=_summed([e.at_node for e in listed if e.at_node is not None]),
            leaf=_summed([e.at_leaf for e in listed if e.at_leaf is not None]),
            detachable=all(e.detachable for e in listed),
        )
        for cell, listed in found.items()
    }


def _summed(counted: Sequence[Counted]) -> EndCounters:
    return EndCounters(
        uncorrectable=0,  # told as damaged frames by both ends alike
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


def step(session: FabricSession, policy: SessionPolicy) -> Round | Verdicts:
    """The tests to run next, or how it ended: pairs first, then collectives of who is cleared."""
    fabric, seen = fabric_of(session), observations(session)
    found = next_round(fabric, seen, policy.isolation)
    if isinstance(found, Round):
        return found
    good = fabric_verdicts.cleared(session, found)
    number = session.last_round + 1
    more = collectives.round_of(fabric, seen, good, policy.collectives, number, policy.isolation)
    return found if more is None else more


def outcome_blockers(
    session: FabricSession, verdicts: Verdicts, policy: SessionPolicy
) -> dict[str, tuple[Blocker, ...]]:
    """What stands in the way of each member, and of each leaf that is to blame."""
    ends = ends_of(session)
    named = tuple(name_part(blame, ends) for blame in verdicts.condemned)
    verdicts = verdicts.model_copy(update={"condemned": named})
    found = fabric_verdicts.blockers_of(session, verdicts)
    good = fabric_verdicts.cleared(session, verdicts)
    seen = observations(session)
    more = collectives.blockers(seen, good, policy.collectives, policy.isolation)
    seeks = {m.node for m in session.present if m.seeks}
    for name, listed in more.items():
        # a lent node is accused only of what is proved of itself
        found[name] += tuple(b for b in listed if name in seeks or b.reason in _PROVED)
    return found


def not_run(test: FabricTest, round_number: int) -> FabricRun:
    """A test that nobody could run: it tells nothing."""
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
