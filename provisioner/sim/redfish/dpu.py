"""Installing a BFB on a BlueField: the task covers only the transfer, the installation follows.

Facts: NVIDIA's BlueField BMC manual and Mellanox/dpu-update. The Arm side restarts by itself into
the new system; the NIC firmware waits for a cold boot of the host.
"""

from __future__ import annotations

from functools import partial

from provisioner.sim.hardware.images import Image, parse_image
from provisioner.sim.hardware.machine import Machine
from provisioner.sim.hardware.parts import Bluefield
from provisioner.sim.redfish.tasks import Task
from provisioner.sim.redfish.updates import Updates

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
