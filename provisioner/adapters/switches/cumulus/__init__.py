"""Cumulus Linux, over NVUE's REST API."""

from provisioner.adapters.switches.cumulus.cumulus_switch import FACTS, CumulusSwitch
from provisioner.adapters.switches.systems import SwitchSystem, Wires
from provisioner.ports import Clock, SwitchAddress
from provisioner.ports.switch import Switch
from provisioner.settings import Settings


def _open(
    name: str, address: SwitchAddress, wires: Wires, clock: Clock, settings: Settings
) -> Switch:
    return CumulusSwitch(name, address, wires.https, clock, settings)


SYSTEM = SwitchSystem(FACTS, _open)
