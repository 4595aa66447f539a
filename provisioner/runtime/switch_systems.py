"""The operating systems of switches: a declaration of each, and the port that opens all of them.

Each is an integration, which is found by its entry point (`docs/new-switch-os.md`).

The address of a switch names its system; one from before systems were recorded names none, and its
scheme decides.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from provisioner.model.input_error import InputError
from provisioner.model.outcome import Reason
from provisioner.model.recovery import NeighbourState
from provisioner.ports import (
    Clock,
    HostShell,
    Malformed,
    ShellCommand,
    ShellOutput,
    SwitchAddress,
    SwitchPasswords,
    SwitchTransport,
)
from provisioner.ports.switch import Switch, SwitchFacts, SwitchRefused
from provisioner.ports.wire import parse_marked
from provisioner.runtime import permit
from provisioner.runtime.integrations import find_integrations, load_reference
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# Commands on one switch over SSH, for the adapters of systems that have no other API.
#
# A command that reads and fails, or whose output cannot be read, is `Malformed`: it is never taken
# for an empty answer. A command that writes and fails is the switch's refusal, in its own text.


T = TypeVar("T")
log = logging.getLogger(__name__)

DAMAGED_MAX = 64
READ_S = 30.0
WRITE_S = 300.0  # a patch is checked against the models first


class ShellLine:
    """One switch. `damaged`: fields that could not be read. Methods raise `PortError`."""

    def __init__(self, name: str, shell: HostShell, url: str) -> None:
        self.name = name
        self.url = url
        self._shell = shell
        self.damaged: dict[str, None] = {}

    async def read_json(self, line: str) -> Any:
        text = await self.read_text(line)
        try:
            answer, lost = parse_marked(text)
        except (ValueError, RecursionError):
            raise Malformed(f"{self.url}: {line}: not JSON") from None
        for name in lost:
            where = f"{line[:60]}: {name}"
            if where not in self.damaged and len(self.damaged) < DAMAGED_MAX:
                self.damaged[where] = None
                log.warning("%s: %s cannot be read, and counts as unknown", self.name, where)
        return answer

    async def read_text(self, line: str) -> str:
        with permit.allow_reads():
            output = await self._run(line, READ_S)
        if output.exit_code != 0 or output.truncated:
            raise Malformed(f"{self.url}: {line}: ended with {output.exit_code}")
        return output.stdout

    async def write(self, line: str) -> None:
        """Run a command that changes the switch."""
        output = await self._run(line, WRITE_S)
        if output.exit_code != 0:
            detail = output.stderr.strip() or output.stdout.strip() or "no message"
            raise SwitchRefused(Reason.SWITCH_REFUSED, f"{line.split()[0]}: {detail[-300:]}")

    def check(self, value: T | None, line: str) -> T:
        """Return a reading; raise `Malformed` for None, which stands for an unreadable output."""
        if value is None:
            raise Malformed(f"{self.url}: {line}: an answer that cannot be read")
        return value

    async def _run(self, line: str, timeout_s: float) -> ShellOutput:
        address = urlsplit(self.url).hostname or ""
        command = ShellCommand(name=line.split()[0], line=line, timeout_s=timeout_s)
        (output,) = await self._shell.run(address, address, [command])
        return output


# ------------------------------------------------------------------------------
# MACs by the front-panel port that a switch learned them at. Pure.


def list_port_macs(
    physical: re.Pattern[str], neighbours: Iterable[NeighbourState], bridged: Mapping[str, str]
) -> dict[str, frozenset[str]]:
    """Return port -> MACs, of the ports whose names are `physical`; `bridged`: MAC -> interface.

    An entry of a subinterface is one of its port. One of a bond, a tunnel or a VLAN's interface
    names no cable, and is left out.
    """
    macs: dict[str, set[str]] = {}
    learned = [(n.interface, n.mac) for n in neighbours]
    for interface, mac in (*learned, *((at, mac) for mac, at in bridged.items())):
        port = interface.partition(".")[0]
        if mac and physical.fullmatch(port):
            macs.setdefault(port, set()).add(mac)
    return {port: frozenset(listed) for port, listed in macs.items()}


@dataclass(frozen=True)
class Wires:
    """The connections that adapters use. `shell`: None where switches have no SSH access."""

    https: SwitchTransport
    shell: HostShell | None = None


Open = Callable[[str, SwitchAddress, Wires, Clock, Settings], Switch]


@dataclass(frozen=True)
class SwitchSystem:
    """One operating system: its facts, and the function that opens a switch of it.

    `open_passwords`: what changes a password that the factory set, where the switch's API cannot;
    it takes the file that keys of hosts are pinned in.
    """

    facts: SwitchFacts
    open: Open
    open_passwords: Callable[[Path], SwitchPasswords] | None = None


class SwitchSystems:
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


def find_switch_systems() -> Sequence[SwitchSystem]:
    """Return the operating systems of switches that installed integrations bring, by name.

    Raises InputError.
    """
    bringing = (one for one in find_integrations() if one.switch_system)
    return tuple(load_reference(one, one.switch_system) for one in bringing)


def make_switches(https: SwitchTransport, shell: HostShell | None = None) -> SwitchSystems:
    """Return the port to switches of every system over these connections. Raises InputError."""
    return SwitchSystems(Wires(https, shell), find_switch_systems())


def find_system(name: str) -> SwitchSystem:
    """Return a system by its name. Raises InputError where no installed integration brings it."""
    for system in find_switch_systems():
        if system.facts.name == name:
            return system
    remedy = "Install gpu-provisioner again, or the package that brings it."
    raise InputError("switches", name, "no installed integration speaks to this system", remedy)
