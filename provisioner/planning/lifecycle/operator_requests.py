"""What a person may ask of a node, as moves of the journey's table, or why not."""

from __future__ import annotations

from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.planning.lifecycle.journey import may_enter
from provisioner.planning.release.entitlement import is_stranger


def retry(node: Node, now: float) -> Node | str:
    """Out of quarantine: to converging where the node is identified and fenced, else anew."""
    fresh = {"blockers": (), "attempts": 0, "note": "retried by request"}
    if node.is_parked:
        return node.model_copy(update=fresh)  # parked where it was: it goes on from there
    if node.state not in (State.QUARANTINED, State.REPAIRING):
        return f"it is {node.state}, not quarantined"
    identified = bool(node.profile) and node.placement is Placement.MAINTENANCE
    if node.state is State.QUARANTINED and identified:
        return node.moved(State.CONVERGING, now, **fresh)
    # a node that was never identified is a stranger: it begins again, by way of repair
    repairing = node if node.state is State.REPAIRING else node.moved(State.REPAIRING, now)
    assert may_enter(repairing, State.DISCOVERED, node.placement)
    # without a profile it counts as not identified: parts and profile are read anew
    return repairing.moved(State.DISCOVERED, now, profile="", **fresh)


def take(node: Node, now: float) -> Node | str:
    """A stranger with its ports given to us, whichever network they stand in; it is tried again."""
    if node.kind is not NodeKind.HOST:
        return "it is a switch, which has no ports in a tenant's network"
    if node.taken:
        return "its ports were given to the provisioner already"
    if not is_stranger(node):
        return "it was taken in already: its ports are the provisioner's to move"
    given = node.model_copy(update={"taken": True})
    return retry(given, now) if node.state is State.QUARANTINED else given


def reclaim(node: Node, now: float, *, for_repair: bool = False) -> Node | str:
    """Back from its tenant: draining fences and erases it before anything else is done.

    `for_repair`: it stays allocated, and goes back to the same tenant when it is well again.
    """
    if node.state is not State.RELEASED:
        return f"it is {node.state}, not released"
    served = node.served or node.tenant
    tenant = node.tenant if for_repair else ""
    note = "taken back for repair" if for_repair else "reclaimed by request"
    return node.moved(State.DRAINING, now, tenant=tenant, served=served, note=note)
