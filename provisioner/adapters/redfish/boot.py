"""What a host boots next: overrides and virtual media."""

from __future__ import annotations

from typing import Any

from provisioner.adapters.redfish.messages import refusal
from provisioner.adapters.redfish.parsing import Json, as_object, at, link, text, truth
from provisioner.adapters.redfish.service import (
    UNBLOCK,
    Service,
    action_of,
    not_offered,
    target_of,
)
from provisioner.adapters.redfish.walk import Resource
from provisioner.model.outcome import Blocker
from provisioner.ports import Reply


async def override(
    service: Service, target: str, *, once: bool, http_uri: str = ""
) -> Blocker | None:
    """Set the boot override, each property in the object that has it (facts E12, V10).

    A settings object may list the boot order alone (Lenovo, newer Dell): what its Boot does not
    list goes to the system itself, as sushy sends it. That is asked for first, so that a refusal
    leaves no override behind.

    `http_uri`: what UefiHttp boots (DSP0268, ComputerSystem.Boot.HttpBootUri).
    """
    system = await service.system()
    if system is None:
        return not_offered("host", "system")
    settings = link(system.data, "@Redfish.Settings", "SettingsObject")
    later = as_object(at(await service.get(settings), "Boot")) if settings is not None else {}
    allowed = "BootSourceOverrideTarget@Redfish.AllowableValues"
    listed = at(system.data, "Boot", allowed) or later.get(allowed)
    # UefiHttp works on some services that do not list it (facts: hardware 4.5)
    if isinstance(listed, list) and target not in listed and target != "UefiHttp":
        return not_offered("host", f"boot from {target}; it has {', '.join(map(str, listed[:16]))}")
    boot: dict[str, Any] = {
        "BootSourceOverrideEnabled": "Once" if once else "Continuous",
        "BootSourceOverrideTarget": target,
    }
    if service.quirk.full_override or at(system.data, "Boot", "BootSourceOverrideMode"):
        boot["BootSourceOverrideMode"] = "UEFI"
    if http_uri:
        boot["HttpBootUri"] = http_uri
    for path, listing in ((system.path, False), (settings, True)):
        part = {name: value for name, value in boot.items() if (name in later) is listing}
        if path is not None and part:
            refused = await service.patch(path, {"Boot": part}, "host")
            if refused is not None:
                return refused
    return None


async def insert(service: Service, image: str) -> Blocker | None:
    """Insert an image, adding what the service demands one property at a time (as sushy does)."""
    slot = await _cd(service)
    target = target_of(action_of(slot.data, "VirtualMedia.InsertMedia")) if slot else None
    if slot is None or target is None:
        return not_offered("media", "virtual CD that takes an image by URL")
    body: dict[str, Any] = {"Image": image}
    if service.quirk.media_inserted:
        body |= {"Inserted": True, "WriteProtected": True}
    if service.quirk.media_login:
        login = service.quirk.media_login
        body |= {"UserName": login, "Password": login}
    more = ({"TransferProtocolType": image.split(":", 1)[0].upper()}, {"TransferMethod": "Stream"})
    reply = await service.call("POST", target, body)
    for addition in more:
        if reply.status not in (400, 422):
            break
        body |= addition  # a 400 changed nothing, so that asking again is no repetition
        reply = await service.call("POST", target, body)
    return _outcome(reply)


async def inserted(service: Service, image: str) -> bool:
    """Whether exactly this image is in the drive."""
    slot = await _cd(service)
    if slot is None or truth(slot.data.get("Inserted")) is False:
        return False
    return text(slot.data.get("Image")) == image


async def eject(service: Service) -> Blocker | None:
    """Eject; an empty drive is fine."""
    slot = await _cd(service)
    if slot is None or truth(slot.data.get("Inserted")) is False:
        return None
    target = target_of(action_of(slot.data, "VirtualMedia.EjectMedia"))
    if target is None:
        return not_offered("media", "VirtualMedia.EjectMedia")
    return _outcome(await service.call("POST", target, {} if service.quirk.empty_body else None))


async def _cd(service: Service) -> Resource | None:
    """The first virtual CD that takes images: the manager's, or the system's."""
    manager, system = await service.manager(), await service.system()
    for owner in (manager, system):
        path = link(owner.data, "VirtualMedia") if owner is not None else None
        for slot in await service.walk().members(path):
            if _is_cd(slot.data):
                return slot
    return None


def _is_cd(slot: Json) -> bool:
    """Slots that only serve the console have no InsertMedia (facts: hardware 4.5)."""
    types = slot.get("MediaTypes")
    cd = isinstance(types, list) and bool({"CD", "DVD"} & {text(t) for t in types})
    return cd and bool(action_of(slot, "VirtualMedia.InsertMedia"))


def _outcome(reply: Reply) -> Blocker | None:
    return None if 200 <= reply.status < 300 else refusal(reply, "media", UNBLOCK)
