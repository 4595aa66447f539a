"""The true state of one simulated server: power, firmware slots, parts, BMCs. No protocol in here.

The rule that a reader would otherwise break: a version runs only after the reset that its item
requires. Writing stages it; `power_*`, `ac_cycle`, `bmc_reset` and `nic_reset` activate the staged
versions that they cover (docs/sources/redfish.md#activation-words), and the item's root of trust
then copies it to the golden slot, during which it accepts no update. Everything physical is in
`log`.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence

from provisioner.integrations.sim.hardware import curable_faults
from provisioner.integrations.sim.hardware.clock import Schedule
from provisioner.integrations.sim.hardware.disks import Disk
from provisioner.integrations.sim.hardware.parts import (
    Bluefield,
    Bmc,
    Device,
    Durations,
    Event,
    Firmware,
    Host,
)
from provisioner.integrations.sim.hardware.simulated_tpm import SimulatedTpm

COLD = frozenset({"cold_boot", "warm_reboot", "mlxfwreset"})  # activated by a loss of host power
WARM = frozenset({"warm_reboot"})
EVERYTHING = COLD | {"ac_cycle", "bmc_reset"}
# of a serial console. source: Linux, init/version-timestamp.c, drivers/tty/serial/8250 and
# kernel/reboot.c; systemd's status lines; agetty's prompt is printed with the host's name
FIRST_LINES = (
    "[    0.000000] Linux version 5.15.0-91-generic (buildd@lcy02-amd64-045) #101-Ubuntu SMP",
    "[    0.000000] Command line: BOOT_IMAGE=/boot/vmlinuz-5.15.0-91-generic console=ttyS0,115200",
    "[    1.204871] serial8250: ttyS0 at I/O 0x3f8 (irq = 4, base_baud = 115200) is a 16550A",
)
UP_LINE = "[  OK  ] Reached target Multi-User System."
LAST_LINES = ("[  OK  ] Reached target System Power Off.", "[ 8640.117302] reboot: Power down")
FOREVER_S = 10.0 * 365 * 86400  # longer than any simulated site runs


class Machine:
    """A server with its BMCs and cards. Methods with effects take the time as an argument."""

    def __init__(
        self, name: str, host: Host, schedule: Schedule, durations: Durations, seed: str
    ) -> None:
        self.name = name
        self.host = host
        self.schedule = schedule
        self.durations = durations
        self.rng = random.Random(seed)
        self.bmcs: dict[str, Bmc] = {}
        self.firmware: dict[tuple[str, str], Firmware] = {}
        self.devices: dict[str, Device] = {}
        self.bluefields: dict[str, Bluefield] = {}
        self.disks: dict[str, Disk] = {}  # by slot, of `devices`
        self.copies: dict[tuple[str, str], str] = {}  # (bmc, root-of-trust chassis) -> status
        self.log: list[Event] = []
        self.sel: list[dict[str, str]] = []  # entries of the host BMC's event log, as Redfish shows
        self.cures: list[tuple[frozenset[str], Callable[[], None]]] = []  # `curable_faults`
        # roots of trust, and slots of GPUs and NVSwitches, whose firmware is not their maker's
        self.implants: set[str] = set()
        self.nvattest: int | None = 0  # result of the tool; 0: reports; None: not installed
        self.tpm: SimulatedTpm | None = SimulatedTpm(name)  # of its board; None: it has none
        self.silent_roots: set[str] = (
            set()
        )  # roots of trust, and slots of devices, that are left out
        # leak detector -> its DetectorState, None while it reports none; {}: cooled by air
        self.leak_detectors: dict[str, str | None] = {}
        self.faults: set[str] = set()  # named presets in force (written by `faults`)
        self.power_turns = 0  # power actions so far; a newer one cancels older planned ones

    # --- shared helpers

    def log_event(self, now: float, kind: str, subject: str, detail: str = "") -> None:
        """Append a line to the ground truth."""
        self.log.append(Event(now, kind, subject, detail))

    def add_jitter(self, seconds: float) -> float:
        """A duration with its jitter, in seconds."""
        return seconds * self.rng.uniform(0.95, 1.05)

    def list_items(self, bmc: str) -> list[Firmware]:
        """The firmware behind one BMC whose part is present, in table order."""
        return [
            f
            for (owner, _), f in self.firmware.items()
            if owner == bmc and (not f.device or self.device_present(f.device))
        ]

    def device_present(self, slot: str) -> bool:
        """Whether the part in this slot is there and answers."""
        device = self.devices.get(slot)
        return device is None or device.present

    # --- activation

    def stage_version(self, item: Firmware, version: str, now: float) -> None:
        """Stage a written version; it runs at once only if its item needs no activation."""
        item.staged = version
        self.log_event(now, "stage", f"{item.bmc}/{item.id}", version)
        if item.activation == "none":
            self._run(item, now)

    def _run(self, item: Firmware, now: float) -> None:
        assert item.staged is not None
        self.log_event(now, "activate", f"{item.bmc}/{item.id}", f"{item.running} -> {item.staged}")
        item.running = item.staged
        item.staged = None
        item.implanted = False
        curable_faults.cure_faults(self, "reflash")
        if item.erot:
            self._copy((item.bmc, item.erot), now)

    def _copy(self, key: tuple[str, str], now: float) -> None:
        if self.copies.get(key) == "InProgress":
            return
        self.copies[key] = "InProgress"
        self.log_event(now, "copy_start", "/".join(key))

        def finish_copy(at: float) -> None:
            self.copies[key] = "Completed"
            self.log_event(at, "copy_end", "/".join(key))

        self.schedule.plan_act(now + self.add_jitter(self.durations.background_copy_s), finish_copy)

    def activate(
        self,
        covers: frozenset[str],
        now: float,
        bmc: str = "",
        manager: str = "",
        only: Firmware | None = None,
    ) -> None:
        """Run staged versions that wait for one of `covers` (behind one BMC, if named)."""
        for item in self.firmware.values():
            if item.staged is None or item.activation not in covers or item.writing:
                continue
            if only is not None and item is not only:
                continue
            card = self.bluefields.get(item.bmc)
            if covers >= COLD and card is not None and not card.host_power_cycles_it:
                # the host's power does not supply the card (docs/sources/bmc-faults.md#u19)
                continue
            if (bmc and item.bmc != bmc) or (manager and item.manager != manager):
                continue
            self._run(item, now)

    # --- power

    def power_on(self, now: float) -> None:
        """Host on: a cold boot."""
        self.power_turns += 1
        self.log_event(now, "power", "host", "On")
        self._start(now, self.power_turns)

    def power_off(self, now: float, *, graceful: bool = False) -> None:
        """Host off, at once or after its operating system has shut down."""
        self.power_turns += 1
        self.log_event(now, "power", "host", "GracefulShutdown" if graceful else "ForceOff")
        self._stop(now, graceful=graceful, turn=self.power_turns)

    def power_cycle(self, now: float, *, graceful: bool = False) -> None:
        """Off, a pause, on: a cold boot in one request."""
        self.power_turns += 1
        turn = self.power_turns
        self.log_event(now, "power", "host", "PowerCycle")
        off_at = self._stop(now, graceful=graceful, turn=turn)
        on_at = off_at + self.add_jitter(self.durations.cycle_off_s)
        self.schedule.plan_act(on_at, lambda at: self._start(at, turn))

    def restart_host(self, now: float) -> None:
        """A warm reboot: host power stays on."""
        self.power_turns += 1
        self.log_event(now, "power", "host", "Restart")
        self.activate(WARM, now)
        self._take_nv_config(now)
        self._boot(now, self.power_turns)

    def ac_cycle(self, now: float) -> None:
        """Cut standby power too: every BMC restarts, everything staged runs, the host starts."""
        self.log_event(now, "ac", "host", "cycle")
        back = now + self.add_jitter(self.durations.ac_off_s)
        self._lose_power(now, back)
        turn = self.power_turns

        def restore_power(at: float) -> None:
            if turn == self.power_turns:
                self._regain_power(at)
                self._start(at, turn)

        self.schedule.plan_act(back, restore_power)

    def lose_feeds(self, now: float) -> None:
        """Lose the last feed: everything is off until a feed is back."""
        self.log_event(now, "ac", "host", "off")
        self._lose_power(now, now + FOREVER_S)

    def regain_feeds(self, now: float) -> None:
        """Have a feed again: BMCs start, the host stays off (PowerRestorePolicy AlwaysOff)."""
        self.log_event(now, "ac", "host", "on")
        self.power_turns += 1
        for bmc in self.bmcs.values():
            self._restart_bmc(bmc, now, now)
        self._regain_power(now)

    def _lose_power(self, now: float, back: float) -> None:
        self.power_turns += 1
        self.host.standby = False
        self.host.power = "Off"
        self.host.phase = "off"
        self.host.boot_id = None
        for bmc in self.bmcs.values():
            self._restart_bmc(bmc, now, back)

    def _regain_power(self, now: float) -> None:
        self.host.standby = True
        curable_faults.cure_faults(self, "ac_cycle")
        self.activate(EVERYTHING, now)

    def _stop(self, now: float, *, graceful: bool, turn: int) -> float:
        seconds = self.durations.graceful_off_s if graceful else self.durations.force_off_s
        if graceful and self.host.phase == "up":
            self.host.print_lines(*LAST_LINES)
        self.host.power = "PoweringOff"
        self.host.boot_id = None
        self.host.phase = "off"
        off_at = now + self.add_jitter(seconds)

        def switch_off(at: float) -> None:
            if turn == self.power_turns:
                self.host.power = "Off"
                self.log_event(at, "power", "host", "is Off")

        self.schedule.plan_act(off_at, switch_off)
        return off_at

    def _start(self, now: float, turn: int) -> None:
        if turn != self.power_turns:
            return
        self.host.power = "PoweringOn"
        curable_faults.cure_faults(self, "cold_boot")
        self.activate(COLD, now)
        self._take_nv_config(now)
        for card in self.bluefields.values():
            if card.next_mode and card.host_power_cycles_it:
                card.mode = card.next_mode
                card.next_mode = ""
            if card.next_privilege and card.host_power_cycles_it:
                card.privilege = card.next_privilege
                card.next_privilege = ""
            self._wipe_storage(card, now)
        self._boot(now + self.add_jitter(self.durations.power_on_s), turn)

    def _wipe_storage(self, card: Bluefield, now: float) -> None:
        """Carry out the orders that wait for a start of the card."""
        if not card.host_power_cycles_it or not card.next_wipes:
            return
        wiped = set() if card.drops_wipes else card.next_wipes
        card.next_wipes = set()
        for name in sorted(wiped):
            card.storage[name] = ""
            self.log_event(now, "wipe", f"{card.slot}/{name}")
        if "NvmeWipe" in wiped and card.boot_state == "OsIsRunning":
            card.boot_state = "UEFI"  # it finds no system

    def _take_nv_config(self, now: float) -> None:
        for disk in self.disks.values():  # every start of the host resets the drives' controllers
            if disk.activate_firmware():
                self.log_event(now, "activate", f"drive/{disk.device.serial}", disk.firmware)
        for card in self.bluefields.values():
            if card.nv_config_next != card.nv_config:
                card.nv_config = dict(card.nv_config_next)
                self.log_event(now, "activate", f"{card.slot}/nv_config")

    def _boot(self, now: float, turn: int) -> None:
        host = self.host
        host.boot_id = None
        host.phase = "post"
        if host.bios.reset_due and host.bios.reset_forgets_boot:
            host.override["BootSourceOverrideEnabled"] = "Disabled"
            host.override["BootSourceOverrideTarget"] = "None"
        host.bios.take_pending()
        for card in self.bluefields.values():
            card.runtime = {}
            card.algorithm = False

        def post(at: float) -> None:
            if turn == self.power_turns:
                host.power = "On"

        def start_boot(at: float) -> None:
            if turn == self.power_turns:
                host.phase = "booting"
                self._choose_boot()
                if self._bootable():
                    host.print_lines(*FIRST_LINES)

        def finish_boot(at: float) -> None:
            if turn == self.power_turns and self._bootable():
                host.phase = "up"
                host.os = host.os_next
                self._first_boot()
                host.boot_id = str(uuid.UUID(int=self.rng.getrandbits(128), version=4))
                stays = "old_driver_starts" in self.faults and "host.driver" in host.loaded
                unchanged = {"host.driver": host.loaded["host.driver"]} if stays else {}
                host.loaded = dict(host.packages) | unchanged
                self.log_event(at, "boot", "host", f"{host.os} {host.boot_id}")
                host.print_lines(UP_LINE, "", f"{self.name} login: ")

        post_ends = now + self.add_jitter(self.durations.post_s)
        self.schedule.plan_act(now, post)
        self.schedule.plan_act(post_ends, start_boot)
        self.schedule.plan_act(post_ends + self.add_jitter(self.durations.os_boot_s), finish_boot)

    def _first_boot(self) -> None:
        """Apply a new system's packages and the stamp that its configuration asks for."""
        disk = next((d for d in self.disks.values() if d.bootable and d.device.present), None)
        if self.host.os != "disk" or disk is None or disk.booted:
            return
        disk.booted = True
        self.host.login_removed = False
        self.host.tenant_keys = ""
        self.host.user_data = ""
        self.host.minimums = ""
        self.host.system = disk.system
        self.host.packages = dict(disk.packages)

    def _bootable(self) -> bool:
        """Whether a disk is bootable; without one the host stays in its firmware."""
        if self.host.os_next != "disk" or not self.disks:
            return True
        return any(d.bootable and d.device.present for d in self.disks.values())

    def _choose_boot(self) -> None:
        override = self.host.override
        sources = {self.host.media_target: "cd", "Pxe": "pxe", "UefiHttp": "http"}
        target = override["BootSourceOverrideTarget"]
        enabled = override["BootSourceOverrideEnabled"]
        self.host.os_next = "disk"
        source = sources.get(target, "disk")
        if enabled != "Disabled" and (source != "cd" or self.host.media):
            self.host.os_next = source
        first = self.host.first_boot
        if first["ServerBoot.1.FirstBootDevice"] == "VCD-DVD" and self.host.media:
            self.host.os_next = "cd"
        if first["ServerBoot.1.BootOnce"] == "Enabled":
            first["ServerBoot.1.FirstBootDevice"] = "Normal"
        if enabled == "Once":  # used up by this boot
            override["BootSourceOverrideEnabled"] = "Disabled"
            override["BootSourceOverrideTarget"] = "None"

    # --- BMCs and cards

    def bmc_reset(self, name: str, now: float, manager: str = "") -> None:
        """Restart a BMC, or only the manager behind it (the HGX BMC behind the host's BMC)."""
        self.log_event(now, "bmc_reset", name, manager)
        self.activate(frozenset({"bmc_reset"}), now, bmc=name, manager=manager)
        if not manager:
            self._restart_bmc(self.bmcs[name], now, now)

    def _restart_bmc(self, bmc: Bmc, now: float, back: float) -> None:
        d = self.durations
        bmc.boots += 1
        bmc.reset_at = now
        bmc.gone_until = back + self.add_jitter(d.bmc_gone_s)
        bmc.starting_until = bmc.gone_until + self.add_jitter(d.bmc_starting_s)
        bmc.partial_until = bmc.starting_until + self.add_jitter(d.bmc_partial_s)
        for listener in bmc.on_reset:
            listener(now)

    def nic_reset(self, slot: str, now: float) -> None:
        """Run `mlxfwreset` from the host: the card's firmware and its NV configuration restart."""
        self.log_event(now, "nic_reset", slot)
        for item in self.list_items(slot):
            if item.id == "DPU_NIC" and item.staged is not None:
                self._run(item, now)
        card = self.bluefields[slot]
        card.nv_config = dict(card.nv_config_next)


# ------------------------------------------------------------------------------
# A simulated power distribution unit: outlets that feed simulated servers. No protocol in here.
#
# A server has power as long as one of its feeds has: an outlet of any unit. A unit may be
# troubled:
# `lies` reports the requested state and switches nothing, `silent` answers nothing, `sticks`
# answers
# success and leaves an outlet as it is, `crossed` switches the next outlet.


class PowerUnit:
    """Outlets by name, each on or off, and the servers whose cords are in them."""

    def __init__(self, name: str, outlets: Sequence[str]) -> None:
        self.name = name
        self.on = dict.fromkeys(outlets, True)
        self.reported: dict[str, bool] = {}  # of a unit that lies
        self.troubles: set[str] = set()
        self.on_switch: list[Callable[[float], None]] = []
        self.log: list[tuple[float, str, bool]] = []

    def read(self, outlet: str) -> bool:
        """The state that the unit reports."""
        return self.reported.get(outlet, self.on[outlet])

    def switch(self, outlet: str, now: float, *, on: bool) -> None:
        """Switch an outlet, as far as the unit's troubles let it."""
        if "sticks" in self.troubles:
            return
        if "lies" in self.troubles:
            self.reported[outlet] = on
            return
        if "crossed" in self.troubles:
            names = list(self.on)
            self.reported[outlet] = on
            outlet = names[(names.index(outlet) + 1) % len(names)]
        self.on[outlet] = on
        self.log.append((now, outlet, on))
        for notify in self.on_switch:
            notify(now)


class Cords:
    """The cords of one server: it loses power with its last feed and regains it with the first."""

    def __init__(self, machine: Machine, feeds: Sequence[tuple[PowerUnit, str]]) -> None:
        self.machine = machine
        self.feeds = tuple(feeds)
        self.fed = True
        for unit in {id(u): u for u, _ in feeds}.values():
            unit.on_switch.append(self.follow)

    def follow(self, now: float) -> None:
        """Take the outlets' present states over to the server."""
        fed = any(unit.on[outlet] for unit, outlet in self.feeds)
        if fed == self.fed:
            return
        self.fed = fed
        if fed:
            self.machine.regain_feeds(now)
        else:
            self.machine.lose_feeds(now)
