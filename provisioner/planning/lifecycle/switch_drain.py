"""Decide whether a switch may go down: conflicting outages, remaining traffic, and recovery."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from provisioner.model.node import Node, NodeKind
from provisioner.model.switch import Counters, Wellness


def find_rails(switch: str, nodes: Iterable[Node]) -> frozenset[int]:
    """Return the rails (or planes) whose cables end on this leaf; none for a spine."""
    return frozenset(p.rail for n in nodes for p in n.ports if p.switch == switch)


def find_rail_conflicts(node: Node, nodes: Sequence[Node], down: Iterable[str]) -> tuple[str, ...]:
    """Return a reason for each leaf in `down` that shares a rail with `node`.

    Two leaves of one rail are never down together.
    """
    if node.kind is not NodeKind.SWITCH:
        return ()
    mine = find_rails(node.id, nodes)
    return tuple(
        f"{leaf} carries rail {min(shared)} as well and is down"
        for leaf in sorted(down)
        if leaf != node.id and (shared := mine & find_rails(leaf, nodes))
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
