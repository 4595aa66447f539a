"""The boot source of a host: the standard override, and the attributes of vendors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from provisioner.adapters.redfish.obstacles import find_obstacle
from provisioner.adapters.redfish.parsing import Json, as_object, at, link, objects, path_of
from provisioner.adapters.redfish.service import Service, action_of, not_offered, target_of
from provisioner.adapters.redfish.walk import Resource
from provisioner.model.outcome import Blocker
from provisioner.quirks.quirk import BootAttributes

_BY_DHCP = (
    "Set `maintenance_boot: virtual_media`, or `http_dhcp` or `pxe` with the DHCP options that "
    "`provisioner bmc boot-options` prints."
)
_TARGET = "BootSourceOverrideTarget"
_MODE = "BootSourceOverrideMode"
_UEFI = "UEFI"
_TARGETS = f"{_TARGET}@Redfish.AllowableValues"


async def set_override(
    service: Service, target: str, *, once: bool, http_uri: str = ""
) -> Blocker | None:
    """Set the boot override, each property in the object that has it (facts E12, V10).

    A settings object may list the boot order alone (Lenovo, newer Dell): what its Boot does not
    list goes to the system itself, as sushy sends it. That is asked for first, so that a refusal
    leaves no override behind.

    `http_uri`: what UefiHttp boots (DSP0268, ComputerSystem.Boot.HttpBootUri). Where nothing lists
    it, it goes with the target, as NVIDIA's trays take it (NVIDIA/libredfish pull request 74;
    NVIDIA/bmcweb 7f3a16ae shows it only while UefiHttp is listed, and takes it always).
    """
    if (refused := await find_obstacle(service, "boot")) is not None:
        return refused
    system = await service.read_system()
    if system is None:
        return not_offered("host", "system")
    settings = link(system.data, "@Redfish.Settings", "SettingsObject")
    later = await _read_settings(service, system)
    listed = _listed_targets(system.data, later)
    # UefiHttp works on NVIDIA's trays, which do not list it (facts: hardware 4.5)
    unlisted = target == "UefiHttp" and service.quirk.http_boot
    if listed is not None and target not in listed and not unlisted:
        return not_offered("host", f"boot from {target}; it has {', '.join(map(str, listed[:16]))}")
    offers_uri = "HttpBootUri" in {**later, **as_object(system.data.get("Boot"))}
    if http_uri and not offers_uri and not service.quirk.http_boot:
        lacking = not_offered("host", "HttpBootUri: its Boot does not list it")
        return lacking.model_copy(update={"unblock": _BY_DHCP})
    boot: dict[str, Any] = {
        "BootSourceOverrideEnabled": "Once" if once else "Continuous",
        _TARGET: target,
    }
    if service.quirk.full_override or at(system.data, "Boot", _MODE):
        boot[_MODE] = _UEFI
    waiting = set(later)
    if http_uri:
        boot["HttpBootUri"] = http_uri
        waiting |= set() if offers_uri or _TARGET not in later else {"HttpBootUri"}
    placed = [
        (path, {name: value for name, value in boot.items() if (name in waiting) is listing})
        for path, listing in ((system.path, False), (settings, True))
        if path is not None
    ]
    is_uefi = _is_uefi((at(system.data, "Boot", _MODE), later.get(_MODE)))
    return await _send_override(service, placed, is_uefi=is_uefi)


async def _send_override(
    service: Service, placed: list[tuple[str, dict[str, Any]]], *, is_uefi: bool
) -> Blocker | None:
    """Send the parts of an override, each with what means something together only.

    The mode is left out where it is UEFI already: some services refuse it as read-only
    (community.general#3509), and where `full_override` is set they refuse its absence. Others
    reset it with the target (openstack/ironic, redfish management, `sync_boot_mode`): it is read
    afterwards, and sent if it is another one.
    """
    full = service.quirk.full_override
    spare = (_MODE,) if is_uefi else ()
    for path, part in placed:
        always = {name for name in part if full or name != _MODE}
        if part and (
            refused := await service.patch(path, {"Boot": part}, "host", always=always, spare=spare)
        ):
            return refused
    for path, part in placed:
        shown = at(await service.get(path), "Boot", _MODE) if _MODE in part else None
        if is_uefi and not _is_uefi((shown,)):
            return await service.patch(path, {"Boot": part}, "host", always=set(part))
    return None


def _is_uefi(modes: Iterable[Any]) -> bool:
    return all(mode in (None, _UEFI) for mode in modes)


async def override_virtual_cd(service: Service) -> Blocker | None:
    """Boot the virtual CD next time, by the vendor's target or by its attributes.

    Dell's "Cd" is a physical drive, and Supermicro boots virtual media as "UsbCd" only (sushy).
    """
    if service.quirk.boot_attributes is not None:
        return await _choose_by_attributes(service, service.quirk.boot_attributes)
    system = await service.read_system()
    listed = _listed_targets(system.data, await _read_settings(service, system)) if system else None
    names = service.quirk.media_targets
    target = next((name for name in names if listed is None or name in listed), names[-1])
    return await set_override(service, target, once=True)


async def override_disk(service: Service) -> Blocker | None:
    """Boot from disk next time; attributes that still choose the virtual CD are reset first."""
    attributes = service.quirk.boot_attributes
    if attributes is not None:
        path, now = await _find_attributes(service, attributes)
        changed = any(now.get(name) != value for name, value in attributes.normal.items())
        if path is not None and changed:
            body = {"Attributes": dict(attributes.normal)}
            refused = await service.patch(path, body, "host", always=("Attributes",))
            if refused is not None:
                return refused
    return await set_override(service, "Hdd", once=True)


async def _choose_by_attributes(service: Service, attributes: BootAttributes) -> Blocker | None:
    if (refused := await find_obstacle(service, "boot")) is not None:
        return refused
    path, _ = await _find_attributes(service, attributes)
    if path is not None:
        body = {"Attributes": dict(attributes.virtual_cd)}
        return await service.patch(path, body, "host", always=("Attributes",))
    manager = await service.read_manager()
    action = action_of(manager.data, attributes.action) if manager is not None else {}
    target = target_of(action)
    if target is None:
        return not_offered("host", "boot of the virtual CD: neither its attributes nor an import")
    reply = await service.post(target, dict(attributes.body), "host")
    return reply if isinstance(reply, Blocker) else None


async def _find_attributes(service: Service, attributes: BootAttributes) -> tuple[str | None, Json]:
    """Return the path and the values of the attributes that list the boot device, if any does."""
    manager = await service.read_manager()
    linked = at(manager.data, "Links", "Oem", "Dell", "DellAttributes") if manager else None
    for one in objects(linked or []):
        path = path_of(one)
        listed = as_object((await service.get(path)).get("Attributes")) if path else {}
        if all(name in listed for name in attributes.virtual_cd):
            return path, listed
    return None, {}


async def _read_settings(service: Service, system: Resource) -> Json:
    path = link(system.data, "@Redfish.Settings", "SettingsObject")
    return as_object(at(await service.get(path), "Boot")) if path is not None else {}


def _listed_targets(system: Json, later: Json) -> list[Any] | None:
    """Return the targets that the object lists to which the target is written."""
    now = at(system, "Boot", _TARGETS)
    then = later.get(_TARGETS)
    listed = then or now if _TARGET in later else now or then
    return listed if isinstance(listed, list) else None
