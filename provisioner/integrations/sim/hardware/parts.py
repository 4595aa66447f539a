"""The parts of a simulated server: plain records that tests and faults may change freely."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

# ------------------------------------------------------------------------------
# The BIOS settings of a simulated host: what runs, what waits, and what a boot makes of it.


Value = str | int | bool


@dataclass
class SetupPassword:
    """The password of a BIOS's set-up: the one in force, and a change that waits for the boot."""

    password: str = ""
    salt: bytes = b""
    waiting: tuple[str, str] | None = None  # the old one, as the request gave it, and the new one
    dropped: bool = False  # the BIOS takes no change at the boot, whatever the BMC accepted
    changes: int = 0

    def set(self, password: str) -> None:
        """Have a password in force, with a salt of its own."""
        self.password = password
        self.changes += 1
        self.salt = hashlib.sha256(f"salt {self.changes}".encode()).digest()[:16]

    def show(self) -> dict[str, Value]:
        """Return the attributes that a PowerEdge shows of it, both empty where none is set."""
        if not self.password:
            return {"SHA256SetupPassword": "", "SHA256SetupPasswordSalt": ""}
        digest = hashlib.sha256(self.password.encode() + self.salt).hexdigest()
        return {
            "SHA256SetupPassword": digest.upper(),
            "SHA256SetupPasswordSalt": self.salt.hex().upper(),
        }

    def take_change(self) -> bool:
        """Carry the waiting change out; return whether the BIOS did."""
        waiting = self.waiting
        self.waiting = None
        if waiting is None:
            return True
        if self.dropped or waiting[0] != self.password:
            return False
        self.set(waiting[1])
        return True


@dataclass
class Bios:
    """`pending` runs after the next start of the host, as far as the BIOS accepts it."""

    running: dict[str, Value] = field(default_factory=dict)
    pending: dict[str, Value] = field(default_factory=dict)
    needs_job: bool = False  # Dell: without a job nothing carries the pending values out
    job: bool = False  # one is committed, until the boot has carried it out
    # attribute -> whether the BIOS accepts it beside these running values; it drops the others
    accepts: Callable[[str, dict[str, Value]], bool] = lambda _name, _running: True
    # (attribute, value) -> the attributes that this choice writes itself
    writes: dict[tuple[str, Value], dict[str, Value]] = field(default_factory=dict)
    defaults: dict[str, Value] = field(default_factory=dict)
    shows_waiting: bool = False  # as running, before the boot
    reset_due: bool = False  # the next start begins with the defaults
    reset_forgets_boot: bool = False  # that start forgets the override for its boot, too
    reset_dropped: bool = False  # asked for, accepted, and lost at the boot
    dropped: set[str] = field(default_factory=set)  # accepted, shown, and lost at the boot
    secure_boot: bool = False  # from the next start
    secure_boot_running: bool = False
    # database -> its entries: PEM of a certificate, or a SHA-256 in hex; None: those of the maker
    boot_keys: dict[str, tuple[str, ...]] | None = None
    keys_reset_due: bool = False  # the next start begins with the maker's keys
    keys_reset_dropped: bool = False  # asked for, accepted, and lost at the boot
    starts: int = 0
    setup: SetupPassword = field(default_factory=SetupPassword)
    # each hears once how the committed job ended: a state of a task
    job_watchers: list[Callable[[str], None]] = field(default_factory=list)

    def turn_on_secure_boot(self) -> None:
        """Run with Secure Boot, in this boot and in later ones."""
        self.secure_boot = True
        self.secure_boot_running = True

    def take_pending(self) -> None:
        """Start once: the pending values run, and so do those that they write."""
        self.starts += 1
        self.secure_boot_running = self.secure_boot
        if self.keys_reset_due:
            self.keys_reset_due = False
            if not self.keys_reset_dropped:
                self.boot_keys = None
        if self.reset_due:
            self.reset_due = False
            if not self.reset_dropped:
                self.running.update(self.defaults)
                self.pending.clear()
                self.job = False
        if self.needs_job and not self.job:
            return
        self.job = False
        self._end_job("Completed" if self.setup.take_change() else "Exception")
        before = dict(self.running)
        for name, value in self.pending.items():
            if name in self.dropped or not self.accepts(name, before):
                continue
            self.running[name] = value
            if before.get(name) != value:
                self.running.update(self.writes.get((name, value), {}))
        self.pending.clear()

    def _end_job(self, state: str) -> None:
        watchers = self.job_watchers
        self.job_watchers = []
        for watch in watchers:
            watch(state)


@dataclass(frozen=True)
class Durations:
    """How long things take, in seconds; each gets 5 percent of seeded jitter."""

    bmc_gone_s: float = 40.0  # connection refused
    bmc_starting_s: float = 50.0  # then 503
    bmc_partial_s: float = 20.0  # then a tree without firmware and chassis
    power_on_s: float = 4.0
    force_off_s: float = 6.0
    graceful_off_s: float = 45.0
    post_s: float = 240.0
    os_boot_s: float = 90.0
    cycle_off_s: float = 10.0  # off time of a power cycle
    ac_off_s: float = 20.0
    transfer_s: float = 60.0  # image into the BMC
    write_s: float = 420.0  # one bundle into all its components
    background_copy_s: float = 600.0
    bfb_transfer_s: float = 240.0
    bfb_install_s: float = 600.0
    nic_burn_s: float = 60.0
    nic_reset_s: float = 15.0

    def scale(self, factor: float) -> Durations:
        """All durations times `factor`."""
        return replace(self, **{f.name: getattr(self, f.name) * factor for f in fields(self)})


class Event(NamedTuple):
    """One line of ground truth. `subject` is "bmc/item", a BMC's name or "host"."""

    time: float
    kind: str  # push write_start write_end activate copy_start copy_end power bmc_reset ac boot ...
    subject: str
    detail: str


@dataclass
class Firmware:
    """One firmware slot: `running` is active, `staged` waits for its activation."""

    id: str  # FirmwareInventory id
    bmc: str
    running: str
    activation: str  # none | bmc_reset | cold_boot | ac_cycle | warm_reboot | mlxfwreset
    updateable: bool = True
    staged: str | None = None
    device: str = ""  # slot of its part; absent together with the part
    erot: str = ""  # chassis id of the root of trust that copies it to the golden slot
    manager: str = ""  # manager whose reset activates it, unless it is the BMC's own
    hidden: bool = False  # Redfish shows an empty version (BlueField in NIC mode)
    software_id: str = ""
    writing: bool = False
    implanted: bool = False  # it runs other content than the image of its version has


@dataclass
class Device:
    """A replaceable part. `traits` holds values that only in-band tools show."""

    kind: str  # baseboard gpu nvswitch nic dpu cpu memory storage psu fan
    slot: str
    model: str
    serial: str
    part: str = ""
    pci: str = ""
    mac: str = ""
    present: bool = True
    health: str = "OK"
    link_gen: int = 5
    link_gen_max: int = 5
    link_width: int = 16
    link_width_max: int = 16
    traits: dict[str, str | int | float] = field(default_factory=dict)


@dataclass
class Bmc:
    """One Redfish endpoint's hardware. It is gone, then starting, then partial, then complete."""

    name: str  # "host", "NIC_0", "DPU_1"
    vendor: str  # name of its shape
    serial: str
    mac: str
    username: str
    password: str  # factory credentials
    gone_until: float = 0.0
    starting_until: float = 0.0
    partial_until: float = 0.0
    boots: int = 0  # incremented at each reset: everything volatile is lost
    reset_at: float = 0.0
    on_reset: list[Callable[[float], None]] = field(default_factory=list)
    # its faults: update_hangs (an update never ends), ignores_reset (a power request is accepted
    # without effect), media_sticks (ejected media stays "inserted"), resets_itself (an update ends
    # with an unrequested restart), late_certificate (a new one is presented after a restart only),
    # same_certificate (a new one is accepted and never presented), defaults_dropped (a reset to
    # factory defaults only restarts it), certificate_stays (such a reset keeps the certificate),
    # lost_after_defaults (it is not seen any more at its address)
    troubles: set[str] = field(default_factory=set)
    console_types: tuple[str, ...] = ()  # ways to the serial console beside its shape's own
    console_port: int = 0  # at which a server of SSH offers it; 0: none does
    clock_offset_s: float = 0.0  # of its clock against the site's
    ntp_enabled: bool = False
    ntp_servers: tuple[str, ...] = ()
    syslog_on: bool = False
    syslog_servers: tuple[str, ...] = ()
    syslog_listed: bool = False  # Supermicro: newer firmware has a list of servers
    protocols: dict[str, bool] = field(default_factory=lambda: {"IPMI": True, "SSH": True})
    certificate: bytes = b""  # presented now, in PEM; b"": as its server was started
    certificate_next: tuple[bytes, bytes] | None = None  # waits for a restart, with its key
    on_certificate: list[Callable[[bytes, bytes], None]] = field(default_factory=list)

    def get_phase(self, now: float) -> str:
        """`gone`, `starting`, `partial` or `up`."""
        if now < self.gone_until:
            return "gone"
        if now < self.starting_until:
            return "starting"
        return "partial" if now < self.partial_until else "up"


@dataclass
class Bluefield:
    """A BlueField-3 card: an Arm system behind its own BMC."""

    slot: str
    mode: str  # NicMode | DpuMode
    boot_state: str = "OsIsRunning"  # BootProgress.OemLastState; UEFI is the end in NIC mode
    next_mode: str = ""
    privilege: str = "Restricted"  # of its host: Restricted | Privileged
    next_privilege: str = ""
    # source of the orders: NVIDIA BlueField BSP 4.9.1, Redfish. That no system starts afterwards
    # follows from where it was; no document describes the effect on the blocks.
    storage: dict[str, str] = field(
        default_factory=lambda: {"EmmcWipe": "boot files", "NvmeWipe": "a system"}
    )
    next_wipes: set[str] = field(default_factory=set)
    drops_wipes: bool = False  # the UEFI forgets the orders at the start
    rshim: bool = True
    host_rshim: str = "Disabled"
    installing: bool = False
    host_power_cycles_it: bool = True  # not in some dual-node chassis (NICo issue 3480)
    nv_config: dict[str, str] = field(default_factory=dict)
    nv_config_next: dict[str, str] = field(default_factory=dict)
    runtime: dict[str, str] = field(default_factory=dict)  # lost at every boot of the host
    algorithm: bool = False  # congestion control runs in the host for this card


@dataclass
class Host:
    """The server itself. `boot_id` is None unless its operating system is up."""

    serial: str
    uuid: str
    power: str = "On"  # On | Off | PoweringOn | PoweringOff
    phase: str = "up"  # off | post | booting | up
    boot_id: str | None = None
    os: str = "disk"  # its boot source: disk | pxe | http | cd
    os_next: str = "disk"
    override: dict[str, str] = field(
        default_factory=lambda: {
            "BootSourceOverrideEnabled": "Disabled",
            "BootSourceOverrideTarget": "None",
            "BootSourceOverrideMode": "UEFI",
        }
    )
    media: str = ""  # URL inserted as virtual CD
    boot_uri: str | None = None  # the image of the boot source UefiHttp; None: by DHCP
    media_target: str = "Cd"  # override that boots the virtual CD; "": only `first_boot` does
    first_boot: dict[str, str] = field(  # Dell's attributes of the BMC
        default_factory=lambda: {
            "Lockdown.1.SystemLockdown": "Disabled",
            "SysLog.1.SysLogEnable": "Disabled",
            "SysLog.1.Server1": "",
            "SysLog.1.Server2": "",
            "SysLog.1.Server3": "",
            "ServerBoot.1.BootOnce": "Enabled",
            "ServerBoot.1.FirstBootDevice": "Normal",
        }
    )
    standby: bool = True
    indicator: str = "Off"
    packages: dict[str, str] = field(default_factory=dict)  # installed: name -> version
    settings: dict[str, str] = field(default_factory=dict)  # of its baseline and check tools
    system: str = ""  # the stamp of its image that the system on its disk reports
    loaded: dict[str, str] = field(default_factory=dict)  # in effect since the last boot
    login_removed: bool = False  # the daemon's, from the system on its disk
    tenant_keys: str = ""  # authorized_keys of the tenant's account in that system
    minimums: str = ""  # files of its metadata: oldest versions of the tenant's libraries
    user_data: str = ""  # of the tenant, which its cloud-init would carry out at the next boot
    bios: Bios = field(default_factory=Bios)
    on_print: list[Callable[[str], None]] = field(default_factory=list)  # get its console's lines

    def print_lines(self, *lines: str) -> None:
        """Print lines on the serial console; without a listener they are lost."""
        for line in lines:
            for listener in tuple(self.on_print):
                listener(line)
