"""Consoles by the protocol of their door."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from provisioner.adapters.consoles.ipmi_consoles import PROGRAM, IpmiConsoles, has_program
from provisioner.adapters.consoles.ssh_consoles import SshConsoles
from provisioner.model.input_error import InputError
from provisioner.ports import BmcAddress
from provisioner.ports.agents import ConsoleDoor, Consoles


class AnyConsoles:
    """`Consoles` over SSH and over IPMI."""

    def __init__(self, ssh: Consoles, ipmi: Consoles) -> None:
        self._by_protocol = {"ssh": ssh, "ipmi": ipmi}

    def open(
        self, name: str, bmc: BmcAddress, door: ConsoleDoor
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open the console by the protocol that its door names."""
        return self._by_protocol[door.protocol].open(name, bmc, door)


def open_consoles(pins: Path, setting: str) -> Consoles:
    """Return the consoles that the setting `consoles` allows.

    Raises InputError where IPMI is chosen and `ipmitool` is not installed.
    """
    ssh = SshConsoles(pins)
    if setting == "ssh":
        return ssh
    if not has_program():
        problem = f"{PROGRAM} is not installed"
        raise InputError("consoles", setting, problem, f"Install {PROGRAM}, or choose `ssh`.")
    return AnyConsoles(ssh, IpmiConsoles())
