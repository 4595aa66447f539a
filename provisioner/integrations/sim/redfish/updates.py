"""Firmware writes of a simulated BMC: one update at a time, like NVIDIA's pldm.

The order of the task's messages follows a real transcript (nvfwupd guide, "Output formatting"),
with its arguments swapped where the real ones are. A written version is staged, never running,
until the reset that `Resolution` names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial

from provisioner.integrations.sim.hardware.build import Image, is_lower, parse_image
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.parts import Bluefield, Bmc, Firmware
from provisioner.integrations.sim.redfish.redfish_tree import ROOT
from provisioner.integrations.sim.redfish.shape import INVENTORY, Shape
from provisioner.integrations.sim.redfish.tasks import Task, TaskTable

RESOLUTION = {  # PLDM activation bits as text, joined by " or "
    "none": "Automatic",
    "bmc_reset": "Medium-specific reset",
    "cold_boot": "DC power cycle or AC power cycle",
    "ac_cycle": "AC power cycle",
    "warm_reboot": "System reboot",
    "mlxfwreset": "System reboot or DC power cycle",
}
# components in PLDM packages; their comparison stamp forbids a downgrade without ForceUpdate
STAMPED = ("HGX_", "BMC_Firmware", "Bluefield_FW")
ABSENT = "version not available"


class Updates:
    """The update engine of one BMC. `job` is the update in progress."""

    def __init__(self, machine: Machine, bmc: Bmc, shape: Shape, tasks: TaskTable) -> None:
        self.machine = machine
        self.bmc = bmc
        self.shape = shape
        self.tasks = tasks
        self.job: Task | None = None
        self.writing: list[Firmware] = []
        self.state = "Idle"  # for vendors with a state in the UpdateService (HPE)
        self.result = ""
        bmc.on_reset.append(self._lost)

    def _lost(self, now: float) -> None:
        for item in self.writing:
            item.writing = False
            self.machine.log_event(now, "write_end", f"{item.bmc}/{item.id}", "interrupted")
        self.writing = []
        self.job = None
        self.state = "Idle"

    def plan_later(self, seconds: float, act: Callable[[float], None], now: float) -> None:
        """Plan an act of the current job; a restart of the BMC cancels it."""
        boots = self.bmc.boots

        def act_unless_restarted(at: float) -> None:
            if self.bmc.boots == boots:
                act(at)

        self.machine.schedule.plan_act(now + self.machine.add_jitter(seconds), act_unless_restarted)

    def begin_task(self, uri: str, now: float) -> Task:
        """Create the task of an accepted update."""
        task = self.tasks.add_task("Firmware update", now, uri)
        self.job = task
        self.state = "Uploading"
        self.result = ""
        self.machine.log_event(now, "push", self.bmc.name, task.id)
        return task

    def run(
        self, task: Task, data: bytes, targets: Sequence[str], now: float, *, force: bool
    ) -> None:
        """Run an update: the package is verified when it has arrived."""
        self.plan_later(
            self.machine.durations.transfer_s,
            lambda at: self._judge(task, data, targets, at, force=force),
            now,
        )

    def is_stalled(self) -> bool:
        """Whether a fault keeps this BMC's updates from ending."""
        return "update_hangs" in self.bmc.troubles

    def fail_task(
        self, task: Task, now: float, key: str, *args: str, why: str, resolution: str
    ) -> None:
        """End the task in pldm's way: the failed step, the finding, the abort."""
        task.add_message(
            f"Update.1.0.{key}",
            f"{key}: {' '.join(args)}",
            *args,
            severity="Critical",
            resolution="None.",
        )
        task.add_message(
            "ResourceEvent.1.0.ResourceErrorsDetected",
            f"The resource property {args[-1] if args else 'Firmware'} has detected errors of "
            f"type '{why}'.",
            args[-1] if args else "Firmware",
            why,
            severity="Critical",
            resolution=resolution,
        )
        task.end_with("Exception", now)
        self.job = None
        self.state = "Error"
        self.result = why

    # --- verification

    def choose_items(self, image: Image, targets: Sequence[str]) -> list[tuple[Firmware, str]]:
        """The items that a package updates, with their new versions."""
        patterns = [self._pattern(t) for t in targets]
        items = []
        for item in self.machine.list_items(self.bmc.name):
            version = image.version_for(item.id)
            if version is None or (patterns and not any(fnmatchcase(item.id, p) for p in patterns)):
                continue
            items.append((item, version))
        return items

    def _pattern(self, target: str) -> str:
        path = "/" + target.strip("/")
        pattern = self.shape.targets.get(path)
        if pattern:
            return pattern
        if path == f"{ROOT}/Chassis/HGX_Chassis_0":
            return "HGX_*"
        return path.removeprefix(f"{INVENTORY}/")

    def _judge(
        self, task: Task, data: bytes, targets: Sequence[str], now: float, *, force: bool
    ) -> None:
        self.state = "Verifying"
        image = parse_image(data)
        if image is None:
            self.fail_task(
                task,
                now,
                "VerificationFailed",
                "image",
                "Firmware Update Service",
                why="Image authentication failed",
                resolution="Retry the operation with a valid firmware image.",
            )
            return
        work: list[tuple[Firmware, str]] = []
        items = self.choose_items(image, targets)
        for item, version in items:
            task.add_message(
                "Update.1.0.TargetDetermined",
                f"The target device '{item.id}' will be updated with image '{version}'.",
                item.id,
                version,
            )
        for item, version in items:
            if item.erot and self.machine.copies.get((item.bmc, item.erot)) != "Completed":
                self.fail_task(
                    task,
                    now,
                    "TransferFailed",
                    version,
                    item.id,
                    why="ERoT is busy",
                    resolution="Wait for background copy operation to complete and rate "
                    "limit threshold to be cleared.",
                )
                return
            stamped = item.id.startswith(STAMPED) and item.running != ABSENT
            if stamped and is_lower(version, item.running) and not force:
                self.fail_task(
                    task,
                    now,
                    "VerificationFailed",
                    version,
                    item.id,
                    why="Component comparison stamp is lower than the firmware component "
                    "comparison stamp in the FD",
                    resolution="Retry firmware update operation with the force flag.",
                )
                return
            if (
                version in (item.staged, item.running if item.staged is None else None)
                and not force
            ):
                _report_skipped(task, item)
                continue
            task.add_message(
                "Update.1.0.TransferringToComponent",
                f"Image '{version}' is being transferred to '{item.id}'.",
                version,
                item.id,
            )
            work.append((item, version))
        if not items:  # measured: Completed all the same
            _report_no_match(task)
        self.write(task, work, now)

    # --- writing

    def write(self, task: Task, work: Sequence[tuple[Firmware, str]], now: float) -> None:
        """Write items; percent follows a timer of five ticks, not the work."""
        self.state = "Writing"
        task.state = "Running"
        if not work or "writes_nothing" in self.bmc.troubles:
            self._end(task, now)
            return
        self.writing = [item for item, _ in work]
        for item, version in work:
            item.writing = True
            self.machine.log_event(now, "write_start", f"{item.bmc}/{item.id}", version)
        seconds = self.machine.durations.write_s
        turns = self.machine.power_turns

        def tick(percent: int, _: float) -> None:
            if task is self.job:
                task.set_progress(percent)

        for n in range(1, 5):
            self.plan_later(seconds * n / 5.3, partial(tick, 20 * n), now)
        if not self.is_stalled():
            self.plan_later(seconds, lambda at: self._written(task, work, turns, at), now)

    def _written(
        self, task: Task, work: Sequence[tuple[Firmware, str]], turns: int, now: float
    ) -> None:
        self.writing = []
        for item, _ in work:
            item.writing = False
            self.machine.log_event(now, "write_end", f"{item.bmc}/{item.id}")
        for item, version in work:
            # the GPU tray has no power of its own: without the host's its transfer breaks
            if item.id.startswith("HGX_") and self.machine.power_turns != turns:
                self.fail_task(
                    task,
                    now,
                    "ApplyFailed",
                    version,
                    item.id,
                    why="Timeout",
                    resolution="Power on the host and retry the operation.",
                )
                return
            self.machine.stage_version(item, version, now)
            if "self_activates" in self.bmc.troubles:
                self.machine.activate(frozenset({item.activation}), now, self.bmc.name)
            task.add_message(
                "Update.1.0.UpdateSuccessful",
                f"Device '{item.id}' successfully updated with image '{version}'.",
                item.id,
                version,
            )
            task.add_message(
                "Update.1.0.AwaitToActivate",
                f"Awaiting for an action to proceed with activating image '{version}' on "
                f"'{item.id}'.",
                version,
                item.id,
                resolution=RESOLUTION[item.activation],
            )
        self._end(task, now, [item for item, _ in work])

    def _end(self, task: Task, now: float, items: Sequence[Firmware] = ()) -> None:
        task.set_progress(100)
        self.job = None
        self.state = "Complete"
        waiting = [i for i in items if i.staged is not None and i.activation != "bmc_reset"]
        if self.shape.handle == "dell" and waiting:
            task.add_message("IDRAC.2.8.JCP001", "Task successfully scheduled.")
            task.state = "Starting"
            task.percent = 0
            task.waiting_for = waiting
            task.oem = {
                "Dell": {"JobState": "Scheduled", "Message": "Task successfully scheduled."}
            }
            return
        task.end_with("Completed", now)
        own = any(fnmatchcase(i.id, p) for i in items for p in self.shape.self_reset)
        if own or "resets_itself" in self.bmc.troubles:
            self.plan_later(2.0, self._restart, now)

    def _restart(self, now: float) -> None:
        self.machine.bmc_reset(self.bmc.name, now)


def _report_skipped(task: Task, item: Firmware) -> None:
    task.add_message(
        "NvidiaUpdate.1.0.ComponentUpdateSkipped",
        f"The update operation for the component {item.id} is skipped because "
        "Component image is identical.",
        item.id,
        "Component image is identical",
        resolution="Retry firmware update operation with the force flag",
    )


def _report_no_match(task: Task) -> None:
    task.add_message(
        "ResourceEvent.1.0.ResourceErrorsDetected",
        "The resource property Firmware Update Service has detected errors of type "
        "'No Matching Devices'.",
        "Firmware Update Service",
        "No Matching Devices",
        severity="Warning",
    )


# ------------------------------------------------------------------------------
# Installing a BFB on a BlueField: the task covers only the transfer, the installation follows.
#
# Facts: NVIDIA's BlueField BMC manual and Mellanox/dpu-update. The Arm side restarts by itself into
# the new system; the NIC firmware waits for a cold boot of the host.


# BootProgress.OemLastState and the fraction of the installation at which it appears
PHASES = (("BootRom", 0.0), ("BL2", 0.05), ("BL31", 0.1), ("UEFI", 0.2), ("OsStarting", 0.7))
SERVER_HINT = "Check and restart server's web service"


class Bfb:
    """Runs one SimpleUpdate with the target DPU_OS."""

    def __init__(self, updates: Updates) -> None:
        self.updates = updates
        self.machine: Machine = updates.machine
        self.card: Bluefield = self.machine.bluefields[updates.bmc.name]

    def accept_image(self, task: Task, data: bytes | None, now: float) -> None:
        """Continue with the image from its server, or fail without it."""
        updates = self.updates
        if updates.job is not task:  # the BMC restarted meanwhile
            return
        if not self.card.rshim or self.card.host_rshim == "Enabled":
            updates.fail_task(
                task,
                now,
                "TransferFailed",
                "bfb",
                "DPU_OS",
                why="RShim is not available",
                resolution="Enable BmcRShim and disable the host's RShim.",
            )
            return
        if data is None:
            updates.fail_task(
                task,
                now,
                "TransferFailed",
                "bfb",
                "DPU_OS",
                why="Transfer failed",
                resolution=SERVER_HINT,
            )
            return
        seconds = self.machine.durations.bfb_transfer_s
        task.add_message(
            "Update.1.0.TransferringToComponent",
            "Image 'bfb' is being transferred to 'DPU_OS'.",
            "bfb",
            "DPU_OS",
        )

        def tick(percent: int, _: float) -> None:
            if updates.job is task:
                task.set_progress(percent)

        for n in range(1, 5):
            updates.plan_later(seconds * n / 5.3, partial(tick, 20 * n), now)
        if not updates.is_stalled():
            updates.plan_later(seconds, lambda at: self._transferred(task, data, at), now)

    def _transferred(self, task: Task, data: bytes, now: float) -> None:
        if self.updates.job is not task:
            return
        task.set_progress(100)
        task.end_with("Completed", now)
        self.updates.job = None
        self._install(parse_image(data), now)

    def _install(self, image: Image | None, now: float) -> None:
        card = self.card
        machine = self.machine
        slot = self.card.slot
        card.installing = True
        card.boot_state = "BootRom"
        machine.log_event(now, "write_start", f"{slot}/DPU_OS")
        turns = machine.power_turns
        seconds = machine.add_jitter(machine.durations.bfb_install_s)

        def set_phase(name: str, _: float) -> None:
            if card.installing:
                card.boot_state = name

        for name, share in PHASES:
            machine.schedule.plan_act(now + seconds * share, partial(set_phase, name))

        def end(at: float) -> None:
            card.installing = False
            whole = image is not None and machine.power_turns == turns
            machine.log_event(at, "write_end", f"{slot}/DPU_OS", "" if whole else "failed")
            if not whole or image is None:  # the boot ROM finds no trusted image
                card.boot_state = "Invalid"
                return
            card.boot_state = "OsIsRunning" if card.mode == "DpuMode" else "UEFI"
            card.storage = dict.fromkeys(card.storage, "of the bundle")
            machine.firmware[slot, "DPU_OS"].implanted = False  # the installer writes it anew
            for item in machine.list_items(slot):
                version = image.version_for(item.id)
                if version is not None and version != item.running:
                    machine.stage_version(item, version, at)
            if machine.firmware[slot, "BMC_Firmware"].staged is not None:
                machine.bmc_reset(slot, at)

        machine.schedule.plan_act(now + seconds, end)

    @property
    def busy(self) -> bool:
        """Whether the Arm side is being installed."""
        return self.card.installing
