"""Writes of a BMC's own settings: protocols, time, account policy, host interface, power policy.

They take effect at once, so that the resources are read again afterwards. Only differences are
sent, all of one resource in one request. Properties are DMTF's: ManagerNetworkProtocol 1.8,
AccountService 1.11, HostInterface 1.3, ComputerSystem 1.19.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from provisioner.adapters.redfish import updates
from provisioner.adapters.redfish.obstacles import find_obstacle
from provisioner.adapters.redfish.parsing import Json, as_object, link, text, truth
from provisioner.adapters.redfish.service import Service, action_of, target_of
from provisioner.adapters.redfish.settings import syslog
from provisioner.adapters.redfish.settings.bios_writes import set_bios
from provisioner.adapters.redfish.settings.reading import (
    raise_unread_bios,
    read_bios,
    read_bmc_settings,
)
from provisioner.adapters.redfish.tasks import find_open_job
from provisioner.model.base import Record
from provisioner.model.machine.settings import CARD_MODE, BiosState
from provisioner.model.outcome import Blocker
from provisioner.planning.machine_settings.resolution import ATTRIBUTE

# ------------------------------------------------------------------------------
# The mode of a BlueField and its host's rights over it: they take effect when the card starts.
#
# The mode is an action of a BlueField-3 (`Mode.Set`, captured tree) and an attribute of older cards
# (libredfish, nvidia_dpu.rs, set_nic_mode); the host's rights are an attribute of all of them.


# ------------------------------------------------------------------------------
# The orders of a BlueField's UEFI to wipe its eMMC and its NVMe at the card's next start.
#
# They are attributes that are acts (`EmmcWipe`, `NvmeWipe`: NVIDIA BlueField BSP 4.9.1, Redfish; a
# captured tree of a BlueField-3): they read false again once they were carried out.


ORDERS = ("EmmcWipe", "NvmeWipe")


class WipeOrders(Record):
    """The orders that a card offers, and those of them that wait for its start."""

    offered: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


async def read_wipe_orders(service: Service) -> WipeOrders:
    """Return the orders of a card; none where its BMC shows no such attribute, as in NIC mode."""
    system = await service.read_system()
    if system is None:
        return WipeOrders()
    walk = service.walk()
    bios = await read_bios(service, walk, await walk.read_root(), system.data, registry=False)
    raise_unread_bios(walk, bios)
    if bios is None or bios.current is None or not bios.target:
        return WipeOrders()
    running = bios.current
    offered = tuple(name for name in ORDERS if name in running)
    waiting = [n for n in offered if bios.pending.get(n) is True or running[n] is True]
    return WipeOrders(offered=offered, waiting=tuple(waiting))


async def order_wipe(service: Service, orders: WipeOrders) -> Blocker | None:
    """Have every storage of the card wiped at its next start; what waits already is not sent."""
    sent = await set_bios(service, {f"{ATTRIBUTE}{name}": "true" for name in orders.offered})
    return sent if isinstance(sent, Blocker) else None


MODES = {"dpu": "DpuMode", "nic": "NicMode"}
_SAME = "NicMode"  # the attribute that shows the mode, too


async def set_card(service: Service, settings: Mapping[str, str]) -> Blocker | None:
    """Have these settings run from the card's next start on; those that run are not sent."""
    rest = dict(settings)
    mode = rest.get("card_mode")
    target, shown = await _find_mode_switch(service)
    if mode is not None and target is not None and shown is not None:
        del rest["card_mode"]
    if rest:
        sent = await set_bios(service, rest, own=(_SAME,))
        if isinstance(sent, Blocker):
            return sent
    if mode is None or target is None or shown is None or shown == MODES[mode]:
        return None
    reply = await service.post(target, {CARD_MODE: MODES[mode]}, "card_mode")
    return reply if isinstance(reply, Blocker) else None


async def _find_mode_switch(service: Service) -> tuple[str | None, str | None]:
    """Return the action's target and the mode, as far as the system shows them."""
    system = await service.read_system()
    if system is None:
        return None, None
    path = link(system.data, "Oem", "Nvidia")
    nvidia: Json = await service.get(path) if path is not None else {}
    return target_of(action_of(nvidia, "Mode.Set")), text(nvidia.get(CARD_MODE))


# ------------------------------------------------------------------------------
# The factory defaults of a BMC itself, by the standard action of its manager.
#
# source: DMTF Manager 1.8 and newer, ResetToDefaults: "resets the manager settings to factory
# defaults. This can cause the manager to reset"; parameter and values as in the trees of a
# PowerEdge R750, a DGX H100 and a BlueField-3. bmcweb carries it out by a restart of the BMC.


_ACTION = "#Manager.ResetToDefaults"
_NAME = "Manager.ResetToDefaults"


async def list_resets(service: Service) -> tuple[str, ...] | Blocker:
    """Return the types of reset that the BMC offers; () if it does not say."""
    action = await _find_action(service)
    if target_of(action) is None:
        return service.not_offered("bmc", _NAME)
    return tuple(await service.reset_types(action))


async def reset_bmc_defaults(service: Service, kind: str) -> Blocker | None:
    """Have the BMC give itself its defaults. A job that is open is waited for, never ended."""
    if (refused := await find_obstacle(service, "settings")) is not None:
        return refused
    target = target_of(await _find_action(service))
    if target is None:
        return service.not_offered("bmc", _NAME)
    if (busy := await find_open_job(service, "bmc")) is not None:
        return busy
    reply = await service.post(target, {"ResetType": kind}, "bmc")
    return reply if isinstance(reply, Blocker) else None


async def read_bmc_state(service: Service) -> BiosState:
    """Return a digest of each setting of the BMC itself: protocols, time servers, policies."""
    values = {
        f"{one.source.rstrip('/').rpartition('/')[2]}/{name}": value
        for one in await read_bmc_settings(service)
        for name, value in sorted(one.values.items())
    }
    digests = (f"{name}={value!r}".encode() for name, value in values.items())
    return BiosState(
        names=tuple(values), digests=tuple(hashlib.sha256(d).hexdigest()[:8] for d in digests)
    )


async def _find_action(service: Service) -> Json:
    manager = await service.read_manager()
    return action_of(manager.data, _ACTION) if manager is not None else {}


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
        return await updates.set_for_host(service, enabled=settings["host_rshim"] == "on")
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
