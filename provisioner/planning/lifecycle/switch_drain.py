"""Whether a switch may go down: who must not be down with it, and whether its traffic has moved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from provisioner.model.node import Node, NodeKind
from provisioner.switches.cumulus_drain import Counters, Wellness


def rails(switch: str, nodes: Iterable[Node]) -> frozenset[int]:
    """The rails (or planes) whose cables end on this leaf; none for a spine."""
    return frozenset(p.rail for n in nodes for p in n.ports if p.switch == switch)


def together(node: Node, nodes: Sequence[Node], down: Iterable[str]) -> tuple[str, ...]:
    """Leaves in `down` that carry a rail which `node` carries too: never both at a time."""
    if node.kind is not NodeKind.SWITCH:
        return ()
    mine = rails(node.id, nodes)
    return tuple(
        f"{other} carries rail {min(shared)} as well and is down"
        for other in sorted(down)
        if other != node.id and (shared := mine & rails(other, nodes))
    )


def still_carrying(
    before: Counters, after: Counters, seconds: float, idle_bps: float
) -> tuple[str, ...]:
    """Ports that carried more than `idle_bps` (bytes a second) between two looks.

    A port that was not counted both times, or whose counter went back, tells nothing: it counts
    as carrying. Keepalives are what is left on an idle port.
    """
    ports = sorted({*before, *after})
    return tuple(p for p in ports if not _idle(p, before, after, seconds, idle_bps))


def _idle(port: str, before: Counters, after: Counters, seconds: float, idle_bps: float) -> bool:
    if seconds <= 0 or port not in before or port not in after:
        return False
    carried = after[port] - before[port]
    return 0 <= carried <= idle_bps * seconds


def lost(before: Mapping[str, object], now: Wellness) -> tuple[str, ...]:
    """What was well before a reboot and is not now; `before` as it was recorded then."""
    said = []
    if now.health.partition(":")[0] != "OK" and now.health != before.get("health"):
        said.append(f"health is {now.health}")
    said += _missing("BGP session", before.get("sessions"), now.established)
    said += _missing("VNI", before.get("vnis"), now.vnis)
    return tuple(said)


def carrierless(before: Mapping[str, object], quiet: Iterable[str]) -> tuple[str, ...]:
    """Ports that had carrier before a reboot and were not once seen `quiet` since.

    Once is enough: no host in use is at a leaf that goes down (`admission`), and those that are
    worked on meanwhile are booted, each at its own time.
    """
    return tuple(_missing("the carrier of", before.get("ports"), quiet))


def _missing(word: str, had: object, have: Iterable[str]) -> list[str]:
    missing = sorted(set(had) - set(have)) if isinstance(had, list | tuple) else []
    rest = f"and {len(missing) - 1} more did not come back"
    return [f"{word} {missing[0]} {rest}"] if missing else []


def damaged(before: Counters, after: Counters) -> tuple[str, ...]:
    """Ports that counted broken packets between two looks."""
    return tuple(p for p in sorted({*before} & {*after}) if before[p] != after[p])


def undamaged(before: Counters, after: Counters) -> frozenset[str]:
    """Ports that had carrier both times and counted none between."""
    return frozenset(p for p in {*before} & {*after} if before[p] == after[p])
