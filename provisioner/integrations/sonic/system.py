"""SONiC, by commands over SSH: its declaration, and what opens a switch of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provisioner.integrations.sonic.facts import FACTS
from provisioner.model.outcome import Reason
from provisioner.ports import Clock, SwitchAddress
from provisioner.ports.switch import Switch, SwitchRefused
from provisioner.runtime.late_module import LateModule
from provisioner.runtime.switch_systems import SwitchSystem, Wires
from provisioner.settings import Settings

if TYPE_CHECKING:
    from provisioner.integrations.sonic import sonic_switch
else:  # loaded with the first switch: a site may have none of this system
    sonic_switch = LateModule("provisioner.integrations.sonic.sonic_switch")


def _open(
    name: str, address: SwitchAddress, wires: Wires, clock: Clock, _settings: Settings
) -> Switch:
    if wires.shell is None:
        raise SwitchRefused(Reason.NOT_OFFERED, "SSH to switches is the daemon's own")
    return sonic_switch.SonicSwitch(name, address, wires.shell, clock)


SYSTEM = SwitchSystem(FACTS, _open)
