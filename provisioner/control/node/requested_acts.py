"""The operations that people open by a request, and who drives each of them."""

from __future__ import annotations

from provisioner.control.context import Context
from provisioner.control.node.clock_setter import ClockSetter
from provisioner.control.node.gpu_resetter import GpuResetter
from provisioner.control.node.power_switch import PowerSwitch
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.work import Site
from provisioner.planning.lifecycle.gpu_requests import is_gpu_reset
from provisioner.planning.lifecycle.power_requests import read_want
from provisioner.planning.lifecycle.time_requests import WANT


def is_requested(want: str) -> bool:
    """Return whether an operation's purpose is a person's request, and not its node's journey."""
    return want == WANT or is_gpu_reset(want) or read_want(want) is not None


class RequestedActs:
    """Drives requests of people; one instance serves all nodes of a daemon."""

    def __init__(self, context: Context, site: Site) -> None:
        self._power = PowerSwitch(context, site)
        self._gpus = GpuResetter(context, site)
        self._clocks = ClockSetter(context, site)

    async def drive(self, hold: Hold) -> None:
        """Carry out the request of an operation, or go on with it, and end the operation."""
        act = read_want(hold.operation.want)
        if act is not None:
            await self._power.drive(hold, act)
        elif is_gpu_reset(hold.operation.want):
            await self._gpus.drive(hold)
        else:
            await self._clocks.drive(hold)
