"""A simulated switch with its truth, as the contract of the `Switch` port needs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from virtual_time import run

from provisioner.ports import SwitchAddress
from provisioner.runtime.switch_systems import Wires

FIRST, SECOND = "172.16.0.3/31", "172.16.0.5/31"


class Box:
    """A switch with two ports in no VRF, and its truth. `ports`: their names.

    `absent`: why this machine cannot have it, or "". `cannot`: parts of the port that it cannot
    stand for, with the reason. `limits`: settings that it needs.
    """

    ports: tuple[str, str]
    absent = ""
    cannot: Mapping[str, str] = {}
    limits: Mapping[str, Any] = {}
    wires: Wires
    address: SwitchAddress
    clock: Any

    def run(self, live: Callable[[], Awaitable[Any]]) -> Any:
        """Run a story in this switch's time."""
        return run(live())

    async def pass_time(self, seconds: float) -> None:
        """Let a change take effect that is not awaited by its caller."""
        await self.clock.sleep(seconds)

    def true_vrf(self, port: str) -> str:
        """Return the VRF that traffic of a port is in, in the fabric's words."""
        raise NotImplementedError

    def saved_vrf(self, port: str) -> str:
        """Return the VRF of a port after a reboot."""
        raise NotImplementedError

    def plant(self, port: str, vrf: str, *, saved_only: bool = False) -> None:
        """Move a port by a foreign hand: everywhere, or only for the next start."""
        raise NotImplementedError

    def fail(self, fault: str) -> None:
        """Begin to refuse changes ("refuses"), not to follow them ("lags"), or to answer nonsense
        ("garbled").
        """
        raise NotImplementedError

    def add_image(self) -> str:
        """Put a second image beside the running one, and return its version."""
        raise NotImplementedError

    def count_boots(self) -> int:
        """Return the number of reboots so far."""
        raise NotImplementedError

    def count_writes(self) -> int:
        """Return the number of requests that changed something, or tried to."""
        raise NotImplementedError
