"""The operating systems of switches: a declaration of each, and the port that opens all of them.

The address of a switch names its system; one from before systems were recorded names none, and its
scheme decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from provisioner.model.outcome import Reason
from provisioner.ports import Clock, HostShell, SwitchAddress, SwitchTransport
from provisioner.ports.switch import Switch, SwitchFacts, SwitchRefused
from provisioner.settings import Settings


@dataclass(frozen=True)
class Wires:
    """The connections that adapters use. `shell`: None where switches have no SSH access."""

    https: SwitchTransport
    shell: HostShell | None = None


Open = Callable[[str, SwitchAddress, Wires, Clock, Settings], Switch]


@dataclass(frozen=True)
class SwitchSystem:
    """One operating system: its facts, and the function that opens a switch of it."""

    facts: SwitchFacts
    open: Open


class SwitchSystems:
    """`Switches` over these systems."""

    def __init__(self, wires: Wires, systems: Sequence[SwitchSystem]) -> None:
        self.wires = wires
        self._systems = {system.facts.name: system for system in systems}

    def open(self, name: str, address: SwitchAddress, clock: Clock, settings: Settings) -> Switch:
        """Return the switch at an address. Raises `SwitchRefused` for an unknown system."""
        facts = self.get_facts(address.system, address.url)
        if facts is None:
            listed = ", ".join(sorted(self._systems))
            detail = f"no adapter speaks to {address.system or address.url}; known are: {listed}"
            raise SwitchRefused(Reason.NOT_OFFERED, detail)
        if not address.url.startswith(f"{facts.scheme}://"):
            detail = f"{address.url}: addresses of {facts.name} begin with {facts.scheme}://"
            raise SwitchRefused(Reason.NOT_OFFERED, detail)
        return self._systems[facts.name].open(name, address, self.wires, clock, settings)

    def get_facts(self, system: str, url: str) -> SwitchFacts | None:
        """Return the facts of a system, or of the first one with the scheme of the address."""
        if system:
            listed = self._systems.get(system)
            return None if listed is None else listed.facts
        scheme = url.partition("://")[0]
        declared = (s.facts for s in self._systems.values())
        return next((facts for facts in declared if facts.scheme == scheme), None)

    async def close(self) -> None:
        """Close the connections. The shell's are closed by its owner."""
        await self.wires.https.close()
