"""Writes firmware: a multipart push, a pull by the BMC, and the step that commits an image."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from provisioner.adapters.redfish.messages import body_of, read_refusal, task_paths
from provisioner.adapters.redfish.obstacles import find_obstacle
from provisioner.adapters.redfish.parsing import Json, as_object, at, number, path_of, text, truth
from provisioner.adapters.redfish.power_supplies import find_power_fault
from provisioner.adapters.redfish.service import (
    UNBLOCK,
    Service,
    action_of,
    not_offered,
    target_of,
)
from provisioner.adapters.redfish.targets import find_targets
from provisioner.adapters.redfish.task_list import list_running_tasks
from provisioner.adapters.redfish.tasks import TaskRef
from provisioner.adapters.redfish.walk import Resource
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Reply, Upload
from provisioner.quirks import Quirk

_UPLOAD_S = 150.0  # an upload takes up to 120 s (facts 3.4); OpenBMC holds the answer 40 s


async def push(
    service: Service, kind: str, slots: Sequence[str], file: Path, *, force: bool
) -> TaskRef | Blocker:
    """Send one package for these slots of a component kind."""
    update = await service.find_part("UpdateService")
    multipart = path_of(update.data.get("MultipartHttpPushUri"))
    form = path_of(update.data.get("HttpPushUri")) if service.quirk.push == "form" else None
    if multipart is None and form is None:
        return not_offered(kind, "multipart push; let the BMC pull the image instead")
    refused = await find_obstacle(service, "push")
    refused = refused or await _find_excess(update.data, kind, file)
    if refused is None and kind == "host.psu":
        refused = await find_power_fault(service)
    if refused is not None:
        return refused
    targets = await find_targets(service, update.data, kind, slots, file.name)
    if isinstance(targets, Blocker):
        return targets
    if multipart is None:
        assert form is not None
        return _accepted(await service.upload(form, _form(file), _UPLOAD_S), kind)
    if service.quirk.force == "options":
        refused = await _force_option(service, update.path, update.data, force=force)
        if refused is not None:
            return refused
    parameters = _parameters(service, kind, targets, force=force)
    upload = Upload(
        parts=(("UpdateParameters", "application/json", parameters),),
        file=file,
        file_name=file.name if service.quirk.file_name_blanks else file.name.replace(" ", "_"),
    )
    if (refused := await claim_service(service, update)) is not None:
        return refused
    sent = _accepted(await service.upload(multipart, upload, _UPLOAD_S), kind)
    if isinstance(sent, Blocker):
        await end_claim(service)
    return sent


async def claim_service(service: Service, update: Resource) -> Blocker | None:
    """Reserve the update service where the vendor requires it.

    A claim that stands while no task runs was left by a predecessor that ended before its update.
    """
    if not service.quirk.claim or "HttpPushUriTargetsBusy" not in update.data:
        return None
    if truth(update.data.get("HttpPushUriTargetsBusy")) is not True:
        return await service.patch(update.path, {"HttpPushUriTargetsBusy": True}, "UpdateService")
    if not await list_running_tasks(service):
        return None
    return Blocker(
        reason=Reason.BUSY,
        subject="UpdateService",
        detail="another client has reserved it (HttpPushUriTargetsBusy), and a task runs",
        unblock="Nothing to do: the update is tried again after that task has ended.",
    )


async def end_claim(service: Service) -> Blocker | None:
    """Give the reservation of the update service up, where one was made."""
    if not service.quirk.claim:
        return None
    update = await service.find_part("UpdateService")
    if truth(update.data.get("HttpPushUriTargetsBusy")) is not True:
        return None
    return await service.patch(update.path, {"HttpPushUriTargetsBusy": False}, "UpdateService")


async def pull(service: Service, uri: str, kind: str) -> TaskRef | Blocker:
    """Let the BMC fetch an image: `UpdateService.SimpleUpdate` by its own target."""
    update = await service.find_part("UpdateService")
    action = action_of(update.data, "UpdateService.SimpleUpdate")
    target = target_of(action)
    if target is None:
        return not_offered(kind, "SimpleUpdate")
    targets = await find_targets(service, update.data, kind, (), "")
    if isinstance(targets, Blocker):
        return targets
    parts = urlsplit(uri)
    body: dict[str, Any] = {"ImageURI": uri, "TransferProtocol": parts.scheme.upper() or "HTTP"}
    if service.quirk.pull_without_scheme:
        body["ImageURI"] = f"{parts.netloc}/{parts.path}"
    if targets:
        relative = service.quirk.pull_targets_relative
        body["Targets"] = [t.removeprefix("/") if relative else t for t in targets]
    apply_time = find_apply_time(service.quirk, kind)
    if "@Redfish.OperationApplyTimeSupport" in action and apply_time:
        body["@Redfish.OperationApplyTime"] = apply_time
    spare = () if service.quirk.pull_without_scheme else ("TransferProtocol",)
    return _accepted(await service.send_post(target, body, spare, {}), kind)


async def _find_excess(update: Json, kind: str, file: Path) -> Blocker | None:
    """Return why the file is too large for this BMC, if it is."""
    size_max = number(update.get("MaxImageSizeBytes"))
    size = (await asyncio.to_thread(file.stat)).st_size
    if not size_max or size <= size_max:
        return None
    return Blocker(
        reason=Reason.TOO_LARGE,
        subject=kind,
        detail=f"{file.name} has {size} bytes, the BMC accepts {size_max:.0f}",
        unblock="Let the BMC pull the image instead, or use a smaller package.",
    )


def _form(file: Path) -> Upload:
    """Return HPE's form: the session's key, parameters, the file.

    source: HPE's ilorest (upload command), fwupd's HPE device, developer.hpe.com
    """
    parameters = {"UpdateRepository": False, "UpdateTarget": True, "ETag": "atag", "Section": 0}
    return Upload(
        parts=(("parameters", "application/json", json.dumps(parameters).encode()),),
        file=file,
        file_name=file.name,
        file_part="file",
        session_part="sessionKey",
    )


def find_apply_time(quirk: Quirk, kind: str) -> str:
    """Return the `@Redfish.OperationApplyTime` of a push; "": none is sent."""
    return quirk.apply_time_by_kind.get(kind, quirk.apply_time)


def _parameters(service: Service, kind: str, targets: Sequence[str], *, force: bool) -> bytes:
    quirk = service.quirk
    named = targets or quirk.empty_targets
    parameters: dict[str, Any] = {"Targets": list(targets)} if named else {}
    if apply_time := find_apply_time(quirk, kind):
        parameters["@Redfish.OperationApplyTime"] = apply_time
    if force and quirk.force == "parameter":
        parameters["ForceUpdate"] = True
    oem = quirk.oem_by_kind.get(kind)
    if oem is not None or quirk.oem_always:
        parameters["Oem"] = oem or {}
    return json.dumps(parameters).encode()


async def _force_option(
    service: Service, path: str, update: Json, *, force: bool
) -> Blocker | None:
    """Set ForceUpdate, which a DGX keeps between updates, to the required value if it differs."""
    if at(update, "HttpPushUriOptions", "ForceUpdate") in (None, force):
        return None
    body = {"HttpPushUriOptions": {"ForceUpdate": force}}
    return await service.patch(path, body, "HttpPushUriOptions")


def _accepted(reply: Reply, kind: str) -> TaskRef | Blocker:
    if not 200 <= reply.status < 300:
        return read_refusal(reply, kind, UNBLOCK)
    if (
        reply.status == 200
        and as_object(body_of(reply).get("error"))
        and not list(task_paths(reply))
    ):
        code = text(at(body_of(reply), "error", "code")) or ""
        if not code.endswith("Success"):
            return read_refusal(reply, kind, UNBLOCK)
    return TaskRef(path=next(task_paths(reply), ""))
