"""The limits and facts that a node's outputs are judged by: the one place where they are put
together.

Checks on the node, tests among nodes and `node rejudge` ask here. One of them with another context
would judge the same outputs in another way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from provisioner import components
from provisioner.checks.check import CheckContext
from provisioner.checks.context import build_context
from provisioner.checks.threshold_data import Limits
from provisioner.model.cohort import Baseline
from provisioner.model.inventory import Inventory
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind
from provisioner.ports import Store
from provisioner.settings import Settings

GRAMMARS: Mapping[str, str] = {kind.name: kind.grammar for kind in components.ALL.values()}


def list_floors(baselines: Iterable[Baseline]) -> dict[str, tuple[float, str]]:
    """Return threshold -> (floor, how it was learned)."""
    return {b.metric: (b.floor, str(b)) for b in baselines}


async def judging_context(
    store: Store,
    matrix: Matrix,
    settings: Settings,
    thresholds: Mapping[str, Limits] | None,
    node: Node,
    inventory: Inventory,
) -> CheckContext:
    """Return the context. `thresholds`: the site's own, if any. The profile's learned limits are
    read from the store.
    """
    leaves = {p.switch for p in node.ports}
    nodes = [n for n in await store.nodes.list() if n.id != node.id] if leaves else []
    taught = await store.cohorts.list_baselines(node.profile) if node.kind is NodeKind.HOST else ()
    return build_context(
        node,
        inventory,
        matrix,
        overrides=thresholds,
        learned=list_floors(taught),
        grammars=GRAMMARS,
        to_other_leaf=settings.rail_proof == "other_leaf",
        harmless_lines=settings.kernel_lines_harmless,
        port_owners={
            f"{p.switch}/{p.interface}": f"{owner.id}/{p.nic_slot}"
            for owner in nodes
            for p in owner.ports
            if p.switch in leaves
        },
        port_names=await read_port_names(store, leaves),
    )


async def read_port_names(store: Store, switches: Iterable[str]) -> dict[str, Mapping[str, str]]:
    """Return the names of ports of those switches whose LLDP calls them otherwise."""
    seen = {name: await store.evidence.get_inventory(name) for name in sorted(switches)}
    return {n: i.port_names for n, i in seen.items() if i is not None and i.port_names is not None}
