"""Decide whether a disruptive step may begin now, from limits on simultaneous outages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum

from provisioner.model.base import Record
from provisioner.model.location import Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.plan import Disruption, Step
from provisioner.model.switch import Counters, Wellness
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.place_ports import list_switch_groups

# ------------------------------------------------------------------------------
# Decide from measured loads which work an overloaded daemon postpones. Pure.
#
# Work under way on a device always continues, and nodes are always reclaimed from their tenants.
# Routine observations are postponed first, then new work.


# each limit: (strained, severe)
LAG_S = (1.0, 5.0)  # delay of the event loop: leases and agents need an answer within seconds
DESCRIPTORS = (0.80, 0.92)  # share of the process's limit: a BMC takes three, a play some ten
WAITING = (2_000, 10_000)  # queued writes: at some 5,000 a second, 0.4 and 2 seconds
DATABASE_WAIT_S = (5.0, 30.0)  # wait of one transaction, which takes milliseconds
DISK_BYTES = (2 * 1024**3, 256 * 1024**2)  # free space for the database, whose journal only grows


class Level(IntEnum):
    """How much work is postponed."""

    CALM = 0
    STRAINED = 1  # routine observations of serving nodes are postponed
    SEVERE = 2  # and no new work is started, except to reclaim nodes


class Load(Record):
    """The measured loads. None: this platform cannot measure it."""

    lag_s: float = 0.0
    descriptors: int | None = None
    descriptors_max: int | None = None
    waiting: int = 0
    disk_free_bytes: int | None = None
    database_wait_s: float = 0.0


class Strain(Record):
    """One resource that is short."""

    by: str  # "event_loop" | "descriptors" | "store" | "disk" | "database"
    level: Level
    detail: str


def find_strains(load: Load) -> tuple[Strain, ...]:
    """Return every resource that is short now, the worst first."""
    measured = [
        _measure_strain("event_loop", load.lag_s, LAG_S, f"it runs {load.lag_s:.1f} s late"),
        _measure_strain("store", load.waiting, WAITING, f"{load.waiting} writes wait"),
        _measure_strain(
            "database",
            load.database_wait_s,
            DATABASE_WAIT_S,
            f"a transaction has waited {load.database_wait_s:.0f} s for the database",
        ),
    ]
    if load.descriptors is not None and load.descriptors_max:
        share = load.descriptors / load.descriptors_max
        detail = f"{load.descriptors} of {load.descriptors_max} file descriptors are open"
        measured.append(_measure_strain("descriptors", share, DESCRIPTORS, detail))
    if load.disk_free_bytes is not None:
        limits = (-DISK_BYTES[0], -DISK_BYTES[1])
        detail = f"{load.disk_free_bytes // 1024**2} MiB are left for the database"
        measured.append(_measure_strain("disk", -load.disk_free_bytes, limits, detail))
    return tuple(sorted((s for s in measured if s.level), key=lambda s: -s.level))


def highest_level(strains: tuple[Strain, ...]) -> Level:
    return max((s.level for s in strains), default=Level.CALM)


def _measure_strain(by: str, value: float, limits: tuple[float, float], detail: str) -> Strain:
    reached = Level(sum(value >= limit for limit in limits))
    return Strain(by=by, level=reached, detail=detail)


# ------------------------------------------------------------------------------
# Share a site's operations between several daemons: the number that each may drive.


SLACK = 1.25  # times the share; fewer operations are not moved, so that none goes back and forth


def compute_share(active: int, daemons: int, operations_max: int) -> int:
    """Return how many operations each daemon may drive, so that together they can drive all.

    `active` operations of the whole site are shared among `daemons` live ones; `operations_max` is
    the limit of one daemon.
    """
    return max(1, min(operations_max, -(-active // max(daemons, 1))))


def has_too_many(driven: int, part: int) -> bool:
    """Return whether a daemon with `driven` operations should release some; `part` is its share."""
    return driven > part * SLACK + 1


# ------------------------------------------------------------------------------
# Decide whether a switch may go down: conflicting outages, remaining traffic, and recovery.


def rails_of(nodes: Iterable[Node]) -> dict[str, tuple[int, ...]]:
    """Return the rails whose cables end on each leaf."""
    rails: dict[str, set[int]] = {}
    for node in nodes:
        for port in node.ports:
            rails.setdefault(port.switch, set()).add(port.rail)
    return {leaf: tuple(sorted(numbers)) for leaf, numbers in rails.items()}


def find_rail_conflicts(
    node: Node, nodes: Sequence[Node], down: Collection[str]
) -> tuple[str, ...]:
    """Return a reason for each leaf in `down` that shares a rail with `node`.

    Two leaves of one rail are never down together.
    """
    if node.kind is not NodeKind.SWITCH or not down:
        return ()
    rails = rails_of(nodes)
    mine = {*rails.get(node.id, ())}
    return tuple(
        f"{leaf} carries rail {min(shared)} as well and is down"
        for leaf in sorted(down)
        if leaf != node.id and (shared := mine.intersection(rails.get(leaf, ())))
    )


def find_carrying_ports(
    before: Counters, after: Counters, seconds: float, idle_bps: float
) -> tuple[str, ...]:
    """Return the ports that carried more than `idle_bps` (bytes a second) between two readings.

    A port without a count in both readings, or with a count that decreased, counts as carrying.
    Keepalives account for the traffic of an idle port.
    """
    ports = sorted({*before, *after})
    return tuple(p for p in ports if not _idle(p, before, after, seconds, idle_bps))


def _idle(port: str, before: Counters, after: Counters, seconds: float, idle_bps: float) -> bool:
    if seconds <= 0 or port not in before or port not in after:
        return False
    carried = after[port] - before[port]
    return 0 <= carried <= idle_bps * seconds


def find_losses(before: Mapping[str, object], now: Wellness) -> tuple[str, ...]:
    """Return a sentence for each function that was well before a reboot and is not now.

    `before` is the state recorded before the reboot.
    """
    losses = []
    if now.health.partition(":")[0] != "OK" and now.health != before.get("health"):
        losses.append(f"health is {now.health}")
    losses += _describe_missing("BGP session", before.get("sessions"), now.established)
    losses += _describe_missing("VNI", before.get("vnis"), now.vnis)
    return tuple(losses)


def find_lost_carriers(before: Mapping[str, object], quiet: Iterable[str]) -> tuple[str, ...]:
    """Return the ports that had carrier before a reboot but did not show it since.

    `quiet` are the ports that have since shown carrier and no corrupt packets. One reading is
    enough: no host in use is on a leaf that goes down (`admission`), and hosts under maintenance
    reboot at different times.
    """
    return tuple(_describe_missing("the carrier of", before.get("ports"), quiet))


def _describe_missing(word: str, had: object, have: Iterable[str]) -> list[str]:
    missing = sorted(set(had) - set(have)) if isinstance(had, list | tuple) else []
    suffix = f"and {len(missing) - 1} more did not come back"
    return [f"{word} {missing[0]} {suffix}"] if missing else []


def find_damaged_ports(before: Counters, after: Counters) -> tuple[str, ...]:
    """Return the ports that counted corrupt packets between two readings."""
    return tuple(p for p in sorted({*before} & {*after}) if before[p] != after[p])


def find_clean_ports(before: Counters, after: Counters) -> frozenset[str]:
    """Return the ports that are in both readings and counted no corrupt packet between them."""
    return frozenset(p for p in {*before} & {*after} if before[p] == after[p])


_CARRYING = frozenset({Placement.CUSTOMER, Placement.MIXED})  # includes hosts being drained
_ABSENT = frozenset({State.DISCOVERED, State.INTAKE, State.QUARANTINED})
# states of a switch that is not in service, or is leaving it
UPGRADING = frozenset(
    {State.DISCOVERED, State.INTAKE, State.CONVERGING, State.VALIDATING, State.DRAINING}
)


def tier_of(node: Node) -> str:
    """Return the tier of a switch, the first part of its planned name ("leaf", "spine")."""
    return node.id.split("-", 1)[0]


def switch_limit(count: int, percent: int) -> int:
    """Return how many of `count` switches may be down: rounded down, but at least one."""
    return max(1, count * percent // 100)


def find_admission_reasons(
    node: Node,
    step: Step,
    nodes: Sequence[Node],
    disrupted: Mapping[str, Disruption],
    switches_down_percent: int,
    plan: AddressPlan | None = None,
) -> tuple[str, ...]:
    """Return the reasons why `step` on `node` must wait; () if it may begin.

    `nodes`: all switches, and whoever has a port at this one or at a disrupted one, at least.
    `disrupted` maps the nodes with a disruption under way to its kind. A switch goes down only
    while no host on it is being validated or is in a customer's VRF, and only within the limit of
    its tier. Two leaves that carry the same rail or plane never go down together, and no group of
    `plan` goes down as a whole.
    """
    if step.disruption is not Disruption.SWITCH or node.kind is not NodeKind.SWITCH:
        return ()
    switches = [n for n in nodes if n.kind is NodeKind.SWITCH and n.state is not State.RETIRED]
    peers = [n for n in switches if tier_of(n) == tier_of(node)]
    down = [n.id for n in peers if n.id != node.id and n.id in disrupted]
    reasons = []
    limit = switch_limit(len(peers), switches_down_percent)
    if len(down) >= limit:
        reasons.append(
            f"{len(down)} of {len(peers)} {tier_of(node)} switches are down, limit {limit}"
        )
    reasons += find_rail_conflicts(node, nodes, down)
    for group in list_switch_groups(node.id, plan):
        others = [
            n for n in switches if group in list_switch_groups(n.id, plan) and n.id != node.id
        ]
        reasons += _find_group_reasons(group, others, disrupted, switches_down_percent, reasons)
    using = [
        n.id
        for n in nodes
        if (n.state in (State.VALIDATING, State.RELEASED) or n.placement in _CARRYING)
        and any(p.switch == node.id for p in n.ports)
    ]
    if using:
        reasons.append(f"{using[0]} and {len(using) - 1} more use this switch now")
    return tuple(reasons)


def _find_group_reasons(
    group: str,
    others: Sequence[Node],
    disrupted: Mapping[str, Disruption],
    percent: int,
    said: Sequence[str],
) -> tuple[str, ...]:
    """Apply the limit of the tier to a group too, and keep its last switch up whatever the limit:
    one that is not taken in yet, or is quarantined, may carry nothing.
    """
    down = [n.id for n in others if n.id in disrupted]
    out = sorted({*down, *(n.id for n in others if n.state in _ABSENT)})
    limit = switch_limit(len(others) + 1, percent)
    if said or not out:
        return ()
    if len(down) >= limit:
        return (f"{len(down)} of {len(others) + 1} {group} are down, limit {limit}",)
    if len(out) < len(others):
        return ()
    away = f"{out[0]} and {len(out) - 1} more are down, quarantined or not taken in"
    return (f"no other of the {group} carries on: {away}; bring one back, or retire it",)


def find_busy_neighbours(node: Node, nodes: Mapping[str, Node]) -> tuple[str, ...]:
    """Return the switches on this host's cables that are out of service, sorted.

    A switch of an InfiniBand fabric need not be a node: UFM upgrades it, not the daemon.
    """
    return tuple(sorted({p.switch for p in node.ports if not _in_service(nodes.get(p.switch), p)}))


def _in_service(switch: Node | None, port: Port) -> bool:
    return bool(port.guid) if switch is None else switch.state not in UPGRADING
