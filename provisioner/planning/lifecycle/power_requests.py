"""A person's power request for one host: whether it may be carried out, and its name. Pure.

It is an operation of its own, so that nothing else is done to the node meanwhile, and the next
daemon goes on with it.
"""

from __future__ import annotations

from enum import StrEnum

from provisioner.model.case import Case, Origin, Service, Stage
from provisioner.model.inventory import Power
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason

PREFIX = "power "  # of the operation's purpose
RESTING = frozenset({State.QUARANTINED, State.REPAIRING, State.CERTIFIED})
FOR_TENANT = " for its tenant"  # end of the purpose where a tenant asked for it
HOST = "host"  # the BMC that a host's power is switched by
# stages of an open case in which a node may serve, and nothing is done to it
AT_REST = frozenset({Stage.OPENED, Stage.MEASURING, Stage.RETURNING})


class PowerAct(StrEnum):
    """The acts that a person may request."""

    ON = "on"
    OFF = "off"
    CYCLE = "cycle"

    @property
    def end(self) -> Power:
        return Power.OFF if self is PowerAct.OFF else Power.ON


def write_want(act: PowerAct, *, for_tenant: bool = False) -> str:
    """Return the purpose of the operation that carries out an act."""
    return f"{PREFIX}{act.value}{FOR_TENANT if for_tenant else ''}"


def read_want(want: str) -> PowerAct | None:
    """Return the act of an operation's purpose; None: it is the node's journey."""
    word = want.removeprefix(PREFIX).removesuffix(FOR_TENANT)
    return PowerAct(word) if want.startswith(PREFIX) and word in set(PowerAct) else None


def is_for_tenant(want: str) -> bool:
    """Return whether the tenant of the node asked for the act of an operation's purpose."""
    return read_want(want) is not None and want.endswith(FOR_TENANT)


def find_objection(node: Node, *, for_tenant: bool = False) -> Blocker | None:
    """Return why the power of a node is not switched by request; None: it may be.

    A node that serves is switched only where its tenant asked for it.
    """
    if node.kind is not NodeKind.HOST or all(bmc.name != HOST for bmc in node.bmcs):
        return _refuse(node, "it is no host with a BMC", "Switch it where it stands.")
    if for_tenant:
        unblock = "Leave the tenant's word out for a node that serves no tenant."
        return None if serves_tenant(node) else _refuse(node, "it serves no tenant", unblock)
    if node.state is State.RELEASED or node.placement is Placement.CUSTOMER:
        of = node.tenant or node.served or "somebody"
        unblock = "Reclaim it first (`provisioner node reclaim`), or add `--tenant` if it asked."
        return _refuse(node, f"it serves {of}", unblock)
    if node.state not in RESTING:
        return _refuse(node, f"it is {node.state.value}", "Wait until it rests.")
    if node.placement is not Placement.MAINTENANCE:
        unblock = "Have its ports proved first: `provisioner explain`."
        return _refuse(node, "its ports are not proved to be in the maintenance network", unblock)
    if node.tenant and node.state is State.CERTIFIED:
        return _refuse(node, f"it is on its way to {node.tenant}", "Reclaim it from the tenant.")
    return None


def serves_tenant(node: Node) -> bool:
    released = node.state is State.RELEASED and node.placement is Placement.CUSTOMER
    return released and bool(node.tenant)


def find_tenant_objection(node: Node, tenant: str, case: Case | None, now: float) -> Blocker | None:
    """Return why a tenant may not switch a node by its own request; None: it may.

    `case`: the open case of the node, which holds it while people may work on it, and from the
    time at which it is taken back.
    """
    if node.tenant != tenant:
        return _refuse(node, "it is not yours any more", "Look at the list of your nodes.")
    if not serves_tenant(node):
        unblock = "Wait until its state is released: `provisioner node show`."
        return _refuse(node, "it is not released to you now", unblock)
    if case is not None and is_held(case, now):
        detail = f"case {case.id} holds it: people may work on it, or it is being taken back"
        unblock = "Wait for the end of the case, or ask the operators of the site."
        return _refuse(node, detail, unblock)
    return find_objection(node, for_tenant=True)


def is_held(case: Case, now: float) -> bool:
    """Return whether an open case withholds its serving node from the tenant's power requests."""
    if case.stage not in AT_REST:
        return True
    if case.stage is not Stage.OPENED:  # it is back from a repair, and serves until it is retired
        return 0 < case.retire_at <= now
    keeps = case.service is Service.KEEP
    origins = {case.origin, *(report.origin for report in case.reports)}
    attended = keeps and Origin.MAINTENANCE in origins  # people work on it while it serves
    leaves = not keeps or bool(case.retire_at)
    return attended or (leaves and case.drain_at <= now)


def judge_effect(act: PowerAct, before: Power, now: Power) -> bool | None:
    """Return whether an act whose answer was lost has happened; None: the device does not show it.

    A cycle that was cut short after it switched the host off is begun again, which ends it.
    """
    if act is not PowerAct.CYCLE:
        return now is act.end
    if now is not Power.ON:
        return False
    return True if before is Power.OFF else None


def describe_effect(node: Node, act: PowerAct) -> tuple[str, ...]:
    """Return the effects of an act, in sentences for the person who decides."""
    match act:
        case PowerAct.ON:
            first = f"{node.id} is switched on by its BMC."
        case PowerAct.OFF:
            first = f"{node.id} is switched off at once, without a shutdown of its system."
        case PowerAct.CYCLE:
            first = f"{node.id} is switched off at once and on again."
    if node.state is State.RELEASED:
        return (first, f"The work of {node.tenant} on it ends; it stays with {node.tenant}.")
    if act is PowerAct.OFF and node.state is State.CERTIFIED:
        return (first, "While it is off it cannot be released, and it is quarantined in the end.")
    return (first,)


def _refuse(node: Node, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=Reason.PRECONDITION, subject=node.id, detail=detail, unblock=unblock)
