"""Syslog servers of a simulated iLO and of a Supermicro BMC.

source: captured NetworkProtocol of an iLO 5 (Oem.Hpe, HpeiLOManagerNetworkService 2.2.0);
stmcginnis/gofish, oem/smc/syslog.go and its recorded bodies (Syslog 1.0.1: text; 1.0.2: a list)
"""

from __future__ import annotations

from provisioner.sim.hardware.parts import Bmc
from provisioner.sim.redfish.redfish_answers import Answer, Json, make_error
from provisioner.sim.redfish.redfish_service import RedfishService
from provisioner.sim.redfish.redfish_tree import Request


def show_hpe_syslog(service: RedfishService) -> Json:
    """The vendor's part of an iLO's NetworkProtocol; {} of any other BMC."""
    if service.shape.name != "hpe":
        return {}
    bmc = service.bmc
    return {
        "Oem": {
            "Hpe": {
                "RemoteSyslogEnabled": bmc.syslog_on,
                "RemoteSyslogServer": "".join(bmc.syslog_servers[:1]),
                "RemoteSyslogPort": 514,
            }
        }
    }


def change_hpe_syslog(bmc: Bmc, body: Json) -> Answer | None:
    """Take the vendor's part of a request."""
    oem = body.get("Oem")
    asked = oem.get("Hpe") if isinstance(oem, dict) else None
    if not isinstance(asked, dict):
        return None
    for name in asked:
        if not name.startswith("RemoteSyslog"):
            return make_error(400, "PropertyUnknown", name, prop=name)
    return _change(bmc, asked, "RemoteSyslogEnabled", "RemoteSyslogServer")


def mount_smc_syslog(service: RedfishService, manager: str) -> Json:
    """Mount a Supermicro BMC's resource; return the part of the manager that names it."""
    if service.shape.name != "supermicro":
        return {}
    bmc = service.bmc
    path = f"{manager}/Oem/Supermicro/Syslog"

    def read() -> Json:
        entries = [{"ServerIP": name, "Port": 514} for name in bmc.syslog_servers]
        listed: Json = {"SyslogServer": entries}
        single: Json = {"SyslogServer": "".join(bmc.syslog_servers[:1]), "SyslogPortNumber": 514}
        return {
            "@odata.type": f"#Syslog.v1_0_{2 if bmc.syslog_listed else 1}.Syslog",
            "Id": "Syslog",
            "Name": "Syslog",
            "EnableSyslog": bmc.syslog_on,
            **(listed if bmc.syslog_listed else single),
        }

    def change(body: Json, _: Request) -> Answer | None:
        asked = dict(body)
        servers = asked.get("SyslogServer")
        if servers is not None and isinstance(servers, list) is not bmc.syslog_listed:
            return make_error(400, "PropertyValueTypeError", str(servers), "SyslogServer")
        return _change(bmc, asked, "EnableSyslog", "SyslogServer")

    service.tree.add_live(path, read, patch=change)
    return {"Oem": {"Supermicro": {"Syslog": {"@odata.id": path}}}}


def _change(bmc: Bmc, asked: Json, switch: str, servers: str) -> Answer | None:
    on = asked.get(switch, bmc.syslog_on)
    if not isinstance(on, bool):
        return make_error(400, "PropertyValueTypeError", str(on), switch)
    bmc.syslog_on = on
    named = asked.get(servers)
    if isinstance(named, str):
        bmc.syslog_servers = (named,) if named else ()
    elif isinstance(named, list):
        bmc.syslog_servers = tuple(str(entry["ServerIP"]) for entry in named)
    return None
