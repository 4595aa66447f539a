"""The door to a host's serial console, as its BMC's tree shows it.

source: DMTF schema ComputerSystem 1.13 (SerialConsole.SSH with Port and ConsoleEntryCommand);
trees of a DGX H100 (Managers/HGX_BMC_0 and BMC: SerialConsole.ConnectTypesSupported), a BlueField-3
and a PowerEdge R750; OpenBMC's obmc-console, which listens at SSH port 2200.
"""

from __future__ import annotations

from provisioner.adapters.redfish.parsing import Json, as_object, number, text, truth
from provisioner.adapters.redfish.service import Service
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports.consoles import ConsoleDoor

OPENBMC_PORT = 2200
_SHELL_PORT = 22


async def find_console(service: Service) -> ConsoleDoor | Blocker:
    """Return how the console is reached by SSH, or why it is not."""
    system = await service.read_system()
    console = as_object(system.data.get("SerialConsole")) if system is not None else {}
    ssh = as_object(console.get("SSH"))
    if truth(ssh.get("ServiceEnabled")):
        return ConsoleDoor(port=_port(ssh), command=text(ssh.get("ConsoleEntryCommand")) or "")
    manager = await service.read_manager()
    older = as_object(manager.data.get("SerialConsole")) if manager is not None else {}
    if truth(older.get("ServiceEnabled")) and "SSH" in _types(older):
        return ConsoleDoor(port=OPENBMC_PORT)
    ipmi = truth(as_object(console.get("IPMI")).get("ServiceEnabled")) or "IPMI" in _types(older)
    how = "over IPMI only" if ipmi else "not at all"
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject="console",
        detail=f"this BMC offers its serial console {how}",
        unblock="Enable SerialConsole over SSH in the BMC; IPMI is not used.",
    )


def _port(ssh: Json) -> int:
    """Return the port; a command is entered at the shell, whose port it is where none is shown."""
    shown = number(ssh.get("Port"))
    if shown is not None and 0 < shown < 65536:
        return int(shown)
    return _SHELL_PORT if text(ssh.get("ConsoleEntryCommand")) else OPENBMC_PORT


def _types(console: Json) -> list[str]:
    listed = console.get("ConnectTypesSupported")
    return [t for t in listed if isinstance(t, str)] if isinstance(listed, list) else []
