"""Set aside the adopted nodes over which no person has granted that a campaign may take them.

Without this a campaign would choose such a node in every turn, never begin it, and hold its place
in the rack against others. So the node is refused like any other one that cannot go: the preview
names it, the campaign continues without it, takes it when the grant comes, and ends without it.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from provisioner.model.adoption.capability import Capability, Grant
from provisioner.model.campaign import CampaignNode
from provisioner.model.node import Node, NodeKind, Origin
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.release.adoption import GRANT_REMEDY, describe_refusal


def refuse_ungranted(
    facts: Sequence[CampaignNode], nodes: Mapping[str, Node], grants: Iterable[Grant]
) -> tuple[CampaignNode, ...]:
    """Return the facts with a blocker on each selected node that no grant lets a campaign take.

    A leaf needs the grant over the tenants' hosts that leave service with it, too.
    """
    granted = tuple(grants)
    whys = {
        name: why
        for name, node in nodes.items()
        if node.origin is not Origin.TAKEN_IN
        and (why := describe_refusal(node, Capability.FIRMWARE, granted))
    }
    if not whys:
        return tuple(facts)
    for host in facts:
        if host.kind is NodeKind.HOST and host.tenant and host.in_service and host.name in whys:
            for leaf in host.leaves:
                whys.setdefault(leaf, whys[host.name])
    return tuple(_refuse(node, whys.get(node.name, "")) for node in facts)


def _refuse(node: CampaignNode, why: str) -> CampaignNode:
    if not why or not node.selected or node.blockers:
        return node
    blocker = Blocker(
        reason=Reason.NOT_GRANTED, subject=node.name, detail=why, unblock=GRANT_REMEDY
    )
    return node.model_copy(update={"blockers": (blocker,)})
