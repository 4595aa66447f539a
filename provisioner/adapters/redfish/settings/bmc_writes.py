"""Writes of a BMC's own settings: protocols, time, account policy, host interface, power policy.

They take effect at once, so that the resources are read again afterwards. Only differences are
sent, all of one resource in one request. Properties are DMTF's: ManagerNetworkProtocol 1.8,
AccountService 1.11, HostInterface 1.3, ComputerSystem 1.19.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.adapters.redfish import updates as rshim
from provisioner.adapters.redfish.parsing import Json, as_object, link, text, truth
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.settings import syslog
from provisioner.model.outcome import Blocker

_PROTOCOLS = {
    "ipmi": "IPMI",
    "ssh": "SSH",
    "http": "HTTP",
    "snmp": "SNMP",
    "kvm": "KVMIP",
    "virtual_media": "VirtualMedia",
}
_ACCOUNTS = {
    "lockout_threshold": "AccountLockoutThreshold",
    "lockout_duration": "AccountLockoutDuration",
    "lockout_reset": "AccountLockoutCounterResetAfter",
    "password_length": "MinPasswordLength",
}
_POWER = {"on": "AlwaysOn", "off": "AlwaysOff", "last": "LastState"}


async def set_bmc(service: Service, settings: Mapping[str, str]) -> Blocker | None:
    """Set the BMC's settings; a setting that it does not show refuses all, before any is sent."""
    manager = await service.read_manager()
    system = await service.read_system()
    if manager is None or system is None:
        return service.not_offered("BMC", "manager")
    requests: list[tuple[str, dict[str, Any]]] = []
    network = link(manager.data, "NetworkProtocol")
    shown = await service.get(network) if network is not None else {}
    if isinstance(body := _build_network(service, shown, settings), Blocker):
        return body
    if network is not None and body:
        requests.append((network, body))
    accounts = link(await service.walk().read_root(), "AccountService")
    policy = await service.get(accounts) if accounts is not None else {}
    if isinstance(body := _build_accounts(service, policy, settings), Blocker):
        return body
    if accounts is not None and body:
        requests.append((accounts, body))
    if isinstance(body := _build_power(service, system.data, settings), Blocker):
        return body
    if body:
        requests.append((system.path, body))
    interfaces = await _list_interfaces(service, manager.data, settings)
    if isinstance(interfaces, Blocker):
        return interfaces
    if "syslog" in settings:
        request = await syslog.build_change(service, manager.data, settings["syslog"])
        if isinstance(request, Blocker):
            return request
        requests += [] if request is None else [request]
    for path, change in (*requests, *interfaces):
        if (refused := await service.patch(path, change, "BMC")) is not None:
            return refused
    if "host_rshim" in settings:
        return await rshim.set_for_host(service, enabled=settings["host_rshim"] == "on")
    return None


def _build_network(
    service: Service, shown: Json, settings: Mapping[str, str]
) -> dict[str, Any] | Blocker:
    body: dict[str, Any] = {}
    for meaning, name in _PROTOCOLS.items():
        if meaning not in settings:
            continue
        enable = settings[meaning] == "on"
        now = truth(as_object(shown.get(name)).get("ProtocolEnabled"))
        if now is None:
            return service.not_offered(meaning, f"{name}.ProtocolEnabled in its NetworkProtocol")
        if now is not enable:
            body[name] = {"ProtocolEnabled": enable}
    if "ntp" in settings:
        ntp = as_object(shown.get("NTP"))
        if "ProtocolEnabled" not in ntp:
            return service.not_offered("ntp", "NTP in its NetworkProtocol")
        servers = [] if settings["ntp"] == "off" else settings["ntp"].split(",")
        listed = ntp.get("NTPServers")
        now_listed = [text(one) for one in listed if text(one)] if isinstance(listed, list) else []
        change: dict[str, Any] = {}
        if truth(ntp.get("ProtocolEnabled")) is not bool(servers):
            change["ProtocolEnabled"] = bool(servers)
        if servers and now_listed != servers:
            change["NTPServers"] = servers
        if change:
            body["NTP"] = change
    return body


def _build_accounts(
    service: Service, shown: Json, settings: Mapping[str, str]
) -> dict[str, Any] | Blocker:
    body: dict[str, Any] = {}
    for meaning, name in _ACCOUNTS.items():
        if meaning in settings and name not in shown:
            return service.not_offered(meaning, f"{name} in its AccountService")
        if meaning in settings and shown.get(name) != int(settings[meaning]):
            body[name] = int(settings[meaning])
    return body


def _build_power(
    service: Service, system: Json, settings: Mapping[str, str]
) -> dict[str, Any] | Blocker:
    if "power_restore" not in settings:
        return {}
    if "PowerRestorePolicy" not in system:
        return service.not_offered("power_restore", "PowerRestorePolicy of its system")
    policy = _POWER[settings["power_restore"]]
    return {} if system.get("PowerRestorePolicy") == policy else {"PowerRestorePolicy": policy}


async def _list_interfaces(
    service: Service, manager: Json, settings: Mapping[str, str]
) -> list[tuple[str, dict[str, Any]]] | Blocker:
    if "host_interface" not in settings:
        return []
    enable = settings["host_interface"] == "on"
    members = await service.walk().read_linked(manager, "HostInterfaces")
    shown = [one for one in members if "InterfaceEnabled" in one.data]
    if not shown:
        return service.not_offered("host_interface", "host interface")
    return [
        (one.path, {"InterfaceEnabled": enable})
        for one in shown
        if truth(one.data.get("InterfaceEnabled")) is not enable
    ]
