"""How a simulated BMC writes firmware: as NVIDIA's pldm does, one update at a time.

The order of the task's messages is that of a real transcript (nvfwupd guide, "Output formatting"),
its arguments swapped where the real ones are. A written version is staged, never running, until
the reset that `Resolution` names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial

from provisioner.sim.hardware.images import Image, lower, parse_image
from provisioner.sim.hardware.machine import Machine
from provisioner.sim.hardware.parts import Bmc, Firmware
from provisioner.sim.redfish.redfish_tree import ROOT
from provisioner.sim.redfish.shapes import INVENTORY, Shape
from provisioner.sim.redfish.tasks import Task, TaskTable

RESOLUTION = {  # PLDM activation bits in words, joined by " or "
    "none": "Automatic",
    "bmc_reset": "Medium-specific reset",
    "cold_boot": "DC power cycle or AC power cycle",
    "ac_cycle": "AC power cycle",
    "warm_reboot": "System reboot",
    "mlxfwreset": "System reboot or DC power cycle",
}
# components in PLDM packages, whose comparison stamp forbids going back without ForceUpdate
STAMPED = ("HGX_", "BMC_Firmware", "Bluefield_FW")
ABSENT = "version not available"


class Updates:
    """The update engine of one BMC. `job` is what it writes now."""

    def __init__(self, machine: Machine, bmc: Bmc, shape: Shape, tasks: TaskTable) -> None:
        self.machine, self.bmc, self.shape, self.tasks = machine, bmc, shape, tasks
        self.job: Task | None = None
        self.writing: list[Firmware] = []
        self.state = "Idle"  # for vendors that tell it in the UpdateService (HPE)
        self.result = ""
        bmc.on_reset.append(self._lost)

    def _lost(self, now: float) -> None:
        for item in self.writing:
            item.writing = False
            self.machine.note(now, "write_end", f"{item.bmc}/{item.id}", "interrupted")
        self.writing, self.job, self.state = [], None, "Idle"

    def later(self, seconds: float, act: Callable[[float], None], now: float) -> None:
        """Plan an act of the job under way; void once the BMC has restarted."""
        boots = self.bmc.boots

        def still(at: float) -> None:
            if self.bmc.boots == boots:
                act(at)

        self.machine.schedule.at(now + self.machine.lasting(seconds), still)

    def begin(self, uri: str, now: float) -> Task:
        """A task for an update that was accepted."""
        task = self.tasks.new("Firmware update", now, uri)
        self.job, self.state, self.result = task, "Uploading", ""
        self.machine.note(now, "push", self.bmc.name, task.id)
        return task

    def run(
        self, task: Task, data: bytes, targets: Sequence[str], now: float, *, force: bool
    ) -> None:
        """Carry out an update: the package is judged when it has arrived."""
        self.later(
            self.machine.durations.transfer_s,
            lambda at: self._judge(task, data, targets, at, force=force),
            now,
        )

    def stalled(self) -> bool:
        """Whether a fault keeps this BMC's updates from ever ending."""
        return "update_hangs" in self.bmc.troubles

    def fail(self, task: Task, now: float, key: str, *args: str, why: str, resolution: str) -> None:
        """End the task the way pldm does: the failed step, what was found, aborted."""
        task.say(f"Update.1.0.{key}", f"{key}: {' '.join(args)}", *args, severity="Critical",
                 resolution="None.")  # fmt: skip
        task.say("ResourceEvent.1.0.ResourceErrorsDetected",
                 f"The resource property {args[-1] if args else 'Firmware'} has detected errors of "
                 f"type '{why}'.", args[-1] if args else "Firmware", why, severity="Critical",
                 resolution=resolution)  # fmt: skip
        task.end("Exception", now)
        self.job, self.state, self.result = None, "Error", why

    # --- judging

    def chosen(self, image: Image, targets: Sequence[str]) -> list[tuple[Firmware, str]]:
        """The items that a package updates, with their new versions."""
        patterns = [self._pattern(t) for t in targets]
        found = []
        for item in self.machine.items(self.bmc.name):
            version = image.version_for(item.id)
            if version is None or (patterns and not any(fnmatchcase(item.id, p) for p in patterns)):
                continue
            found.append((item, version))
        return found

    def _pattern(self, target: str) -> str:
        path = "/" + target.strip("/")
        known = self.shape.targets.get(path)
        if known:
            return known
        if path == f"{ROOT}/Chassis/HGX_Chassis_0":
            return "HGX_*"
        return path.removeprefix(f"{INVENTORY}/")

    def _judge(
        self, task: Task, data: bytes, targets: Sequence[str], now: float, *, force: bool
    ) -> None:
        self.state = "Verifying"
        image = parse_image(data)
        if image is None:
            self.fail(task, now, "VerificationFailed", "image", "Firmware Update Service",
                      why="Image authentication failed",
                      resolution="Retry the operation with a valid firmware image.")  # fmt: skip
            return
        work: list[tuple[Firmware, str]] = []
        found = self.chosen(image, targets)
        for item, version in found:
            task.say("Update.1.0.TargetDetermined",
                     f"The target device '{item.id}' will be updated with image '{version}'.",
                     item.id, version)  # fmt: skip
        for item, version in found:
            if item.erot and self.machine.copies.get((item.bmc, item.erot)) != "Completed":
                self.fail(task, now, "TransferFailed", version, item.id, why="ERoT is busy",
                          resolution="Wait for background copy operation to complete and rate "
                          "limit threshold to be cleared.")  # fmt: skip
                return
            stamped = item.id.startswith(STAMPED) and item.running != ABSENT
            if stamped and lower(version, item.running) and not force:
                self.fail(task, now, "VerificationFailed", version, item.id,
                          why="Component comparison stamp is lower than the firmware component "
                          "comparison stamp in the FD",
                          resolution="Retry firmware update operation with the force flag.",
                          )  # fmt: skip
                return
            if (
                version in (item.staged, item.running if item.staged is None else None)
                and not force
            ):
                task.say("NvidiaUpdate.1.0.ComponentUpdateSkipped",
                         f"The update operation for the component {item.id} is skipped because "
                         "Component image is identical.",
                         item.id, "Component image is identical",
                         resolution="Retry firmware update operation with the force flag",
                         )  # fmt: skip
                continue
            task.say("Update.1.0.TransferringToComponent",
                     f"Image '{version}' is being transferred to '{item.id}'.",
                     version, item.id)  # fmt: skip
            work.append((item, version))
        if not found:  # measured: Completed all the same
            task.say("ResourceEvent.1.0.ResourceErrorsDetected",
                     "The resource property Firmware Update Service has detected errors of type "
                     "'No Matching Devices'.", "Firmware Update Service", "No Matching Devices",
                     severity="Warning")  # fmt: skip
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
            self.machine.note(now, "write_start", f"{item.bmc}/{item.id}", version)
        seconds = self.machine.durations.write_s
        turns = self.machine.power_turns

        def tick(percent: int, _: float) -> None:
            if task is self.job:
                task.progress(percent)

        for n in range(1, 5):
            self.later(seconds * n / 5.3, partial(tick, 20 * n), now)
        if not self.stalled():
            self.later(seconds, lambda at: self._written(task, work, turns, at), now)

    def _written(
        self, task: Task, work: Sequence[tuple[Firmware, str]], turns: int, now: float
    ) -> None:
        self.writing = []
        for item, _ in work:
            item.writing = False
            self.machine.note(now, "write_end", f"{item.bmc}/{item.id}")
        for item, version in work:
            # the GPU tray has no power of its own: losing the host's breaks its transfer
            if item.id.startswith("HGX_") and self.machine.power_turns != turns:
                self.fail(task, now, "ApplyFailed", version, item.id, why="Timeout",
                          resolution="Power on the host and retry the operation.")  # fmt: skip
                return
            self.machine.stage(item, version, now)
            if "self_activates" in self.bmc.troubles:
                self.machine.activate(frozenset({item.activation}), now, self.bmc.name)
            task.say("Update.1.0.UpdateSuccessful",
                     f"Device '{item.id}' successfully updated with image '{version}'.",
                     item.id, version)  # fmt: skip
            task.say("Update.1.0.AwaitToActivate",
                     f"Awaiting for an action to proceed with activating image '{version}' on "
                     f"'{item.id}'.", version, item.id,
                     resolution=RESOLUTION[item.activation])  # fmt: skip
        self._end(task, now, [item for item, _ in work])

    def _end(self, task: Task, now: float, items: Sequence[Firmware] = ()) -> None:
        task.progress(100)
        self.job, self.state = None, "Complete"
        waiting = [i for i in items if i.staged is not None and i.activation != "bmc_reset"]
        if self.shape.handle == "dell" and waiting:
            task.say("IDRAC.2.8.JCP001", "Task successfully scheduled.")
            task.state, task.percent, task.waiting_for = "Starting", 0, waiting
            task.oem = {
                "Dell": {"JobState": "Scheduled", "Message": "Task successfully scheduled."}
            }
            return
        task.end("Completed", now)
        own = any(fnmatchcase(i.id, p) for i in items for p in self.shape.self_reset)
        if own or "resets_itself" in self.bmc.troubles:
            self.later(2.0, self._restart, now)

    def _restart(self, now: float) -> None:
        self.machine.bmc_reset(self.bmc.name, now)
