"""A reading of one BMC of a node during a request; the BMC is only read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.dry_run import StandingClock
from provisioner.api.parts import Ask
from provisioner.api.problem import build_refusal
from provisioner.execution.actions.once import blocked
from provisioner.execution.plan_requests import NodeBmcs
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker
from provisioner.ports import PortError
from provisioner.runtime import permit

T = TypeVar("T")


async def read_bmc(
    ask: Ask, node: Node, name: str, read: Callable[[Redfish], Awaitable[T | Blocker]]
) -> T:
    """Return the answer of `read`; raises `Refused` where the BMC cannot be reached or read."""
    parts = ask.parts
    if parts.vault is None or parts.transport is None:
        raise build_refusal(409, "bmc", "This process reaches no BMC", "Ask the daemon.")
    reach = NodeBmcs(node, parts.transport, parts.vault, StandingClock())
    try:
        with permit.allow_reads():
            bmc = await reach.open_bmc(name)
            answer = bmc if isinstance(bmc, Blocker) else await read(bmc.client)
    except PortError as error:
        answer = blocked(error, f"{node.id}/{name}")
    if isinstance(answer, Blocker):
        staff = ask.caller.staff  # the detail may have the address of the BMC
        unblock = answer.unblock if staff else "Ask again later, or ask the operators of the site."
        detail = answer.detail if staff else ""
        raise build_refusal(503, "bmc", "The BMC does not answer", unblock, detail)
    return answer
