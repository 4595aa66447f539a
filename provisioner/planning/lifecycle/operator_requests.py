"""The requests of an operator for one node, as moves of the journey's table.

Each function returns the changed node, or a sentence that says why the request is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from provisioner.model.inventory import BmcClock
from provisioner.model.node import (
    BmcRef,
    BoardTpm,
    Boots,
    Node,
    NodeKind,
    Placement,
    State,
    TenantData,
    TpmProof,
)
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.journey import enter_state
from provisioner.planning.release.entitlement import is_stranger

# ------------------------------------------------------------------------------
# A person's request to set the time of a node's BMCs: whether it may be carried out. Pure.
#
# It is an operation of its own, so that nothing else writes to the BMCs meanwhile, and the next
# daemon goes on with it. It touches no host system, so that a node that serves may have it too.


WANT = "bmc time"  # the operation's purpose
SWITCH = "switch"  # kind of a management API that is no BMC
SET_WITHIN_S = 10.0  # between setting a clock by hand and reading it again


def list_clocks(node: Node) -> tuple[BmcRef, ...]:
    """Return the BMCs of a node whose time can be set."""
    if node.kind is not NodeKind.HOST or node.state is State.RETIRED:
        return ()
    return tuple(bmc for bmc in node.bmcs if bmc.kind != SWITCH)


def find_objection(node: Node) -> Blocker | None:
    """Return why the time of a node's BMCs is not set; None: it may be."""
    if list_clocks(node):
        return None
    return Blocker(
        reason=Reason.PRECONDITION,
        subject=node.id,
        detail="it is no host with a BMC that is in use",
        unblock="Set the time of a switch by its own configuration.",
    )


def describe_effect(node: Node, servers: Sequence[str]) -> tuple[str, ...]:
    """Return the effects of the request, in sentences for the person who decides."""
    names = ", ".join(bmc.name for bmc in list_clocks(node))
    if not servers:
        return (f"The BMCs {names} of {node.id} get the daemon's time once (no bmc_ntp_servers).",)
    by_hand = "One without NTP servers in its tree gets the daemon's time once."
    return (f"The BMCs {names} of {node.id} get the NTP servers {', '.join(servers)}.", by_hand)


def is_set(clock: BmcClock | None, servers: Sequence[str]) -> bool:
    """Return whether a BMC takes its time from these servers, or without NTP has the right one."""
    if clock is None:
        return False
    if servers and clock.ntp is not None:
        return clock.ntp and clock.ntp_servers == tuple(servers)
    return clock.skew_s is not None and abs(clock.skew_s) <= SET_WITHIN_S


_DECISIONS = frozenset({TenantData.ERASE, TenantData.KEEP})


def retry_node(
    node: Node,
    now: float,
    *,
    new_board: bool = False,
    admit_tpm: str = "",
    tenant_data: TenantData = TenantData.SETTLED,
) -> Node | str:
    """Leave quarantine: to `converging` if identified and fenced, else to `discovered`.

    `new_board`: the board was exchanged; its TPM is proved and enrolled anew. `admit_tpm`: a person
    vouches for the key of a TPM that no pinned maker does. `tenant_data`: the decision about the
    data of a node that was taken back on a reading of its ports; without it such a node stays.
    """
    if node.tenant_data is TenantData.ASKED and tenant_data not in _DECISIONS:
        return (
            f"the data of {node.served} is still on it: decide with `--tenant-data keep`, if that "
            "tenant agrees, or `--tenant-data erase`"
        )
    if tenant_data in _DECISIONS:
        return _settle_data(node, now, tenant_data)
    why = "retried by request"
    fresh: dict[str, Any] = {"blockers": (), "attempts": 0}
    if new_board:
        fresh["tpm"] = None
    if admit_tpm:
        fresh["tpm"] = BoardTpm(key_sha256=admit_tpm, enrolled_at=now, proof=TpmProof.PERSON)
    if node.is_parked:  # it resumes in its state
        return node.model_copy(update={**fresh, "note": why})
    if node.state not in (State.QUARANTINED, State.REPAIRING):
        return f"it is {node.state}, not quarantined"
    identified = bool(node.profile) and node.placement is Placement.MAINTENANCE
    if node.state is State.QUARANTINED and identified:
        return enter_state(node, State.CONVERGING, why, now, fresh)
    # a node that was never identified starts again at `discovered`, through `repairing`
    if node.state is State.QUARANTINED:
        node = enter_state(node, State.REPAIRING, why, now, {})
    # without a profile it counts as not identified, so that parts and profile are read again
    return enter_state(node, State.DISCOVERED, why, now, {**fresh, "profile": ""})


def _settle_data(node: Node, now: float, decision: TenantData) -> Node | str:
    """Let a node go on whose data a person decided about; kept, it returns to its tenant."""
    revokes = node.tenant_data is TenantData.KEEP and decision is TenantData.ERASE
    if node.tenant_data is not TenantData.ASKED and not revokes:
        return "nothing is asked about a tenant's data on it"
    if node.state not in (State.QUARANTINED, State.REPAIRING):
        return f"it is {node.state}: it is fenced first"
    if node.placement is not Placement.MAINTENANCE:
        return "its ports are not proved to be in maintenance yet"
    kept = decision is TenantData.KEEP
    if kept and not node.tenant:
        return "no tenant has it any more, to whom its data could return"
    if kept and node.boots is Boots.HANDED_OVER:
        return "its system has no login of the provisioner's, so that it cannot be certified again"
    changes: dict[str, Any] = {"blockers": (), "attempts": 0, "tenant_data": decision}
    if kept:
        changes["served"] = node.tenant  # networks that it was read in do not count any more
    why = f"a person decided: {decision.value} the data of {node.tenant or node.served}"
    return enter_state(node, State.CONVERGING, why, now, changes)


def take_ports(node: Node, now: float) -> Node | str:
    """Permit the daemon to move the ports of an unknown node from any network, and try it again."""
    if node.kind is not NodeKind.HOST:
        return "it is a switch, which has no ports in a tenant's network"
    if node.taken:
        return "its ports were given to the provisioner already"
    if not is_stranger(node):
        return "it was taken in already: its ports are the provisioner's to move"
    changed = node.model_copy(update={"taken": True})
    return retry_node(changed, now) if node.state is State.QUARANTINED else changed


def reclaim_node(node: Node, now: float, *, for_repair: bool = False) -> Node | str:
    """Take a node back from its tenant: draining fences and erases it before any other work.

    `for_repair`: the node stays allocated and returns to the same tenant after its repair.
    """
    if node.state is not State.RELEASED:
        return f"it is {node.state}, not released"
    served = node.served or node.tenant
    tenant = node.tenant if for_repair else ""
    why = "taken back for repair" if for_repair else "reclaimed by request"
    changes = {"tenant": tenant, "served": served}
    return enter_state(node, State.DRAINING, why, now, changes)
