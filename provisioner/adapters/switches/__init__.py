"""Switches of all operating systems behind one port. Each folder here speaks one system's protocol.

A new system is a folder with a `SYSTEM`, and a line in `ALL` (`docs/new-switch-os.md`).
"""

from provisioner.adapters.switches import cumulus, sonic
from provisioner.adapters.switches.systems import SwitchSystem, SwitchSystems, Wires
from provisioner.ports import HostShell, SwitchTransport
from provisioner.ports.switch import SwitchFacts

ALL: tuple[SwitchSystem, ...] = (
    cumulus.SYSTEM,
    sonic.SYSTEM,
)


def make_switches(https: SwitchTransport, shell: HostShell | None = None) -> SwitchSystems:
    """Return the port to switches of every system over these connections."""
    return SwitchSystems(Wires(https, shell), ALL)


def find_facts(system: str) -> SwitchFacts:
    """Return the declared facts of a system that has an adapter."""
    return next(s.facts for s in ALL if s.facts.name == system)
