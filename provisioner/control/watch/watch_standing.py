"""The state of the watch, gathered for people: nothing is asked or changed."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.control.watch.watcher import Watcher
from provisioner.model.node import BmcRef, Node
from provisioner.model.watch import WatchedBmc, WatchedNode, WatchStatus


def read_standing(watcher: Watcher, now: float) -> WatchStatus:
    """Return the watch as it stands at `now`."""
    return read_summary(watcher, now).model_copy(update={"nodes": tuple(iterate_nodes(watcher))})


def read_summary(watcher: Watcher, now: float) -> WatchStatus:
    """Return the same without its nodes: those of a large fleet take seconds (`nodes`)."""
    leaf_ports = watcher.leaf_ports
    partitions = watcher.partitions
    listed = {} if leaf_ports is None else dict(leaf_ports.listed)
    listed |= {} if partitions is None else partitions.listed
    return WatchStatus(
        at=now,
        listener=watcher.feeds.listens,
        requests_per_s=watcher.eyes.budget.per_s,
        requests=watcher.eyes.budget.spent,
        routine=watcher.may_watch(),
        leaves=dict(sorted(watcher.leaves.read.items())),
        listed_ports=dict(sorted(listed.items())),
        leaf_ports_read={} if leaf_ports is None else dict(sorted(leaf_ports.read.items())),
    )


def iterate_nodes(watcher: Watcher) -> Iterator[WatchedNode]:
    """Yield each node that is watched now; as it stands when it comes."""
    counted_at = watcher.ports.read_report_times()
    for node, heard in watcher.list_watched():
        yield _node(watcher, node, heard, counted_at.get(node.id, {}))


def _node(
    watcher: Watcher, node: Node, heard: dict[str, float], told: dict[str, float]
) -> WatchedNode:
    leaves = {f"{p.switch}/{p.interface}" for p in node.ports}
    return WatchedNode(
        node=node.id,
        looked_at=watcher.looked.get(node.id, 0.0),
        bmcs=tuple(_bmc(watcher, node, bmc, heard.get(bmc.name, 0.0)) for bmc in node.bmcs),
        ports=len(leaves),
        counted=len(leaves & set(told)),
        counters_at=max((at for port, at in told.items() if port not in leaves), default=0.0),
    )


def _bmc(watcher: Watcher, node: Node, bmc: BmcRef, heard_at: float) -> WatchedBmc:
    return WatchedBmc(
        bmc=bmc.name,
        way=watcher.feeds.find_way(node.id, bmc.name),
        heard_at=heard_at,
        reports=watcher.eyes.count_reports(node.id, bmc.url),
    )
