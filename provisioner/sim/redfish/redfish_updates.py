"""UpdateService of a simulated BMC: inventory, pushes, pulls, and each vendor's own answer."""

from __future__ import annotations

from collections.abc import Callable

from provisioner.sim.hardware.clock import SimClock
from provisioner.sim.hardware.machine import Machine
from provisioner.sim.redfish.dpu import Bfb
from provisioner.sim.redfish.redfish_answers import (
    Answer,
    Json,
    answer_done,
    make_answer,
    make_error,
    make_message,
)
from provisioner.sim.redfish.redfish_inventory import FirmwareInventory
from provisioner.sim.redfish.redfish_push import Push, parse_multipart, read_push
from provisioner.sim.redfish.redfish_tree import Request, Tree, make_patch_check
from provisioner.sim.redfish.shape import INVENTORY, UPDATE, Shape
from provisioner.sim.redfish.tasks import Task, TaskTable
from provisioner.sim.redfish.updates import Updates

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
