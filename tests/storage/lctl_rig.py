"""The Lustre adapter on the simulated MGS, in one process: a shell instead of SSH."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.integrations.lustre.lctl_calls import LctlCalls
from provisioner.integrations.lustre.nodemaps import SpaceNames
from provisioner.integrations.lustre.spaces import LustreSite, LustreSpaces
from provisioner.integrations.sim.storage.lctl import SimulatedMgs
from provisioner.ports import Clock, ShellCommand, ShellOutput, Unreachable

SERVERS = ("192.0.2.1@tcp", "192.0.2.3@tcp")


class SimulatedShell:
    """`HostShell` to a simulated MGS."""

    def __init__(self, mgs: SimulatedMgs) -> None:
        self.mgs = mgs

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        if self.mgs.silent:
            raise Unreachable("the MGS does not answer", maybe_executed=False)
        try:
            return [ShellOutput(*self.mgs.run(command.line)) for command in commands]
        except ConnectionResetError as error:
            raise Unreachable(str(error), maybe_executed=True) from None

    async def forget(self, host: str, known: str = "") -> None:
        pass

    async def close(self) -> None:
        pass


def open_simulated(mgs: SimulatedMgs, clock: Clock) -> LustreSpaces:
    site = LustreSite("mgs", SERVERS, SpaceNames("/tenants", "tcp", "192.0.2.1@tcp:/lustre"))
    return LustreSpaces(LctlCalls(SimulatedShell(mgs), "mgs"), site, clock)
