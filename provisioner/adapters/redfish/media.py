"""Virtual media of a BMC: the drives, and how an image is inserted and ejected."""

from __future__ import annotations

import re
from typing import Any

from provisioner.adapters.redfish.messages import read_refusal
from provisioner.adapters.redfish.obstacles import find_obstacle
from provisioner.adapters.redfish.parsing import Json, link, text, truth
from provisioner.adapters.redfish.parts import read_id
from provisioner.adapters.redfish.service import (
    UNBLOCK,
    Service,
    action_of,
    not_offered,
    raise_unread,
    target_of,
)
from provisioner.adapters.redfish.walk import Resource
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Reply

_APPEAR_S = 5.0  # between two readings of the collection after the drives were enabled
_APPEAR_READS = 12
_SPARE = ("Inserted", "WriteProtected")  # whether the image is in the drive is read afterwards


async def enable_media(service: Service) -> Blocker | None:
    """Make the virtual drives appear where the vendor hides them, and wait until they are listed.

    AMI's EnableRMediaActionInfo: "CD Media instances will be displayed under VirtualMedia
    collection only when RMedia support is enabled" (captured tree of a DGX H100).
    """
    if not service.quirk.media_enable or await _find_drive(service) is not None:
        return None
    manager = await service.read_manager()
    action = action_of(manager.data, service.quirk.media_enable) if manager is not None else {}
    target = target_of(action)
    if target is None:
        return not_offered("media", service.quirk.media_enable)
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
        return not_offered("media", "virtual CD that takes an image by URL")
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
    """Return whether exactly this image is in the drive."""
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
        return not_offered("media", "VirtualMedia.EjectMedia")
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
        for drive in await walk.read_members(path):
            if _takes_images(service, drive):
                return drive
    raise_unread(walk.gaps)
    return None


def _takes_images(service: Service, drive: Resource) -> bool:
    """Drives that only serve the console have no InsertMedia (facts: hardware 4.5)."""
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
