"""Members of fabric sessions for gate C: nodes that wait, nodes that are lent, nodes that left.
Pure.

A node is in at most one session. A node that is lent must be idle. The results of a node's tests
count only while the node is unchanged since it joined. `fabric_rounds.py` selects the next tests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from provisioner.model.base import Record
from provisioner.model.cohort import Gate, HealthReport
from provisioner.model.fabric_session import FabricMember, FabricOutcome, FabricSession
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.fault_location.isolation_words import IsolationPolicy

MEMBERS_MAX = 512  # a session's row is written after every round: some 4 MB then
LENT_TO = 8  # idle nodes are lent up to this session size, so that a fault in it can be located
_COMING = frozenset({State.DISCOVERED, State.INTAKE, State.CONVERGING, State.VALIDATING})
Seeker = tuple[Node, HealthReport]


class SessionPolicy(Record):
    """Limits of a session; times are in seconds. `partners_min`: other nodes required for each."""

    partners_min: int = 3
    gather_s: float = 600.0
    wait_s: float = 6 * 3600.0
    collectives: tuple[int, ...] = ()  # nodes in each collective that follows the pairs
    isolation: IsolationPolicy = IsolationPolicy()


def look_for_rate(rate_min: float) -> IsolationPolicy:
    """Return the policy that looks for parts which fail at least this share of their tests.

    Rates below 1 take more rounds; `make bench NAME=isolation` measures this policy at 0.3.
    """
    if rate_min >= 1.0:
        return IsolationPolicy()
    return IsolationPolicy(rate_min=rate_min, miss_risk=0.05, rounds_max=200)


def needs_session(node: Node, report: HealthReport | None, outcome: FabricOutcome | None) -> bool:
    """Whether this node needs a session now: it passed everything before gate C in this stay."""
    if node.kind is not NodeKind.HOST or node.state is not State.VALIDATING or report is None:
        return False
    if report.started_at < node.entered_at or not report.fabric or report.failures:
        return False
    return not has_fabric_results(report) and not is_current_outcome(outcome, report)


def has_fabric_results(report: HealthReport) -> bool:
    return any(r.gate is Gate.C for r in report.results)


def is_current_outcome(outcome: FabricOutcome | None, report: HealthReport) -> bool:
    return (
        outcome is not None
        and outcome.bound == report.inventory_digest
        and outcome.began_at >= report.started_at
    )


def may_pair(node: Node, other: Node) -> bool:
    """Return whether two nodes may be tested with each other."""
    return (
        other.id != node.id
        and other.kind is NodeKind.HOST
        and (other.release, other.profile) == (node.release, node.profile)
        and other.placement is Placement.MAINTENANCE
        and other.vrf == node.vrf
    )


def may_lend(node: Node) -> bool:
    """Whether a node may be lent: certified, in the maintenance VRF, and without a tenant."""
    return (
        node.kind is NodeKind.HOST
        and node.state is State.CERTIFIED
        and node.placement is Placement.MAINTENANCE
        and not node.tenant
        and bool(node.certificate)
    )


def count_partners(node: Node, nodes: Iterable[Node]) -> int:
    """Return the number of nodes that this node may be tested with, now or soon."""
    return sum(may_pair(node, o) and (o.state is State.VALIDATING or may_lend(o)) for o in nodes)


def describe_wait(there: int, partners_min: int) -> str:
    """Return the note for people on a node that needs a session."""
    if there < partners_min:
        return f"gate C waits for partners: {there} of at least {partners_min} are there"
    return f"gate C waits for its session, {there} partners are there"


def find_overdue_wait(
    node: Node, report: HealthReport, there: int, policy: SessionPolicy, now: float
) -> Blocker | None:
    """Return a blocker if the wait for partners, or for a session with them, is over its limit.

    Available partners may still be gathering, which is no fault of the node.
    """
    waited_s = now - report.ended_at
    alone = there < policy.partners_min
    if waited_s <= policy.wait_s + (0.0 if alone else policy.gather_s):
        return None
    if alone:
        detail = f"no {policy.partners_min} partners in {policy.wait_s / 3600:.0f} hours"
        unblock = "Bring more nodes to validation, or take gate C out of `certify_gates`."
    else:
        detail = f"no session in {waited_s / 3600:.0f} hours, though {there} partners are there"
        unblock = "Find what delays the partners with `provisioner explain`, then reclaim it."
    return Blocker(
        reason=Reason.TIME_LIMIT, subject=f"{node.id}/gate C", detail=detail, unblock=unblock
    )


def form_sessions(
    seekers: Sequence[Seeker],
    nodes: Sequence[Node],
    taken: Collection[str],
    policy: SessionPolicy,
    now: float,
) -> tuple[tuple[FabricMember, ...], ...]:
    """Return the members of every session that can begin now.

    Waiting nodes are gathered for `gather_s`, unless no other node is on the way.
    """
    sessions: list[tuple[FabricMember, ...]] = []
    groups: dict[tuple[str, str, str], list[Seeker]] = {}
    free = [s for s in seekers if s[0].id not in taken]
    for seeker in sorted(free, key=lambda s: s[0].id):
        node = seeker[0]
        groups.setdefault((node.release, node.profile, node.vrf), []).append(seeker)
    for group in groups.values():
        first = group[0][0]
        names = {n.id for n, _ in group}
        elsewhere = names | set(taken)
        coming = any(_comes(n, first) for n in nodes if n.id not in elsewhere)
        oldest = min(report.ended_at for _, report in group)
        if coming and now - oldest < policy.gather_s:
            continue
        seeking = [_member(n, r.inventory_digest, seeks=True) for n, r in group[:MEMBERS_MAX]]
        spare = [n for n in nodes if may_lend(n) and may_pair(first, n) and n.id not in taken]
        lent = [
            _member(n, n.certificate, seeks=False)
            for n in spare[: max(0, max(LENT_TO, policy.partners_min + 1) - len(seeking))]
        ]
        if len(seeking) + len(lent) > policy.partners_min:
            sessions.append((*seeking, *lent))
    return tuple(sessions)


def _comes(node: Node, first: Node) -> bool:
    """Return whether a node is on its way to the same tests; a new one has no profile yet."""
    alike = node.release == first.release and node.profile in ("", first.profile)
    return alike and node.kind is NodeKind.HOST and node.state in _COMING


def _member(node: Node, bound: str, *, seeks: bool) -> FabricMember:
    ports = tuple(p for p in node.ports if p.rail >= 0)
    return FabricMember(
        node=node.id,
        seeks=seeks,
        bound=bound,
        entered_at=node.entered_at,
        ports=ports,
        rack=node.location.rack,
        pdus=tuple(sorted({outlet.pdu for outlet in node.outlets})),
    )


def find_departed(
    session: FabricSession, nodes: Mapping[str, Node], reports: Mapping[str, HealthReport]
) -> tuple[str, ...]:
    """Return the members that have changed since they joined.

    Before the first test a lent node must have no tenant. A node that is allocated later stays: it
    is released when the session has ended.
    """
    departed = []
    for member in session.present:
        node = nodes.get(member.node)
        stays = (
            node is not None
            and node.entered_at == member.entered_at
            and node.placement is Placement.MAINTENANCE
            and node.vrf == session.vrf
        )
        if stays and member.seeks:
            assert node is not None
            report = reports.get(member.node)
            stays = node.state is State.VALIDATING and report is not None
            stays = stays and report is not None and report.inventory_digest == member.bound
        elif stays:
            assert node is not None
            stays = node.state is State.CERTIFIED and node.certificate == member.bound
            stays = stays and (may_lend(node) or bool(session.runs))
        if not stays:
            departed.append(member.node)
    return tuple(departed)
