"""Blockers for nodes and leaves from a session's verdicts, each naming the part. Pure.

A node passes only if none of its cables and leaves is condemned or undecided; nodes that are not on
the faulty part pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.cohort import CheckResult, Finding, Gate, Severity, Verdict
from provisioner.model.events.fleet_events import FabricSessionEnded
from provisioner.model.fabric_session import FabricOutcome, FabricSession
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.fault_location.isolation_words import (
    PART_ORDER,
    POD_PATHS,
    Blame,
    Cell,
    Culprit,
    Fabric,
    Part,
    Verdicts,
)

# ------------------------------------------------------------------------------
# Naming of the faulty part of a condemned link, by counters from both ends of the cable.
#
# A receiver counts data that arrives damaged: errors that only one end receives point at the
# sender, which is the other end's optic or that half of the cable; errors at both ends point at the
# cable (both-ends rule). Without both ends, or without errors, the culprit stays "link".


# One uncorrectable block in a test of minutes is above any healthy link's rate; a lower threshold
# would let the noise of a single event choose a part.
ERRORS_MIN = 2


class EndCounters(Record):
    """Counters of one end of a cable while the tests ran (differences, not totals)."""

    uncorrectable: int = Field(ge=0)  # FEC blocks that could not be corrected, received
    symbol_errors: int = Field(default=0, ge=0)  # after FEC, received
    crc_errors: int = Field(default=0, ge=0)  # frames with a bad checksum, received
    link_downs: int = Field(default=0, ge=0)
    began_at: float  # Unix seconds
    ended_at: float

    @property
    def received_damaged(self) -> int:
        """Return the damaged data received; one event may be counted in several counters."""
        return max(self.uncorrectable, self.symbol_errors, self.crc_errors)


class BothEnds(Record):
    """Counters of one cable, for one interval: at the node's port and at the leaf's."""

    node: EndCounters | None = None
    leaf: EndCounters | None = None
    detachable: bool = True  # optics can be taken off the cable; False: copper or active cable

    @property
    def complete(self) -> bool:
        """Return whether both ends were read, for overlapping times."""
        if self.node is None or self.leaf is None:
            return False
        began = max(self.node.began_at, self.leaf.began_at)
        return began < min(self.node.ended_at, self.leaf.ended_at)


def name_part(blame: Blame, ends: Mapping[Cell, BothEnds]) -> Blame:
    """Return a condemned link with its part, if both ends show it; any other blame unchanged."""
    both = ends.get((blame.node, blame.rail))
    if blame.culprit is not Culprit.LINK or blame.confidence <= 0.0 or both is None:
        return blame
    if both.node is None or both.leaf is None or not both.complete:
        return blame
    at_node = both.node.received_damaged >= ERRORS_MIN
    at_leaf = both.leaf.received_damaged >= ERRORS_MIN
    counted = (
        f"damaged blocks or frames received: {both.node.received_damaged} at the node,"
        f" {both.leaf.received_damaged} at the leaf"
    )
    if not at_node and not at_leaf:
        downs = both.node.link_downs + both.leaf.link_downs
        link_downs = f", but it went down {downs} times" if downs else ""
        conclusion = f"{counted}; so the signal is not at fault{link_downs}"
        return blame.model_copy(update={"reason": f"{blame.reason}; {conclusion}"})
    if (at_node and at_leaf) or not both.detachable:
        return blame.model_copy(
            update={"culprit": Culprit.CABLE, "reason": f"{blame.reason}; {counted}"}
        )
    sender = "leaf" if at_node else "node"
    conclusion = f"{counted}; so the optic at the {sender}'s end, or its half of the cable"
    return blame.model_copy(
        update={"culprit": Culprit.OPTIC, "end": sender, "reason": f"{blame.reason}; {conclusion}"}
    )


CHECK = "rdma_pair"  # the check whose result a session produces


def find_blockers(
    session: FabricSession, verdicts: Verdicts, fabric: Fabric
) -> dict[str, tuple[Blocker, ...]]:
    """Return the blockers of each member, and of each leaf that is at fault.

    A lent node is blocked only by a proved fault of its own.
    """
    by_subject: dict[str, list[Blocker]] = {m.node: [] for m in session.present}
    on_leaf: dict[str, list[str]] = {}
    for member in session.present:
        for leaf in {p.switch for p in member.ports}:
            on_leaf.setdefault(leaf, []).append(member.node)
    seeks = {m.node for m in session.present if m.seeks}
    for blame in verdicts.condemned:
        if blame.culprit in (Culprit.LEAF, Culprit.UPLINK):
            by_subject.setdefault(blame.leaf, []).append(_leaf(blame))
            for name in set(on_leaf.get(blame.leaf, ())) & seeks:
                by_subject[name].append(_leaf(blame))
        elif blame.group:
            for name in _list_dependents(fabric, blame) & seeks:
                by_subject[name].append(_shared(blame))
        elif blame.node in by_subject:
            by_subject[blame.node].append(_accused(session, blame))
    for blame in verdicts.undecided:
        names = {blame.node} if blame.node else set(on_leaf.get(blame.leaf, ()))
        if blame.group:
            names = _list_dependents(fabric, blame)
        for name in names & seeks:
            by_subject[name].append(_open(name, blame, verdicts.held))
    for name in set(verdicts.untested) & seeks:
        by_subject[name].append(_untested(name))
    return {name: tuple(listed) for name, listed in by_subject.items()}


def find_cleared(session: FabricSession, verdicts: Verdicts, fabric: Fabric) -> frozenset[str]:
    """Return the members without any blocker from their pair tests, including lent ones."""
    all_seek = session.model_copy(
        update={"members": tuple(m.model_copy(update={"seeks": True}) for m in session.members)}
    )
    return frozenset(n for n, b in find_blockers(all_seek, verdicts, fabric).items() if not b)


def _accused(session: FabricSession, blame: Blame) -> Blocker:
    detail = f"{blame} (with {', '.join(blame.partners[:5])})"
    if blame.culprit is Culprit.NODE:
        return Blocker(
            reason=Reason.CHECK_FAILED,
            subject=f"{blame.node}/fabric",
            detail=detail,
            unblock="Open a repair case: tests with good partners fail on most of its rails.",
        )
    ports = {p.rail: p for m in session.members if m.node == blame.node for p in m.ports}
    port = ports.get(blame.rail)
    end = f"{port.switch}/{port.interface}" if port is not None else blame.leaf
    return Blocker(
        reason=Reason.CABLING,
        subject=f"{blame.node}/rail{blame.rail}",
        detail=f"{_part(blame)} {end} is to blame: {detail}",
        unblock=_EXCHANGE[blame.culprit],
    )


_EXCHANGE = {
    Culprit.LINK: "Clean or exchange cable and optics of this link, then retry the node.",
    Culprit.CABLE: "Exchange the cable, then retry the node.",
    Culprit.OPTIC: "Clean the named optic and the cable's end in it, exchange it if that does not"
    " help, then retry the node.",
}


def _part(blame: Blame) -> str:
    if blame.culprit is Culprit.OPTIC:
        return f"the optic at the {blame.end}'s end of the link to"
    return "the cable to" if blame.culprit is Culprit.CABLE else "the link to"


def _leaf(blame: Blame) -> Blocker:
    part = "the leaf" if blame.culprit is Culprit.LEAF else "its path to other leaves"
    return Blocker(
        reason=Reason.FABRIC,
        subject=blame.leaf,
        detail=f"{part} is to blame: {blame.reason}",
        unblock="Repair the leaf, then retry the nodes on it.",
    )


def _list_dependents(fabric: Fabric, blame: Blame) -> set[str]:
    """Return the members that depend on a shared part, or on the paths through it."""
    part = Part(PART_ORDER.index(blame.culprit), blame.group)
    return {node for node, _ in fabric.find_cells(part)}


def _shared(blame: Blame) -> Blocker:
    unblock = "Look for the cause that these nodes share, repair it, then retry them."
    if blame.culprit in POD_PATHS or blame.culprit is Culprit.POD_SPINE:
        unblock = (
            "Look at the errors and discards of these switches and of their cables: each test is"
            " spread over all of them, so that none tells which it is. Then retry the nodes."
        )
    return Blocker(
        reason=Reason.FABRIC,
        subject=blame.group,
        detail=f"{_SHARED.get(blame.culprit, 'all of')} {blame.group} is to blame: {blame.reason}",
        unblock=unblock,
    )


_SHARED = {
    Culprit.SPINE: "the paths between the leaves of",
    Culprit.POD_SPINE: "the paths over the",
    Culprit.POD_UPLINK: "the paths to other pods over the",
    Culprit.SUPERSPINE: "the paths between pods over the",
}


def _open(name: str, blame: Blame, held: str) -> Blocker:
    detail = f"no part is condemned: {held}" if held else f"not cleared: {blame}"
    return Blocker(
        reason=Reason.CHECK_SKIPPED,
        subject=f"{name}/gate C",
        detail=detail,
        unblock="Examine the named part; retry the node when more partners are available.",
    )


def _untested(name: str) -> Blocker:
    return Blocker(
        reason=Reason.UNREACHABLE,
        subject=f"{name}/gate C",
        detail="no test with it could be run",
        unblock="It is tried again automatically; check that its system answers and has perftest.",
    )


def summarize_verdicts(verdicts: Verdicts) -> str:
    """Return the note of a session's end: its cost, and the faults that it may have missed."""
    notes = [f"{verdicts.rounds} rounds, {verdicts.node_minutes:.0f} node-minutes"]
    if verdicts.cleared:
        notes.append(
            f"{verdicts.cleared} links cleared; one that fails less than "
            f"{verdicts.rate_missed:.0%} of its tests may be among them"
        )
    if verdicts.held:
        notes.append(verdicts.held)
    return "; ".join(notes)


def list_partners(session: FabricSession, name: str) -> tuple[str, ...]:
    """Return the nodes that a node was tested with, in tests that had a result."""
    met = {
        partner
        for run in session.runs
        if name in run.nodes and any(r.shown != "not_run" for r in run.results)
        for partner in run.nodes
    }
    return tuple(sorted(met - {name}))


def describe_end(session: str, note: str, outcomes: Sequence[FabricOutcome]) -> FabricSessionEnded:
    return FabricSessionEnded(
        session=session,
        note=note,
        passed=tuple(o.node for o in outcomes if o.passed),
        blocked={o.node: str(o.blockers[0]) for o in outcomes if o.blockers},
    )


def find_failed_results(name: str, results: Sequence[CheckResult]) -> tuple[Blocker, ...]:
    """Return the blockers from joint judgement of the outputs of a node that was not condemned."""
    return tuple(
        Blocker(
            reason=Reason.CHECK_FAILED,
            subject=f"{name}/{r.check}",
            detail=r.findings[0].detail if r.findings else "it gave no reason",
            unblock="Examine the session's evidence, then retry the node.",
        )
        for r in results
        if r.verdict is not Verdict.PASS
    )


def report_failure(blockers: Sequence[Blocker]) -> CheckResult:
    """Return a result that is no pass, with the first blockers as its findings."""
    skipped = blockers[0].reason in (Reason.CHECK_SKIPPED, Reason.UNREACHABLE, Reason.OUR_BUG)
    return CheckResult(
        check=CHECK,
        gate=Gate.C,
        verdict=Verdict.SKIPPED if skipped else Verdict.FAIL,
        findings=tuple(
            Finding(
                part=b.subject,
                severity=Severity.CONFIG if skipped else Severity.ISOLATE,
                detail=b.detail,
            )
            for b in blockers[:8]
        ),
    )
