"""The door to a host's serial console, as its BMC's tree shows it.

source: DMTF schema ComputerSystem 1.13 (SerialConsole.SSH with Port and ConsoleEntryCommand);
trees of a DGX H100 (Managers/HGX_BMC_0 and BMC: SerialConsole.ConnectTypesSupported), a BlueField-3
and a PowerEdge R750; OpenBMC's obmc-console, which listens at SSH port 2200. IPMI's
port is that of RMCP (IPMI 2.0, 13.1.2).
"""

from __future__ import annotations

from provisioner.adapters.redfish.parsing import Json, as_object, number, text, truth
from provisioner.adapters.redfish.service import Service
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports.consoles import ConsoleDoor

OPENBMC_PORT = 2200
IPMI_PORT = 623
_SHELL_PORT = 22


async def find_console(service: Service, *, ipmi: bool = False) -> ConsoleDoor | Blocker:
    """Return how the console is reached: by SSH, else over IPMI if that is allowed; or why not."""
    system = await service.read_system()
    console = as_object(system.data.get("SerialConsole")) if system is not None else {}
    ssh = as_object(console.get("SSH"))
    if truth(ssh.get("ServiceEnabled")):
        return ConsoleDoor(port=_port(ssh), command=text(ssh.get("ConsoleEntryCommand")) or "")
    manager = await service.read_manager()
    older = as_object(manager.data.get("SerialConsole")) if manager is not None else {}
    if truth(older.get("ServiceEnabled")) and "SSH" in _types(older):
        return ConsoleDoor(port=OPENBMC_PORT)
    by_ipmi = as_object(console.get("IPMI"))
    offered = truth(by_ipmi.get("ServiceEnabled"))
    if not offered and not (truth(older.get("ServiceEnabled")) and "IPMI" in _types(older)):
        return _refuse("not at all", "Enable SerialConsole over SSH in the BMC.")
    if ipmi:
        port = _read_port(by_ipmi) if offered else None
        return ConsoleDoor(port=port or IPMI_PORT, protocol="ipmi")
    remedy = "Enable it over SSH, or set `consoles: ssh_or_ipmi` and leave IPMI unpinned or on."
    return _refuse("over IPMI only", remedy)


def _refuse(how: str, remedy: str) -> Blocker:
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject="console",
        detail=f"this BMC offers its serial console {how}",
        unblock=remedy,
    )


def _port(ssh: Json) -> int:
    """Return the port; a command is entered at the shell, whose port it is where none is shown."""
    by_default = _SHELL_PORT if text(ssh.get("ConsoleEntryCommand")) else OPENBMC_PORT
    return _read_port(ssh) or by_default


def _read_port(door: Json) -> int | None:
    shown = number(door.get("Port"))
    return int(shown) if shown is not None and 0 < shown < 65536 else None


def _types(console: Json) -> list[str]:
    listed = console.get("ConnectTypesSupported")
    return [t for t in listed if isinstance(t, str)] if isinstance(listed, list) else []
