"""SONiC, by commands over SSH."""

from provisioner.adapters.switches.sonic.sonic_switch import FACTS, SonicSwitch
from provisioner.adapters.switches.systems import SwitchSystem, Wires
from provisioner.model.outcome import Reason
from provisioner.ports import Clock, SwitchAddress
from provisioner.ports.switch import Switch, SwitchRefused
from provisioner.settings import Settings


def _open(
    name: str, address: SwitchAddress, wires: Wires, clock: Clock, _settings: Settings
) -> Switch:
    if wires.shell is None:
        raise SwitchRefused(Reason.NOT_OFFERED, "SSH to switches is the daemon's own")
    return SonicSwitch(name, address, wires.shell, clock)


SYSTEM = SwitchSystem(FACTS, _open)
