"""Writes firmware: a multipart push, a pull by the BMC, and the step that commits an image."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from provisioner.adapters.redfish import collect
from provisioner.adapters.redfish.accounts import find_power_fault
from provisioner.adapters.redfish.messages import body_of, read_refusal, task_paths
from provisioner.adapters.redfish.obstacles import find_obstacle
from provisioner.adapters.redfish.parsing import (
    Json,
    as_object,
    at,
    link,
    name_of,
    number,
    path_of,
    text,
    truth,
)
from provisioner.adapters.redfish.parts import read_id
from provisioner.adapters.redfish.service import (
    UNBLOCK,
    Service,
    action_of,
    list_actions,
    raise_unread,
    target_of,
)
from provisioner.adapters.redfish.tasks import TaskRef, list_running_tasks
from provisioner.adapters.redfish.walk import ROOT, Resource
from provisioner.components import ALL
from provisioner.model.inventory import Component
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Reply, Upload
from provisioner.quirks import Quirk

# ------------------------------------------------------------------------------
# The resources that a push names in `Targets`, read from the service and never assumed.


_BASEBOARD = "HGX_"  # Ids of the baseboard's own resources begin so, on every recorded tree
_NVIDIA = re.compile(r"nvidia|^DGX", re.IGNORECASE)


async def find_targets(
    service: Service, update: Json, kind: str, slots: Sequence[str], file_name: str
) -> list[str] | Blocker:
    """Return the paths to write to; none where the package itself names its targets."""
    if kind.startswith("hgx."):
        return await _find_baseboard(service, update, kind)
    declared = service.quirk.targets.get(kind)
    if declared and declared != "*":
        return await _find_declared(service, declared)
    own = ALL[kind].target if kind in ALL else ""
    if own:
        return await _find_listed(service, update, kind, own)
    walk = service.walk()
    installed = await collect.read_versions(walk, service.quirk, "", "")
    packages = service.quirk.package_files
    package = packages and re.search(packages, file_name, re.IGNORECASE)
    components = installed.of_kind(kind)
    items = link(update, "FirmwareInventory") or ROOT
    if not all(c.source.startswith(items) for c in components) or not components:
        raise_unread(walk.unread)  # the item to be written may be where it could not look
    usable = (c.slot for c in components if package and c.updateable is not False)
    chosen = _select_sources(kind, components, slots or usable)
    return chosen if isinstance(chosen, Blocker) or not (package or declared) else []


async def _find_listed(service: Service, update: Json, kind: str, own: str) -> list[str] | Blocker:
    inventory = link(update, "FirmwareInventory")
    target = f"{inventory.rstrip('/')}/{own}" if inventory is not None else ""
    if target and target in await service.walk().read_links(inventory):
        return [target]
    return service.not_offered(kind, f"update target {own}")


def _select_sources(
    kind: str, components: Sequence[Component], slots: Iterable[str]
) -> list[str] | Blocker:
    by_slot = {c.slot: c for c in components}
    chosen = list(slots) if len(components) != 1 else [components[0].slot]
    missing = [slot for slot in chosen if slot not in by_slot]
    if by_slot and not chosen:
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=f"{kind}/?",
            detail=f"the BMC lists several such components, {', '.join(by_slot)}: none is named",
            unblock=f"Name one, as {kind}/{next(iter(by_slot))}.",
        )
    if missing or not chosen:
        return Blocker(
            reason=Reason.PRECONDITION,
            subject=f"{kind}/{missing[0] if missing else '?'}",
            detail=f"the BMC lists no such component now; it has {', '.join(by_slot) or 'none'}",
            unblock="Nothing to do: it is planned again from the present versions.",
        )
    fixed = [slot for slot in chosen if by_slot[slot].updateable is False]
    if fixed:
        return Blocker(
            reason=Reason.NOT_UPDATEABLE,
            subject=f"{kind}/{fixed[0]}",
            detail=f"{by_slot[fixed[0]].source} reports Updateable: false",
            unblock="Push the package that holds this component, for example the bundle.",
        )
    return [by_slot[slot].source for slot in chosen]


async def _find_declared(service: Service, declared: str) -> list[str] | Blocker:
    """Return the path of "@manager" or "@bios"."""
    if declared == "@manager":
        manager = await service.read_manager()
        return [manager.path] if manager is not None else service.not_offered(declared, "manager")
    system = await service.read_system()
    bios = link(system.data, "Bios") if system is not None else None
    return [bios] if bios is not None else service.not_offered(declared, "Bios resource")


async def _find_baseboard(service: Service, update: Json, kind: str) -> list[str] | Blocker:
    """Return the target of an HGX baseboard's bundle, by the tree that is asked.

    The baseboard's own BMC takes the whole package; asked for Chassis/HGX_Chassis_0 it answers 400
    InvalidObject (docs/sources/redfish.md#bmcweb). A BMC that aggregates it lists the target, or
    is one of NVIDIA's own systems, whose guides document a target that is not listed (DGX H100,
    B200, B300).
    """
    walk = service.walk()
    root = await walk.read_root()
    managers = await walk.read_links(link(root, "Managers"))
    if managers and all(name_of(path).startswith(_BASEBOARD) for path in managers):
        return []
    collection, _, name = service.quirk.targets.get(kind, "").partition("/")
    owner = root if collection == "Chassis" else update
    members = link(owner, collection or "FirmwareInventory")
    if members is not None:
        target = f"{members.rstrip('/')}/{name or ALL['hgx.bundle'].target}"
        documented = collection == "FirmwareInventory" and await _is_nvidia_system(service)
        documented = documented and not await service.find_other_software()
        if documented or _is_allowed(update, target) or target in await walk.read_links(members):
            return [target]
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject=kind,
        detail="this BMC lists no update target of the HGX baseboard, and none is documented",
        unblock="Update the baseboard through its own BMC, or as the server's maker documents.",
    )


def _is_allowed(update: Json, target: str) -> bool:
    """Return whether an action of the update service lists the target (Lenovo's tree does so)."""
    listed = [a.get("Targets@Redfish.AllowableValues") for _, a in list_actions(update)]
    return any(isinstance(values, list) and target in values for values in listed)


async def _is_nvidia_system(service: Service) -> bool:
    """Return whether NVIDIA made the host's system: a DGX, and no server maker's HGX host."""
    system = await service.read_system()
    if system is None:
        return False
    names = (text(system.data.get("Manufacturer")), read_id(system))
    return any(_NVIDIA.search(name) for name in names if name)


# ------------------------------------------------------------------------------
# The rshim of a BlueField: the BMC writes a bundle through it, and the host must not hold it.
#
# source: Mellanox/dpu-update (try_enable_rshim_on_bmc: enable, wait 10 s, read back, toggle once,
# "make sure rshim on Host side is disabled"); captured tree of a BlueField-3 BMC (HostRshim.Set).


_SETTLE_S = 10.0


async def enable_on_bmc(service: Service) -> Blocker | None:
    """Give the rshim to the BMC, and read back that it has it."""
    manager = await service.read_manager()
    path = link(manager.data, "Oem", "Nvidia") if manager is not None else None
    if path is None or await _read_enabled(service, path) is not False:
        return None  # older BMCs have no switch for it
    if (refused := await _take_from_host(service)) is not None:
        return refused
    for toggled in (False, True):
        for enabled in (False, True) if toggled else (True,):
            body = {"BmcRShim": {"BmcRShimEnabled": enabled}}
            refused = await service.patch(path, body, "rshim", always=("BmcRShim",))
            if refused is not None:
                return refused
            await service.pause(_SETTLE_S)
        if await _read_enabled(service, path) is True:
            return None
    return Blocker(
        reason=Reason.PRECONDITION,
        subject="rshim",
        detail="the BMC does not get the rshim: it was enabled twice, and reads back disabled",
        unblock="Stop the rshim service on the host (systemctl stop rshim), then retry.",
    )


async def set_for_host(service: Service, *, enabled: bool) -> Blocker | None:
    """Give the rshim to the host, or take it away; refused by name where that is not offered."""
    target, state = await _find_host_switch(service)
    if target is None or state is None:
        return service.not_offered("host_rshim", "HostRshim.Set")
    chosen = "Enabled" if enabled else "Disabled"
    if state == chosen:
        return None
    reply = await service.post(target, {"HostRshim": chosen}, "host_rshim")
    return reply if isinstance(reply, Blocker) else None


async def _take_from_host(service: Service) -> Blocker | None:
    """Switch the host's rshim off where the system offers it and reports it as enabled."""
    target, state = await _find_host_switch(service)
    if target is None or state != "Enabled":
        return None
    reply = await service.post(target, {"HostRshim": "Disabled"}, "rshim")
    return reply if isinstance(reply, Blocker) else None


async def _find_host_switch(service: Service) -> tuple[str | None, str | None]:
    """Return the action's target and the state, as far as the system shows them."""
    system = await service.read_system()
    path = link(system.data, "Oem", "Nvidia") if system is not None else None
    nvidia: Json = await service.get(path) if path is not None else {}
    return target_of(action_of(nvidia, "HostRshim.Set")), text(nvidia.get("HostRshim"))


async def _read_enabled(service: Service, path: str) -> bool | None:
    state = at(await service.get(path), "BmcRShim", "BmcRShimEnabled")
    return state if isinstance(state, bool) else None


# an upload takes up to 120 s (docs/sources/redfish.md#upload-time); OpenBMC holds the answer 40 s
_UPLOAD_S = 150.0


async def push(
    service: Service, kind: str, slots: Sequence[str], file: Path, *, force: bool
) -> TaskRef | Blocker:
    """Send one package for these slots of a component kind."""
    update = await service.find_part("UpdateService")
    multipart = path_of(update.data.get("MultipartHttpPushUri"))
    form = path_of(update.data.get("HttpPushUri")) if service.quirk.push == "form" else None
    if multipart is None and form is None:
        return service.not_offered(kind, "multipart push; let the BMC pull the image instead")
    refused = await find_obstacle(service, "push")
    refused = refused or await _find_excess(update.data, kind, file)
    if refused is not None:
        return refused
    targets = await find_targets(service, update.data, kind, slots, file.name)
    if isinstance(targets, Blocker):
        return targets
    if kind == "host.psu" and (refused := await find_power_fault(service)) is not None:
        return refused
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
        return service.not_offered(kind, "SimpleUpdate")
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
