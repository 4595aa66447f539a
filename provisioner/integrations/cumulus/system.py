"""Cumulus Linux, over NVUE's REST API: its declaration, and what opens a switch of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.integrations.cumulus.facts import FACTS
from provisioner.ports import Clock, Secret, SwitchAddress
from provisioner.ports.switch import Switch
from provisioner.runtime.late_module import LateModule
from provisioner.runtime.switch_systems import SwitchSystem, Wires
from provisioner.settings import Settings

if TYPE_CHECKING:
    from provisioner.integrations.cumulus import cumulus_switch, services
else:  # loaded with the first switch: a site may have none of this system
    cumulus_switch = LateModule("provisioner.integrations.cumulus.cumulus_switch")
    services = LateModule("provisioner.integrations.cumulus.services")


def _open(
    name: str, address: SwitchAddress, wires: Wires, clock: Clock, settings: Settings
) -> Switch:
    return cumulus_switch.CumulusSwitch(name, address, wires.https, clock, settings)


class _Passwords:
    """`SwitchPasswords`, which loads the dialogue over SSH with the first one."""

    def __init__(self, known_hosts: Path) -> None:
        self._known_hosts = known_hosts

    async def change(
        self, switch: str, address: str, username: str, old: Secret, new: Secret
    ) -> None:
        passwords = services.SshPasswords(self._known_hosts)
        await passwords.change(switch, address, username, old, new)


SYSTEM = SwitchSystem(FACTS, _open, _Passwords)
