"""The boot source of a host: the standard override, and the attributes of vendors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from provisioner.adapters.redfish.messages import read_refusal
from provisioner.adapters.redfish.obstacles import find_obstacle
from provisioner.adapters.redfish.parsing import (
    Json,
    as_object,
    at,
    link,
    objects,
    path_of,
    text,
    truth,
)
from provisioner.adapters.redfish.parts import power_of, read_id
from provisioner.adapters.redfish.service import (
    UNBLOCK,
    Service,
    action_of,
    raise_unread,
    target_of,
)
from provisioner.adapters.redfish.walk import Resource
from provisioner.model.inventory import Power
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Reply, Unreachable
from provisioner.quirks import ALL
from provisioner.quirks.quirk import AcCycle, BootAttributes

# ------------------------------------------------------------------------------
# Virtual media of a BMC: the drives, and how an image is inserted and ejected.


_APPEAR_S = 5.0  # between two readings of the collection after the drives were enabled
_APPEAR_READS = 12
_SPARE = ("Inserted", "WriteProtected")  # whether the image is in the drive is read afterwards


async def enable_media(service: Service) -> Blocker | None:
    """Make the virtual drives appear where the vendor hides them, and wait until they are listed.

    AMI's EnableRMediaActionInfo: "CD Media instances will be displayed under VirtualMedia
    collection only when RMedia support is enabled" (captured tree of a DGX H100).
    """
    await service.learn()
    if not service.quirk.media_enable or await _find_drive(service) is not None:
        return None
    manager = await service.read_manager()
    action = action_of(manager.data, service.quirk.media_enable) if manager is not None else {}
    target = target_of(action)
    if target is None:
        return service.not_offered("media", service.quirk.media_enable)
    reply = await service.post(target, dict(service.quirk.media_enable_body), "media")
    if isinstance(reply, Blocker):
        return reply
    for _ in range(_APPEAR_READS):
        await service.pause(_APPEAR_S)
        if await _find_drive(service) is not None:
            return None
    return Blocker(
        reason=Reason.NOT_ACTIVATED,
        subject="media",
        detail="the virtual drives were enabled, and none is listed after 60 s",
        unblock="Look at the BMC's remote media settings, or restart the BMC, then retry.",
    )


async def insert_image(service: Service, image: str) -> Blocker | None:
    """Insert an image by URL, by the drive's action or by PATCH where it has none.

    An image that is in the drive already needs no request: the answer to an earlier one was lost,
    and a second one would be refused because the drive is in use.
    """
    refused = await find_obstacle(service, "media") or await enable_media(service)
    if refused is not None:
        return refused
    drive = await _find_drive(service)
    if drive is None:
        return service.not_offered("media", "virtual CD that takes an image by URL")
    if _holds(drive, image):
        return None
    target = target_of(action_of(drive.data, "VirtualMedia.InsertMedia"))
    if target is None:
        body = {"Image": image, "Inserted": True, "WriteProtected": True}
        return await service.patch(drive.path, body, "media", always=body, spare=_SPARE)
    return await _insert_by_action(service, target, image)


async def _insert_by_action(service: Service, target: str, image: str) -> Blocker | None:
    """Add the properties that the service demands one at a time, as sushy does.

    All but the image can be spared: whether it is in the drive is read afterwards.
    """
    body: dict[str, Any] = {"Image": image}
    if service.quirk.media_inserted:
        body |= {"Inserted": True, "WriteProtected": True}
    if service.quirk.media_login:
        login = service.quirk.media_login
        body |= {"UserName": login, "Password": login}
    more = ({"TransferProtocolType": image.split(":", 1)[0].upper()}, {"TransferMethod": "Stream"})
    spare = set(body) - {"Image"}
    reply = await service.send_post(target, body, spare, {})
    for addition in more:
        if reply.status not in (400, 422):
            break
        body |= addition  # a 400 changed nothing, so that asking again is no repetition
        reply = await service.send_post(target, body, spare, {})
    return _outcome(reply)


async def is_inserted(service: Service, image: str) -> bool:
    drive = await _find_drive(service)
    return drive is not None and _holds(drive, image)


def _holds(drive: Resource, image: str) -> bool:
    if truth(drive.data.get("Inserted")) is False:
        return False
    return text(drive.data.get("Image")) == image


async def eject_image(service: Service) -> Blocker | None:
    """Eject the image; an empty drive needs no request."""
    drive = await _find_drive(service)
    if drive is None or truth(drive.data.get("Inserted")) is False:
        return None
    target = target_of(action_of(drive.data, "VirtualMedia.EjectMedia"))
    if target is None and service.quirk.media_by_patch:
        body = {"Image": None, "Inserted": False}  # sushy: PATCH where there is no EjectMedia
        return await service.patch(drive.path, body, "media", always=body, spare=_SPARE)
    if target is None:
        return service.not_offered("media", "VirtualMedia.EjectMedia")
    return _outcome(await service.call("POST", target, {} if service.quirk.empty_body else None))


async def _find_drive(service: Service) -> Resource | None:
    """Return the first virtual CD that takes images: the manager's, or the system's.

    A collection that did not answer is no BMC without drives: its silence is raised.
    """
    manager = await service.read_manager()
    system = await service.read_system()
    walk = service.walk()
    for owner in (manager, system):
        path = link(owner.data, "VirtualMedia") if owner is not None else None
        drives = await walk.read_members(path)
        raise_unread(walk.unread)  # the one that was not read may be the one that holds our image
        for drive in drives:
            if _takes_images(service, drive):
                return drive
    return None


def _takes_images(service: Service, drive: Resource) -> bool:
    """Drives that only serve the console have no InsertMedia
    (docs/sources/redfish.md#virtual-media).
    """
    data: Json = drive.data
    types = data.get("MediaTypes")
    cd = isinstance(types, list) and bool({"CD", "DVD"} & {text(t) for t in types})
    slots = service.quirk.media_slots
    if not cd or (slots and not re.search(slots, read_id(drive))):
        return False
    by_patch = service.quirk.media_by_patch and "Image" in data
    return by_patch or bool(action_of(data, "VirtualMedia.InsertMedia"))


def _outcome(reply: Reply) -> Blocker | None:
    return None if 200 <= reply.status < 300 else read_refusal(reply, "media", UNBLOCK)


# ------------------------------------------------------------------------------
# Standby power of a host, removed and restored by the action that its vendor declares.


_UNPLUG = (
    "Declare its outlets on the hardware list (docs/power.md), or pull its cords for 5 minutes."
)


async def find_target(service: Service) -> str | Blocker:
    """Return the target of the declared action: listed by the service, or declared as unlisted."""
    await service.learn()
    cycle = service.quirk.ac_cycle
    if cycle is None:
        return Blocker(
            reason=Reason.NOT_OFFERED,
            subject="host",
            detail=f"{service.quirk.title} takes standby power away by no Redfish action",
            unblock=_UNPLUG,
        )
    walk = service.walk()
    for resource in await walk.read_linked(await walk.read_root(), cycle.resource):
        target = target_of(action_of(resource.data, cycle.action))
        if target is not None:
            return target
    raise_unread(walk.unread)
    # a BMC that shows another software does not run the action whose path is known
    usable = bool(cycle.unlisted) and not await _lists_another(service, cycle)
    host = await service.read_system() if usable else None
    if host is None:
        refused = service.not_offered("host", cycle.action)
        return refused.model_copy(update={"unblock": _UNPLUG})
    return f"{host.path.rstrip('/')}/{cycle.unlisted}"


async def _lists_another(service: Service, cycle: AcCycle) -> bool:
    """Return whether this BMC shows another software, or lists the AC action of another."""
    if await service.find_other_software():
        return True
    walk = service.walk()
    root = await walk.read_root()
    for other in [q.ac_cycle for q in ALL.values() if q.ac_cycle and q.ac_cycle != cycle]:
        for resource in await walk.read_linked(root, other.resource):
            if target_of(action_of(resource.data, other.action)) is not None:
                return True
    raise_unread(walk.unread)
    return False


async def remove_standby(service: Service) -> Blocker | None:
    """Post the action; the host is off before, where the vendor requires it."""
    target = await find_target(service)
    cycle = service.quirk.ac_cycle
    if isinstance(target, Blocker) or cycle is None:
        return target if isinstance(target, Blocker) else None
    if cycle.needs_off and power_of(await service.read_system()) is not Power.OFF:
        return Blocker(
            reason=Reason.PRECONDITION,
            subject="host",
            detail="the host must be off before standby power is taken away",
            unblock="Power the host off first.",
        )
    try:
        reply = await service.post(target, dict(cycle.body), "host")
    except Unreachable as error:
        if not error.maybe_executed:
            raise
        return None
    return reply if isinstance(reply, Blocker) else None


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
    """Set the boot override, each property in the object that has it
    (docs/sources/bmc-faults.md#e12).

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
        return service.not_offered("host", "system")
    settings = link(system.data, "@Redfish.Settings", "SettingsObject")
    later = await _read_settings(service, system)
    listed = _listed_targets(system.data, later)
    # UefiHttp works on NVIDIA's trays, which do not list it (docs/sources/redfish.md#uefi-http)
    http = service.quirk.http_boot and target == "UefiHttp"
    if http and listed is not None and target not in listed:
        http = not await service.find_other_software()
    if listed is not None and target not in listed and not http:
        return service.not_offered(
            "host", f"boot from {target}; it has {', '.join(map(str, listed[:16]))}"
        )
    offers_uri = "HttpBootUri" in {**later, **as_object(system.data.get("Boot"))}
    if http_uri and not offers_uri and not http:
        lacking = service.not_offered("host", "HttpBootUri: its Boot does not list it")
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
    await service.learn()
    if service.quirk.boot_attributes is not None:
        return await _choose_by_attributes(service, service.quirk.boot_attributes)
    system = await service.read_system()
    listed = _listed_targets(system.data, await _read_settings(service, system)) if system else None
    names = service.quirk.media_targets
    target = next((name for name in names if listed is None or name in listed), names[-1])
    return await set_override(service, target, once=True)


async def override_disk(service: Service) -> Blocker | None:
    """Boot from disk next time; attributes that still choose the virtual CD are reset first."""
    await service.learn()
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
        return service.not_offered(
            "host", "boot of the virtual CD: neither its attributes nor an import"
        )
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
    now = at(system, "Boot", _TARGETS)
    then = later.get(_TARGETS)
    listed = then or now if _TARGET in later else now or then
    return listed if isinstance(listed, list) else None
