"""Writing firmware: a multipart push, a pull by the BMC, and what makes an image permanent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from provisioner.adapters.redfish import collect
from provisioner.adapters.redfish.messages import body_of, refusal, task_paths
from provisioner.adapters.redfish.parsing import Json, as_object, at, link, number, path_of, text
from provisioner.adapters.redfish.service import (
    UNBLOCK,
    Service,
    action_of,
    not_offered,
    target_of,
)
from provisioner.adapters.redfish.tasks import TaskRef
from provisioner.components import ALL
from provisioner.model.inventory import Component
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Reply, Upload

_UPLOAD_S = 150.0  # an upload takes up to 120 s (facts 3.4); OpenBMC holds the answer 40 s


async def push(
    service: Service, kind: str, slots: Sequence[str], file: Path, *, force: bool
) -> TaskRef | Blocker:
    """Send one package for these slots of a component kind."""
    update = await service.part("UpdateService")
    uri = path_of(update.data.get("MultipartHttpPushUri"))
    if service.quirk.push != "multipart" or uri is None:
        return not_offered(kind, "multipart push; let the BMC pull the image instead")
    size_max = number(update.data.get("MaxImageSizeBytes"))
    size = await asyncio.to_thread(_size, file)
    if size_max and size > size_max:
        return Blocker(
            reason=Reason.TOO_LARGE,
            subject=kind,
            detail=f"{file.name} has {size} bytes, the BMC accepts {size_max:.0f}",
            unblock="Let the BMC pull the image instead, or use a smaller package.",
        )
    targets = await _targets(service, update.data, kind, slots)
    if isinstance(targets, Blocker):
        return targets
    if service.quirk.force == "options":
        refused = await _force_option(service, update.path, update.data, force=force)
        if refused is not None:
            return refused
    parameters = _parameters(service, kind, targets, force=force)
    upload = Upload(
        parts=(("UpdateParameters", "application/json", parameters),),
        file=file,
        file_name=file.name,
    )
    reply = await service.upload(uri, upload, _UPLOAD_S)
    return _accepted(reply, kind)


async def pull(service: Service, uri: str, kind: str) -> TaskRef | Blocker:
    """Let the BMC fetch an image: `UpdateService.SimpleUpdate` by its own target."""
    update = await service.part("UpdateService")
    action = action_of(update.data, "UpdateService.SimpleUpdate")
    target = target_of(action)
    if target is None:
        return not_offered(kind, "SimpleUpdate")
    targets = await _targets(service, update.data, kind, ())
    if isinstance(targets, Blocker):
        return targets
    parts = urlsplit(uri)
    body: dict[str, Any] = {"ImageURI": uri, "TransferProtocol": parts.scheme.upper() or "HTTP"}
    if service.quirk.pull_without_scheme:
        body["ImageURI"] = f"{parts.netloc}/{parts.path}"
    if targets:
        relative = service.quirk.pull_targets_relative
        body["Targets"] = [t.removeprefix("/") if relative else t for t in targets]
    if "@Redfish.OperationApplyTimeSupport" in action and service.quirk.apply_time:
        body["@Redfish.OperationApplyTime"] = service.quirk.apply_time
    return _accepted(await service.call("POST", target, body), kind)


async def commit(service: Service, kinds: Sequence[str]) -> Blocker | None:
    """Make new images permanent where the service asks for it; None where it does not."""
    if not service.quirk.commit:
        return None
    update = await service.part("UpdateService")
    target = target_of(action_of(update.data, "CommitImage"))
    if target is None:
        return None
    found = await collect.versions(service.walk(), service.quirk, "", "")
    paths = [c.source for c in found.components if c.kind in kinds]
    if not paths:
        return not_offered("+".join(kinds), "component of this kind to commit")
    reply = await service.post(target, {"Targets": paths}, "+".join(kinds))
    return reply if isinstance(reply, Blocker) else None


def _size(file: Path) -> int:
    return file.stat().st_size


async def _targets(
    service: Service, update: Json, kind: str, slots: Sequence[str]
) -> list[str] | Blocker:
    """What to write to, as paths. Empty: the whole package, to everything it is for."""
    declared = service.quirk.targets.get(kind)
    if declared == "*":
        return []
    if declared:
        return await _declared(service, update, declared)
    inventory = link(update, "FirmwareInventory")
    own = ALL[kind].target if kind in ALL else ""
    if own and inventory is not None:
        return [f"{inventory.rstrip('/')}/{own}"]
    found = await collect.versions(service.walk(), service.quirk, "", "")
    components = found.of_kind(kind)
    if len(components) == 1:
        return [components[0].source]
    return _sources(kind, components, slots)


def _sources(
    kind: str, components: Sequence[Component], slots: Sequence[str]
) -> list[str] | Blocker:
    by_slot = {c.slot: c.source for c in components}
    missing = [s for s in slots if s not in by_slot]
    if missing or not slots:
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=f"{kind}/{missing[0] if missing else '?'}",
            detail="the BMC lists no such component now",
            unblock="Nothing to do: it is planned again from what is there now.",
        )
    return [by_slot[slot] for slot in slots]


async def _declared(service: Service, update: Json, declared: str) -> list[str] | Blocker:
    """A declared "Collection/name", "@manager" or "@bios": paths are the service's own."""
    if declared.startswith("@"):
        owner = await (service.manager() if declared == "@manager" else service.system())
        own = owner.path if owner is not None and declared == "@manager" else None
        if owner is not None and declared == "@bios":
            own = link(owner.data, "Bios")
        return [own] if own is not None else not_offered(declared, "such a resource")
    collection, _, name = declared.partition("/")
    walk = service.walk()
    inventory = collection == "FirmwareInventory"
    path = link(update, collection) if inventory else link(await walk.root(), collection)
    if path is None:
        return not_offered(declared, collection)
    return [f"{path.rstrip('/')}/{name}"]


def _parameters(service: Service, kind: str, targets: Sequence[str], *, force: bool) -> bytes:
    quirk = service.quirk
    parameters: dict[str, Any] = {"Targets": list(targets)} if targets else {}
    if quirk.apply_time:
        parameters["@Redfish.OperationApplyTime"] = quirk.apply_time
    if force and quirk.force == "parameter":
        parameters["ForceUpdate"] = True
    oem = quirk.oem_by_kind.get(kind)
    if oem is not None or quirk.oem_always:
        parameters["Oem"] = oem or {}
    return json.dumps(parameters).encode()


async def _force_option(
    service: Service, path: str, update: Json, *, force: bool
) -> Blocker | None:
    """ForceUpdate is state that stays (DGX): set it to what is wanted, if it is not."""
    if at(update, "HttpPushUriOptions", "ForceUpdate") in (None, force):
        return None
    body = {"HttpPushUriOptions": {"ForceUpdate": force}}
    return await service.patch(path, body, "HttpPushUriOptions")


def _accepted(reply: Reply, kind: str) -> TaskRef | Blocker:
    if not 200 <= reply.status < 300:
        return refusal(reply, kind, UNBLOCK)
    if (
        reply.status == 200
        and as_object(body_of(reply).get("error"))
        and not list(task_paths(reply))
    ):
        code = text(at(body_of(reply), "error", "code")) or ""
        if not code.endswith("Success"):
            return refusal(reply, kind, UNBLOCK)
    return TaskRef(path=next(task_paths(reply), ""))
