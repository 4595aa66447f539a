"""Network settings and the clock of a simulated BMC.

source: the trees of a DGX H100, a PowerEdge R750 and a BlueField-3 (mockups): NTP has NTPServers
and ProtocolEnabled; DMTF schemas ManagerNetworkProtocol and Manager (DateTime may be written).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from provisioner.sim.hardware.parts import Bmc
from provisioner.sim.redfish.redfish_answers import Answer, Json, make_error
from provisioner.sim.redfish.redfish_certificates import CERTIFIED, mount_certificates
from provisioner.sim.redfish.redfish_service import RedfishService
from provisioner.sim.redfish.redfish_syslog import change_hpe_syslog, show_hpe_syslog
from provisioner.sim.redfish.redfish_tree import Change, Request, make_patch_check
from provisioner.sim.redfish.tasks import format_time

_OK: Json = {"State": "Enabled", "Health": "OK"}
_TAKEN = ("NTP", "IPMI", "SSH")
_CHECK_TIME = make_patch_check("DateTime")


def show_time(service: RedfishService) -> Json:
    """The manager's clock, which may be wrong."""
    now = service.clock.now() + service.bmc.clock_offset_s
    return {"DateTime": format_time(now), "DateTimeLocalOffset": "+00:00"}


def show_console(service: RedfishService) -> Json:
    """The manager's serial console, as far as its vendor's tree shows one."""
    types = (*(service.shape.console_types or ()), *service.bmc.console_types)
    if service.shape.console_types is None and not types:
        return {}
    console = {"ServiceEnabled": bool(types), "ConnectTypesSupported": list(types)}
    return {"SerialConsole": {**console, "MaxConcurrentSessions": len(types)}}


def show_system_console(service: RedfishService) -> Json:
    """The system's serial console over SSH, while a server offers it (a BlueField-3's form)."""
    bmc = service.bmc
    if not bmc.console_port:
        return {}
    ssh = {
        "HotKeySequenceDisplay": "Press ~. to exit console",
        "Port": bmc.console_port,
        "ServiceEnabled": bmc.protocols["SSH"],
    }
    return {"SerialConsole": {"MaxConcurrentSessions": 15, "SSH": ssh}}


def change_time(service: RedfishService) -> Change:
    """What a PATCH of the manager does: it sets the clock, unless NTP does."""
    bmc = service.bmc

    def change(body: Json, request: Request) -> Answer | None:
        if (refused := _CHECK_TIME(body)) is not None:
            return refused
        if bmc.ntp_enabled and bmc.ntp_servers:
            return make_error(400, "PropertyNotWritable", "DateTime", prop="DateTime")
        try:
            bmc.clock_offset_s = datetime.fromisoformat(body["DateTime"]).timestamp() - request.now
        except (TypeError, ValueError):
            text = str(body["DateTime"])
            return make_error(400, "PropertyValueFormatError", text, "DateTime", prop="DateTime")
        return None

    return change


def mount_network(service: RedfishService, manager: str) -> None:
    """EthernetInterfaces and NetworkProtocol of a BMC."""
    tree = service.tree
    bmc = service.bmc
    tree.add_collection(
        f"{manager}/EthernetInterfaces", "EthernetInterfaceCollection", lambda: ["1"]
    )
    tree.add_fixed(
        f"{manager}/EthernetInterfaces/1",
        {
            "@odata.type": "#EthernetInterface.v1_6_0.EthernetInterface",
            "Id": "1",
            "Name": "Manager Ethernet Interface",
            "InterfaceEnabled": True,
            "MACAddress": bmc.mac,
            "PermanentMACAddress": bmc.mac,
            "Status": _OK,
            "SpeedMbps": 1000,
        },
    )

    listed = {"@odata.id": f"{manager}/NetworkProtocol/HTTPS/Certificates"}
    certificates = {"Certificates": listed} if service.shape.name in CERTIFIED else {}

    def read() -> Json:
        ntp = {"ProtocolEnabled": bmc.ntp_enabled, "NTPServers": list(bmc.ntp_servers)}
        return {
            "@odata.type": "#ManagerNetworkProtocol.v1_8_0.ManagerNetworkProtocol",
            "Id": "NetworkProtocol",
            "Name": "Manager Network Protocol",
            "Status": _OK,
            "HTTP": {"ProtocolEnabled": False, "Port": 80},
            "HTTPS": {"ProtocolEnabled": True, "Port": 443, **certificates},
            "NTP": ntp,
            **{n: {"ProtocolEnabled": on} for n, on in bmc.protocols.items()},
            **show_hpe_syslog(service),
        }

    def change(body: Json, _: Request) -> Answer | None:
        own = ("Oem",) if service.shape.name == "hpe" else ()
        refused = make_patch_check(*_TAKEN, *own)(body)
        return (
            refused
            or change_hpe_syslog(bmc, body)
            or _set_protocols(bmc, body)
            or _set_ntp(bmc, body)
        )

    tree.add_live(f"{manager}/NetworkProtocol", read, patch=change)
    if service.shape.name in CERTIFIED:
        mount_certificates(service, manager)


def _set_protocols(bmc: Bmc, body: Json) -> Answer | None:
    """Switch IPMI over LAN and SSH, which all captured trees list with ProtocolEnabled."""
    for name in bmc.protocols:
        asked = body.get(name, {})
        enable = asked.get("ProtocolEnabled", bmc.protocols[name])
        if not isinstance(enable, bool):
            return make_error(400, "PropertyValueTypeError", str(enable), "ProtocolEnabled")
        bmc.protocols[name] = enable
    return None


def _set_ntp(bmc: Bmc, body: Json) -> Answer | None:
    asked = body.get("NTP", {})
    for name in asked:
        if name not in ("ProtocolEnabled", "NTPServers"):
            return make_error(400, "PropertyUnknown", name, prop=name)
    bmc.ntp_enabled = bool(asked.get("ProtocolEnabled", bmc.ntp_enabled))
    servers = asked.get("NTPServers", bmc.ntp_servers)
    bmc.ntp_servers = _change_elements(bmc.ntp_servers, servers)
    if bmc.ntp_enabled and bmc.ntp_servers:
        bmc.clock_offset_s = 0.0  # its servers are right
    return None


def _change_elements(present: Sequence[str], asked: Sequence[Any]) -> tuple[str, ...]:
    """Return an array after a PATCH: `{}` leaves an element as it is, null removes it.

    source: DSP0266 1.20, PATCH (update): array properties
    """
    changed = [present[n] if e == {} and n < len(present) else e for n, e in enumerate(asked)]
    return tuple(element for element in changed if element)
