"""UpdateService of a simulated BMC: inventory, pushes, pulls, and each vendor's own answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial

from provisioner.integrations.sim.hardware.build import MIRRORS, NAMES
from provisioner.integrations.sim.hardware.clock import SimClock
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.parts import Firmware
from provisioner.integrations.sim.redfish.redfish_tree import (
    ROOT,
    Act,
    Answer,
    Json,
    Request,
    Resource,
    Tree,
    answer_done,
    make_answer,
    make_error,
    make_message,
    make_patch_check,
)
from provisioner.integrations.sim.redfish.shape import INVENTORY, UPDATE, Shape
from provisioner.integrations.sim.redfish.tasks import Task, TaskTable
from provisioner.integrations.sim.redfish.updates import Bfb, Updates

# ------------------------------------------------------------------------------
# FirmwareInventory of a simulated BMC: the running versions, in each vendor's list.


SOFTWARE_IDS = (
    ("*ERoT*", "0xFF00"),
    ("HGX_FW_BMC_0", "0x0010"),
    ("HGX_FW_FPGA_0", "0x0050"),
    ("HGX_FW_GPU_*", "0x0020"),
    ("HGX_FW_NVSwitch_*", "0x0070"),
    ("HGX_FW_PCIeSwitch_*", "0x0040"),
    ("HGX_FW_PCIeRetimer_*", "0x8000"),
    ("BMC_Firmware", "0x0018"),
)


@cache
def _software_id(item_id: str) -> str | None:
    return next((s for p, s in SOFTWARE_IDS if fnmatchcase(item_id, p)), None)


def shown_id(item: Firmware) -> str:
    """The id in an item's list entry: iDRAC includes the version."""
    if "__" not in item.id:
        return item.id
    return re.sub(r"^(\w+-\d+-).*(__)", rf"\g<1>{item.running}\g<2>", item.id)


class FirmwareInventory:
    """The items of installed parts behind one BMC."""

    def __init__(self, machine: Machine, bmc: str, shape: Shape) -> None:
        self.machine = machine
        self.bmc = bmc
        self.shape = shape

    def show(self, item: Firmware) -> Json:
        """A SoftwareInventory resource."""
        path = f"{INVENTORY}/{shown_id(item)}"
        version = "" if item.hidden else item.running
        mirrored = self.machine.firmware.get((self.bmc, MIRRORS.get(item.id, "")))
        if mirrored and mirrored.staged is not None:
            version = mirrored.staged
        elif mirrored and item.id.startswith("Staging_"):
            version = mirrored.running  # as recorded of a BMC at rest
        shown: Json = {
            "@odata.id": path,
            "@odata.type": "#SoftwareInventory.v1_4_0.SoftwareInventory",
            "Id": shown_id(item),
            "Name": NAMES.get(item.id, item.id),
            "Updateable": item.updateable,
            "Status": {"State": "Enabled", "Health": "OK", "Conditions": []},
            "Version": version,
        }
        if not version and self.shape.name == "lenovo":
            del shown["Version"]  # the recorded UEFI-Pending has none
        software = _software_id(item.id)
        if software:
            shown["SoftwareId"] = software
        bmc_item, bios_item = self.shape.manager_items
        if fnmatchcase(item.id, bmc_item):
            related = f"{ROOT}/Managers/{self.shape.manager}"
        elif fnmatchcase(item.id, bios_item) or item.id.startswith("Capsule_"):
            related = f"{ROOT}/Systems/{self.shape.system}/Bios"
        else:
            return shown
        shown["RelatedItem"] = [{"@odata.id": related}]
        return shown

    def _members(self) -> list[str]:
        return [shown_id(item) for item in self.machine.list_items(self.bmc)]

    def _member(self, item_id: str) -> Resource | None:
        item = self.machine.firmware.get((self.bmc, item_id))
        if item is None or shown_id(item) != item_id:  # iDRAC's ids change with their version
            items = self.machine.list_items(self.bmc)
            item = next((i for i in items if shown_id(i) == item_id), None)
        if item and item.device and not self.machine.device_present(item.device):
            return None
        return None if item is None else Resource(partial(self.show, item), partial=False)

    def mount(self, tree: Tree, post: Act | None) -> None:
        """Put the collection into the tree; iDRAC accepts images there (`post`)."""
        tree.add_collection(
            INVENTORY,
            "SoftwareInventoryCollection",
            self._members,
            resolve=self._member,
            post=post,
            partial=False,
        )


# ------------------------------------------------------------------------------
# The bodies that carry images: multipart forms, and the parameters beside the file.


@dataclass(frozen=True)
class Part:
    """One part of a multipart/form-data body."""

    name: str
    kind: str  # Content-Type, "" if absent
    data: bytes
    file_name: str = ""


@dataclass(frozen=True)
class Push:
    """An image and its sender's parameters."""

    data: bytes
    targets: tuple[str, ...] = ()
    force: bool = False
    apply_time: str = "Immediate"


def parse_multipart(headers: Mapping[str, str], body: bytes) -> list[Part] | None:
    """The parts in order; None if the body contradicts its Content-Type (RFC 7578)."""
    boundary_match = re.match(
        r'multipart/form-data\s*;.*?boundary="?([^";]+)"?',
        headers.get("content-type", ""),
        re.IGNORECASE,
    )
    if not boundary_match:
        return None
    mark = b"--" + boundary_match.group(1).encode()
    if mark + b"--" not in body:
        return None
    parts = []
    for piece in (b"\r\n" + body).split(b"\r\n" + mark)[1:]:
        if piece.startswith(b"--"):
            break
        head, blank, data = piece.partition(b"\r\n\r\n")
        if not blank:
            return None
        head_text = head.decode("latin-1")
        name = re.search(r'[;\s]name="?([^";\r\n]+)"?', head_text)
        kind = re.search(r"^content-type:\s*([^\r\n]+)", head_text, re.IGNORECASE | re.MULTILINE)
        file = re.search(r'[;\s]filename="?([^";\r\n]+)"?', head_text)
        if not name:
            return None
        file_name = file.group(1) if file else ""
        parts.append(Part(name.group(1), kind.group(1).strip() if kind else "", data, file_name))
    return parts


def read_push(headers: Mapping[str, str], body: bytes, shape: Shape) -> Push | Answer:
    """Return the push in a multipart body, or the refusal, by the vendor's own rules."""
    parts = parse_multipart(headers, body)
    if parts is None:
        return make_error(415, "UnsupportedMediaType")
    by_name = {p.name: p for p in parts}
    if "UpdateFile" not in by_name:
        return make_error(400, "PropertyMissing", "UpdateFile")
    file = by_name["UpdateFile"]
    if " " in file.file_name and not shape.file_name_blanks:
        return make_error(500, "InternalError")
    if shape.bmcweb and file.kind != "application/octet-stream":
        return make_error(415, "UnsupportedMediaType")
    try:
        parameters = json.loads(by_name["UpdateParameters"].data or b"{}")
    except KeyError:
        parameters = {}
    except (ValueError, RecursionError):
        return make_error(400, "MalformedJSON")
    if not isinstance(parameters, dict):
        return make_error(400, "MalformedJSON")
    targets = parameters.get("Targets") or []
    if not isinstance(targets, list) or not all(isinstance(t, str) for t in targets):
        return make_error(400, "PropertyValueTypeError", str(targets), "Targets")
    if (refusal := _refuse(parameters, targets, shape)) is not None:
        return refusal
    when = parameters.get("@Redfish.OperationApplyTime", "Immediate")
    if shape.apply_times and when not in shape.apply_times:
        return make_error(400, "PropertyValueNotInList", str(when), "@Redfish.OperationApplyTime")
    return Push(file.data, tuple(targets), parameters.get("ForceUpdate") is True, str(when))


def _refuse(parameters: Json, targets: list[str], shape: Shape) -> Answer | None:
    """Return what a vendor answers to parameters that it documents otherwise; the keys are ours."""
    if shape.needs_oem and "Oem" not in parameters:
        return make_error(400, "PropertyMissing", "Oem", prop="Oem")
    if not shape.takes_targets and any("backup" not in t.lower() for t in targets):
        return make_error(400, "PropertyValueNotInList", str(targets), "Targets", prop="Targets")
    return None


Fetch = Callable[[str, Callable[[bytes | None], None]], None]
"""Downloads an image and calls back with it, or with None; immediately if it is in memory."""


class UpdateService:
    """The resources and actions below /redfish/v1/UpdateService."""

    def __init__(
        self,
        machine: Machine,
        shape: Shape,
        tasks: TaskTable,
        updates: Updates,
        fetch: Fetch,
        clock: SimClock,
    ) -> None:
        self.machine = machine
        self.shape = shape
        self.tasks = tasks
        self.updates = updates
        self.fetch = fetch
        self.clock = clock
        self.bmc = updates.bmc
        self.bfb = Bfb(updates) if self.bmc.name in machine.bluefields else None
        self.force = False
        self.claimed = False
        self.form_targets: list[str] = []
        self.prepared: Push | None = None  # uploaded, waiting for StartUpdate
        self.bmc.on_reset.append(lambda _: setattr(self, "prepared", None))

    # --- answers

    def _busy(self) -> Answer | None:
        if self.updates.job is None and not (self.bfb and self.bfb.busy):
            return None
        wait = "Another update is in progress. Retry the update operation once it is complete."
        headers = {"Retry-After": "30"} if self.shape.busy_status == 503 else None
        return make_error(
            self.shape.busy_status, "UpdateInProgress", headers=headers, resolution=wait
        )

    def _told(self, task: Task) -> Answer:
        path = self.tasks.get_path(task)
        handle = self.shape.handle
        if handle == "accepted":
            key = "SMC.1.0.OemSimpleupdateAcceptedMessage"
            text = f"Please also check Task Resource {path} to see more information."
            entry = {
                "code": key,
                "Message": text,
                "@Message.ExtendedInfo": [make_message(key, text, [path])],
            }
            return make_answer(
                202, {"Accepted": entry}, {"Location": self.tasks.get_monitor_path(task)}
            )
        if handle == "messages":
            new = make_message("Task.1.0.New", f"A new task {path} was created.", [path])
            start = make_message(
                "UpdateService.1.0.StartFirmwareUpdate", "Firmware update started."
            )
            body = {"@odata.type": "#UpdateService.v1_11_0.UpdateService", "Messages": [new, start]}
            return make_answer(202, body, {"Location": path})
        if handle == "dell":
            return make_answer(202, None, {"Location": path})
        if handle == "oem_state":
            return answer_done()
        return self.tasks.answer_accepted(task)

    # --- requests

    def push(self, request: Request) -> Answer:
        """A multipart push (DSP0266 clause 15.2)."""
        refusal = self._refused(request)
        if refusal:
            return refusal
        got = read_push(request.headers, request.body, self.shape)
        if isinstance(got, Answer):
            return got
        return self._start(got, request)

    def push_form(self, request: Request) -> Answer:
        """HttpPushUri: the bare image, or HPE's form with its own part names."""
        refusal = self._refused(request)
        if refusal:
            return refusal
        data = request.body
        parts = parse_multipart(request.headers, data)
        if parts:
            data = next((p.data for p in parts if p.name == "file"), b"")
        return self._start(Push(data, tuple(self.form_targets), force=True), request)

    def _refused(self, request: Request) -> Answer | None:
        limit = self.shape.image_max_bytes
        if limit is not None and len(request.body) > limit:
            return make_error(413, "PayloadTooLarge")
        return self._busy()

    def _start(self, push: Push, request: Request) -> Answer:
        task = self.updates.begin_task(request.path, request.now)
        force = push.force or (self.shape.force_by_patch and self.force)
        if "waits_for_start" in self.bmc.troubles or push.apply_time == "OnStartUpdateRequest":
            self.prepared = push
            self.updates.plan_later(
                self.machine.durations.transfer_s, lambda at: self._uploaded(task, at), request.now
            )
        else:
            self.updates.run(task, push.data, push.targets, request.now, force=force)
        return self._told(task)

    def _uploaded(self, task: Task, now: float) -> None:
        task.end_with("Completed", now)
        self.updates.job = None

    def start_update(self, request: Request) -> Answer:
        """The second step of a two-step update; without it nothing is written."""
        refusal = self._busy()
        if refusal:
            return refusal
        if self.prepared is None:
            return make_error(400, "ActionNotSupported", "UpdateService.StartUpdate")
        push = self.prepared
        self.prepared = None
        task = self.updates.begin_task(request.path, request.now)
        self.updates.run(task, push.data, push.targets, request.now, force=push.force)
        return self._told(task)

    def simple_update(self, request: Request) -> Answer:
        """SimpleUpdate: the BMC downloads the image. Targets may lack their leading slash."""
        body = request.json or {}
        action = "UpdateService.SimpleUpdate"
        uri = body.get("ImageURI")
        targets = body.get("Targets")
        if not isinstance(uri, str):
            return make_error(400, "ActionParameterMissing", action, "ImageURI")
        if self.bfb and targets is None:
            return make_error(400, "CreateFailedMissingReqProperties", "Targets")
        targets = targets or []
        if (
            not isinstance(targets, list)
            or not all(isinstance(t, str) for t in targets)
            or (self.bfb and not targets)
        ):
            return make_error(400, "PropertyValueFormatError", str(targets), "Targets")
        protocol = body.get("TransferProtocol", uri.partition("://")[0].upper())
        if protocol not in self.shape.simple_protocols:
            return make_error(
                400, "ActionParameterValueNotInList", str(protocol), "TransferProtocol", action
            )
        refusal = self._busy()
        if refusal:
            return refusal
        url = uri if "://" in uri else f"{protocol.lower()}://{uri}"
        task = self.updates.begin_task(request.path, request.now)
        if protocol not in ("HTTP", "HTTPS"):
            self.updates.fail_task(
                task,
                request.now,
                "TransferFailed",
                "image",
                "DPU_OS",
                why="Please provide server's public key using PublicKeyExchange",
                resolution="Exchange keys first.",
            )
            return self._told(task)
        self.fetch(url, lambda data: self._fetched(task, data, targets))
        return self._told(task)

    def _fetched(self, task: Task, data: bytes | None, targets: list[str]) -> None:
        now = self.clock.now()
        if self.bfb and "DPU_OS" in targets[0]:
            self.bfb.accept_image(task, data, now)
        elif data is None:
            self.updates.fail_task(
                task,
                now,
                "TransferFailed",
                "image",
                "UpdateService",
                why="Transfer failed",
                resolution="Check the server.",
            )
        else:
            self.updates.run(task, data, targets, now, force=False)

    def _patch(self, body: Json, _: Request) -> Answer | None:
        claim = ("HttpPushUriTargetsBusy",) if self.shape.claims else ()
        fault = make_patch_check(
            "HttpPushUriOptions", "HttpPushUriTargets", "ServiceEnabled", *claim
        )(body)
        claimed = body.get("HttpPushUriTargetsBusy")
        if fault is None and isinstance(claimed, bool):
            self.claimed = claimed
        options = body.get("HttpPushUriOptions")
        if fault is None and isinstance(options, dict):
            self.force = options.get("ForceUpdate") is True
        targets = body.get("HttpPushUriTargets")
        if fault is None and isinstance(targets, list):
            self.form_targets = [t for t in targets if isinstance(t, str)]
        return fault

    def commit_image(self, request: Request) -> Answer:
        """Oem CommitImage: the running images become the fallback images."""
        self.machine.log_event(request.now, "commit", self.bmc.name, str(request.json or {}))
        return answer_done()

    # --- the tree

    def show(self) -> Json:
        """The UpdateService resource."""
        shape = self.shape
        actions: Json = {
            "#UpdateService.SimpleUpdate": {
                "target": shape.simple_target,
                "TransferProtocol@Redfish.AllowableValues": list(shape.simple_protocols),
            }
        }
        if shape.lists_targets:
            simple = actions["#UpdateService.SimpleUpdate"]
            simple["Targets@Redfish.AllowableValues"] = list(shape.targets)
        if "OnStartUpdateRequest" in shape.apply_times:
            actions["#UpdateService.StartUpdate"] = {
                "target": f"{UPDATE}/Actions/UpdateService.StartUpdate"
            }
        if shape.commit_image:
            oem = {
                "#NvidiaUpdateService.CommitImage": {
                    "target": f"{UPDATE}/Actions/Oem/NvidiaUpdateService.CommitImage"
                }
            }
            actions["Oem"] = {"Nvidia": oem} if shape.name == "nvidia_openbmc" else oem
        shown: Json = {
            "@odata.type": "#UpdateService.v1_11_0.UpdateService",
            "Id": "UpdateService",
            "Name": "Update Service",
            "ServiceEnabled": True,
            "Status": {"State": "Enabled", "Health": "OK"},
            "FirmwareInventory": {"@odata.id": INVENTORY},
            "SoftwareInventory": {"@odata.id": f"{UPDATE}/SoftwareInventory"},
            "Actions": actions,
        }
        if shape.push_uri:
            shown["MultipartHttpPushUri"] = shape.push_uri
        if shape.form_uri:
            shown["HttpPushUri"] = shape.form_uri
            shown["HttpPushUriOptions"] = {"HttpPushUriApplyTime": {"ApplyTime": "Immediate"}}
            shown["HttpPushUriTargets"] = list(self.form_targets)
        if shape.claims:
            shown["HttpPushUriTargetsBusy"] = self.claimed
        if shape.force_by_patch:
            shown["HttpPushUriOptions"] = {"ForceUpdate": self.force}
        if shape.image_max_bytes:
            shown["MaxImageSizeBytes"] = shape.image_max_bytes
        if shape.handle == "oem_state":
            updates = self.updates
            shown["Oem"] = {
                "Hpe": {
                    "@odata.type": "#HpeiLOUpdateServiceExt.v2_3_0.HpeiLOUpdateServiceExt",
                    "State": updates.state,
                    "FlashProgressPercent": updates.job.percent if updates.job else 0,
                    "Result": {"MessageId": updates.result or "Update.1.0.UpdateSuccessful"},
                }
            }
        return shown

    def mount(self, tree: Tree) -> None:
        """Put UpdateService into the tree."""
        shape = self.shape
        tree.add_live(UPDATE, self.show, patch=self._patch)
        own_form = self.push_form if shape.form_uri == INVENTORY else None
        FirmwareInventory(self.machine, self.bmc.name, shape).mount(tree, own_form)
        if shape.push_uri:
            tree.add_action(shape.push_uri, self.push)
        if shape.form_uri and not own_form:
            tree.add_action(shape.form_uri, self.push_form)
        tree.add_action(shape.simple_target, self.simple_update)
        if "OnStartUpdateRequest" in shape.apply_times:
            tree.add_action(f"{UPDATE}/Actions/UpdateService.StartUpdate", self.start_update)
        if shape.commit_image:
            path = f"{UPDATE}/Actions/Oem/NvidiaUpdateService.CommitImage"
            tree.add_action(path, self.commit_image)
