"""Who is tested with whom for gate C: who waits, who is lent, who has left. Pure.

Rules. Nobody is in two sessions. A node that is lent must be idle. What a node's tests showed
counts only while it is what it was when it came in. Which tests come next: `fabric_rounds.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from provisioner.model.base import Record
from provisioner.model.fabric_session import FabricMember, FabricOutcome, FabricSession
from provisioner.model.health import Gate, HealthReport
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.fault_location.isolation_words import IsolationPolicy

MEMBERS_MAX = 512  # a session's row is written after every round: some 4 MB then
LENT_TO = 8  # idle nodes are lent until a session has so many: a fault in it is then found
_COMING = frozenset({State.DISCOVERED, State.INTAKE, State.CONVERGING, State.VALIDATING})
Seeker = tuple[Node, HealthReport]


class SessionPolicy(Record):
    """Times in seconds. `partners_min`: other nodes that there must be for each."""

    partners_min: int = 3
    gather_s: float = 600.0
    wait_s: float = 6 * 3600.0
    collectives: tuple[int, ...] = ()  # nodes in each collective that follows the pairs
    isolation: IsolationPolicy = IsolationPolicy()


def waits(node: Node, report: HealthReport | None, outcome: FabricOutcome | None) -> bool:
    """Whether this node needs a session now: it passed everything before gate C in this stay."""
    if node.kind is not NodeKind.HOST or node.state is not State.VALIDATING or report is None:
        return False
    if report.started_at < node.entered_at or not report.fabric or report.failures:
        return False
    return not proved(report) and not answers(outcome, report)


def proved(report: HealthReport) -> bool:
    """Whether gate C's results are in the report."""
    return any(r.gate is Gate.C for r in report.results)


def answers(outcome: FabricOutcome | None, report: HealthReport) -> bool:
    """Whether an outcome is of these parts and of this validation."""
    return (
        outcome is not None
        and outcome.bound == report.inventory_digest
        and outcome.began_at >= report.started_at
    )


def kin(node: Node, other: Node) -> bool:
    """Whether two nodes may be tested with each other."""
    return (
        other.id != node.id
        and other.kind is NodeKind.HOST
        and (other.release, other.profile) == (node.release, node.profile)
        and other.placement is Placement.MAINTENANCE
        and other.vrf == node.vrf
    )


def idle(node: Node) -> bool:
    """Whether a node may be lent: certified, in the maintenance VRF, and nobody's."""
    return (
        node.kind is NodeKind.HOST
        and node.state is State.CERTIFIED
        and node.placement is Placement.MAINTENANCE
        and not node.tenant
        and bool(node.certificate)
    )


def partners(node: Node, nodes: Iterable[Node]) -> int:
    """How many others are there that this node may be tested with, now or soon."""
    return sum(kin(node, o) and (o.state is State.VALIDATING or idle(o)) for o in nodes)


def waiting_for(there: int, partners_min: int) -> str:
    """What a node that needs a session waits for, for a person."""
    if there < partners_min:
        return f"gate C waits for partners: {there} of at least {partners_min} are there"
    return f"gate C waits for its session, {there} partners are there"


def too_long(
    node: Node, report: HealthReport, there: int, policy: SessionPolicy, now: float
) -> Blocker | None:
    """A wait that ends: for partners, or where they are there, for a session with them.

    Those who are there may still be gathered, which is no fault of the node.
    """
    waited_s, alone = now - report.ended_at, there < policy.partners_min
    if waited_s <= policy.wait_s + (0.0 if alone else policy.gather_s):
        return None
    if alone:
        detail = f"no {policy.partners_min} partners in {policy.wait_s / 3600:.0f} hours"
        unblock = "Bring more nodes to validation, or take gate C out of `certify_gates`."
    else:
        detail = f"no session in {waited_s / 3600:.0f} hours, though {there} partners are there"
        unblock = "See what holds the partners up with `provisioner explain`; then take it back."
    return Blocker(
        reason=Reason.TIME_LIMIT, subject=f"{node.id}/gate C", detail=detail, unblock=unblock
    )


def forming(
    seekers: Sequence[Seeker],
    nodes: Sequence[Node],
    taken: Collection[str],
    policy: SessionPolicy,
    now: float,
) -> tuple[tuple[FabricMember, ...], ...]:
    """The members of every session that can begin now.

    Nodes that wait are gathered for `gather_s`, unless nobody else is on the way.
    """
    found: list[tuple[FabricMember, ...]] = []
    groups: dict[tuple[str, str, str], list[Seeker]] = {}
    free = [s for s in seekers if s[0].id not in taken]
    for seeker in sorted(free, key=lambda s: s[0].id):
        node = seeker[0]
        groups.setdefault((node.release, node.profile, node.vrf), []).append(seeker)
    for group in groups.values():
        first, names = group[0][0], {n.id for n, _ in group}
        elsewhere = names | set(taken)
        coming = any(_comes(n, first) for n in nodes if n.id not in elsewhere)
        oldest = min(report.ended_at for _, report in group)
        if coming and now - oldest < policy.gather_s:
            continue
        seeking = [_member(n, r.inventory_digest, seeks=True) for n, r in group[:MEMBERS_MAX]]
        spare = [n for n in nodes if idle(n) and kin(first, n) and n.id not in taken]
        lent = [
            _member(n, n.certificate, seeks=False)
            for n in spare[: max(0, max(LENT_TO, policy.partners_min + 1) - len(seeking))]
        ]
        if len(seeking) + len(lent) > policy.partners_min:
            found.append((*seeking, *lent))
    return tuple(found)


def _comes(node: Node, first: Node) -> bool:
    """Whether a node is on its way to the same tests; a new one has no profile yet."""
    alike = node.release == first.release and node.profile in ("", first.profile)
    return alike and node.kind is NodeKind.HOST and node.state in _COMING


def _member(node: Node, bound: str, *, seeks: bool) -> FabricMember:
    ports = tuple(p for p in node.ports if p.rail >= 0)
    return FabricMember(
        node=node.id, seeks=seeks, bound=bound, entered_at=node.entered_at, ports=ports
    )


def left(
    session: FabricSession, nodes: Mapping[str, Node], reports: Mapping[str, HealthReport]
) -> tuple[str, ...]:
    """Members that are not any more what they were when they came in.

    Before the first test a lent node must be nobody's. Who is allocated later stays: it sees that
    it is in a session, and is released when that has ended.
    """
    gone = []
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
            stays = stays and (idle(node) or bool(session.runs))
        if not stays:
            gone.append(member.node)
    return tuple(gone)
