"""What a campaign is told of a node: of its row, inventory, plan and way back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from provisioner.model.campaign import CampaignNode
from provisioner.model.inventory import DeviceKind, Inventory
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Reason
from provisioner.model.plan import Neighbour, Plan
from provisioner.planning.planner import PlanCache, PlanningNode
from provisioner.planning.rollback import WayBack, way_back

IN_SERVICE = frozenset({State.CERTIFIED, State.RELEASED})


def rails_of(nodes: Iterable[Node]) -> dict[str, tuple[int, ...]]:
    """Leaf -> the rails whose cables end on it. Uplinks of DPUs (rail -1) are no rail."""
    found: dict[str, set[int]] = {}
    for node in nodes:
        for port in node.ports:
            if port.rail >= 0:
                found.setdefault(port.switch, set()).add(port.rail)
    return {leaf: tuple(sorted(rails)) for leaf, rails in found.items()}


def revision_of(inventory: Inventory) -> str:
    """The hardware revision as the parts tell it: model, and part numbers of what is built in."""
    wanted = (DeviceKind.SYSTEM, DeviceKind.BASEBOARD)
    parts = {
        f"{d.kind} {d.part or d.model}"
        for d in inventory.devices
        if d.kind in wanted and (d.part or d.model)
    }
    return ", ".join([inventory.model or "unknown model", *sorted(parts)])


def node_facts(
    node: Node,
    inventory: Inventory,
    plan: Plan,
    back: WayBack,
    *,
    selected: bool,
    rails: Mapping[str, tuple[int, ...]],
    planes: tuple[int, ...] = (),
    after: tuple[str, ...] = (),
) -> CampaignNode:
    """One node as `decide` sees it. `rails`: of `rails_of` over the whole fleet."""
    place = node.location
    leaves = dict.fromkeys(p.switch for p in node.ports if node.kind is NodeKind.HOST)
    return CampaignNode(
        name=node.id,
        kind=node.kind,
        selected=selected,
        profile=node.profile,
        revision=revision_of(inventory),
        rack=place.rack,
        unit=f"pod{place.pod}/su{place.scalable_unit}",
        leaves=tuple(leaves),
        rails=rails.get(node.id, ()) if node.kind is NodeKind.SWITCH else (),
        planes=planes,
        tenant=node.tenant,
        gpus=len(inventory.devices_of(DeviceKind.GPU)),
        in_service=node.state in IN_SERVICE,
        steps=len(plan.steps),
        resets=plan.resets,
        minutes=-(-plan.duration_s // 60),
        one_way=back.one_way,
        irreversible=back.blockers,
        after=after,
        blockers=plan.blockers,
    )


def plan_both_ways(
    node: PlanningNode,
    baseline: str,
    upgraded: Sequence[Neighbour],
    cache: PlanCache,
    held: frozenset[str] | None = None,
) -> tuple[Plan, WayBack, tuple[str, ...]]:
    """(plan, way back, nodes that must be done first).

    A node that a rule between versions holds back is planned again with its neighbours as the
    campaign leaves them (`upgraded`); if it can then be moved, it waits for those of them that
    change. If it cannot be moved either way, its blockers are those of now.
    """
    now = cache.plan(node)
    after: tuple[str, ...] = ()
    if now.blockers and upgraded and any(b.reason is Reason.CONSTRAINT for b in now.blockers):
        later = cache.plan(replace(node, neighbours=tuple(upgraded)))
        if not later.blockers:
            as_is = {n.node: n.versions for n in node.neighbours}
            changing = (n.node for n in upgraded if as_is.get(n.node) != n.versions)
            now, after = later, tuple(sorted(changing))
            node = replace(node, neighbours=tuple(upgraded))
    if now.blockers or not baseline:
        return now, WayBack(node=node.inventory.node), after
    return now, way_back(node, now, baseline, cache, held), after
