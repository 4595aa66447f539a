"""Faults at a host and its cables, that only show when the moved host is asked itself."""

from __future__ import annotations

from dataclasses import replace

from release_rig import LEAF, NODE, OTHER_LEAF, PEER, RED_CANARY, Bench


def _canary_is_lost(bench: Bench) -> None:
    for switch in bench.switches.values():
        switch.servers.pop(RED_CANARY, None)


def _swapped_rails(bench: Bench) -> None:
    """The cables of rails 3 and 5 of the node are exchanged, at its own end."""
    view = bench.rig.site.hosts[NODE]
    three, five = (next(c for c in view.cables if c.rail == rail) for rail in (3, 5))
    others = tuple(c for c in view.cables if c.rail not in (3, 5))
    view.cables = (
        *others,
        replace(three, nic_slot=five.nic_slot),
        replace(five, nic_slot=three.nic_slot),
    )
    ends = {leaf: bench.switches[leaf].neighbours[bench.port] for leaf in (LEAF, OTHER_LEAF)}
    for leaf, other in ((LEAF, OTHER_LEAF), (OTHER_LEAF, LEAF)):
        bench.switches[leaf].planted.lldp[bench.port] = (NODE, ends[other].port)


def _swapped_nodes(bench: Bench) -> None:
    """The host hears the port of another node, whose cable is in its own."""
    view = bench.rig.site.hosts[NODE]
    theirs = next(p.interface for p in bench.rig.nodes[PEER].ports if p.switch == LEAF)
    view.cables = tuple(replace(c, interface=theirs) if c.rail == 3 else c for c in view.cables)
    bench.leaf.planted.lldp[bench.port] = (PEER, bench.leaf.neighbours[theirs].port)


OF_HOSTS = {
    "the host sends a rail's packets through another rail": (
        lambda b: b.rig.site.machines[NODE].faults.add("rails_answer_elsewhere"),
        "host_route",
    ),
    "RDMA does not get through the port, and packets do": (
        lambda b: b.leaf.planted.no_rdma.add(b.port),
        "rdma",
    ),
    "the canary of the tenant is gone": (_canary_is_lost, "rdma"),
    "a setting of a NIC was changed": (
        lambda b: (
            b.rig.site.machines[NODE]
            .bluefields["NIC_3"]
            .nv_config.update(ROCE_ADAPTIVE_ROUTING_EN="0")
        ),
        "nic_settings",
    ),
    "a NIC lost what a boot loses": (
        lambda b: b.rig.site.machines[NODE].bluefields["NIC_3"].runtime.clear(),
        "nic_settings",
    ),
    "a NIC counts errors": (lambda b: b.card().traits.update(rnr_nak_retry_err=2), "nic_errors"),
    "two rails of the node are exchanged": (_swapped_rails, "cables"),
    "the cables of two nodes are exchanged": (_swapped_nodes, "cables"),
}
