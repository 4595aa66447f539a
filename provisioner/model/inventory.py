"""The inventory: the components of a node, the versions that run on it, and the gaps in the
data.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from provisioner.model.base import Record
from provisioner.model.names import PciAddress
from provisioner.model.outcome import Blocker, Gap, Reason


class Activation(StrEnum):
    """The action that makes a staged version run. `planning/path/activation.py` has which covers
    which.
    """

    NONE = "none"  # runs as soon as it is installed
    SERVICE_RESTART = "service_restart"  # done by the playbook that installs it
    BMC_RESET = "bmc_reset"  # Manager.Reset of the BMC that owns the component
    NIC_RESET = "mlxfwreset"  # mlxfwreset from the host
    WARM_REBOOT = "warm_reboot"  # the host's operating system reboots
    COLD_BOOT = "cold_boot"  # host power off, then on (DC cycle, chassis power cycle)
    AC_CYCLE = "ac_cycle"  # standby power is taken away too
    IMAGE_REBOOT = "image_reboot"  # a switch boots its other image


class BackgroundCopy(StrEnum):
    """State of the copy from the active to the golden flash slot
    (Oem.Nvidia.BackgroundCopyStatus).
    """

    COMPLETED = "Completed"
    IN_PROGRESS = "InProgress"
    PENDING = "Pending"


class Component(Record):
    """One component with a version.

    `kind` is a name from `components.ALL` ("bluefield.nic") or "unclassified"; `slot` distinguishes
    the components of one kind in one node ("GPU_SXM_3", "DPU_1").
    """

    kind: str
    slot: str
    version: (
        str | None
    )  # the running version; None when the device reports none (then there is a Gap)
    staged: str | None = None  # written, not yet running; None: nothing is staged
    pending: Activation | None = None  # activation that the staged version needs, as reported
    background_copy: BackgroundCopy | None = None  # None: the device has no such copy
    updateable: bool | None = None  # as the device reports; None: it does not
    # Redfish path or command; a source, not an identity (docs/sources/redfish.md#identity)
    source: str
    bmc: str = ""  # name of the BMC that gives access to it ("host", "DPU_1"); "": in-band
    serial: str | None = None
    part: str | None = None


class DeviceKind(StrEnum):
    """Parts that a bill of materials counts."""

    SYSTEM = "system"
    BMC = "bmc"
    BASEBOARD = "baseboard"
    GPU = "gpu"
    NVSWITCH = "nvswitch"
    NIC = "nic"
    DPU = "dpu"
    CPU = "cpu"
    MEMORY = "memory"
    STORAGE = "storage"
    PSU = "psu"


class Device(Record):
    """A part that can be swapped, and so is compared in a FRU difference."""

    kind: DeviceKind
    slot: str
    model: str | None = None
    serial: str | None = None
    part: str | None = None
    mac: str | None = None  # base MAC, lowercase with colons
    macs: tuple[str, ...] = ()  # of a card's ports, sorted, as far as they are listed
    pci: PciAddress | None = None  # "0000:1b:00.0"
    uuid: str | None = None  # of a GPU, as its driver prints it without "GPU-"
    health: str | None = None  # "OK", "Warning", "Critical" as the service reports it
    source: str = ""


class Moisture(StrEnum):
    """The reading of a leak detector."""

    DRY = "dry"
    WET = "wet"
    UNREADABLE = "unreadable"  # it does not answer, or reports neither


class LeakDetector(Record):
    """A detector of coolant in a liquid-cooled host."""

    slot: str  # chassis and detector: "Chassis_0/Chassis_0_LeakDetector_0_ColdPlate"
    moisture: Moisture
    detail: str  # the state and health that it reports, or why it has none
    source: str


class WriteObstacle(Record):
    """A state of a BMC in which it refuses writes of some kinds: a missing licence, a lockdown."""

    bmc: str  # name of the BMC in the node
    name: str  # "licence" or "lockdown"
    hinders: tuple[str, ...]  # "push", "media", "boot"
    reason: Reason
    detail: str
    unblock: str


def build_obstacle_blocker(obstacle: WriteObstacle) -> Blocker:
    """Return an obstacle as a refusal of a write, or of a plan."""
    return Blocker(
        reason=obstacle.reason,
        subject=f"{obstacle.bmc}/{obstacle.name}" if obstacle.bmc else obstacle.name,
        detail=obstacle.detail,
        unblock=obstacle.unblock,
    )


class BmcClock(Record):
    """The clock of one BMC, as it stood against ours when it was read."""

    skew_s: float | None  # positive: the BMC is ahead; None: it shows no time that can be read
    uncertainty_s: float = 0.0  # half of the time that the reading took: the skew may be so wrong
    offset: str | None = None  # of its local time, as it prints it: "-06:00"
    ntp: bool | None = None  # whether it takes its time from servers; None: it does not show it
    ntp_servers: tuple[str, ...] = ()
    source: str


class Power(StrEnum):
    """Redfish PowerState, and UNKNOWN where the service does not report it."""

    ON = "On"
    OFF = "Off"
    CHANGING = "Changing"  # PoweringOn, PoweringOff
    UNKNOWN = "Unknown"


class Inventory(Record):
    """Everything observed of one node in one collection. Equal content has an equal digest."""

    node: str
    vendor: str  # name of the quirk declaration, "unknown" if none fits
    system_serial: str | None = None
    system_uuid: str | None = None
    model: str | None = None
    power: Power = Power.UNKNOWN
    boot_state: str | None = None  # Redfish BootProgress.LastState of the host: "OSRunning"
    boot_id: str | None = None  # of the host's operating system, from in-band facts
    drives: tuple[str, ...] = ()  # serials of the drives that the host's own system lists, sorted
    components: tuple[Component, ...] = ()
    devices: tuple[Device, ...] = ()
    leaks: tuple[LeakDetector, ...] = ()  # () of a host that is cooled by air
    obstacles: tuple[WriteObstacle, ...] = ()  # what the BMCs report as in the way of writes
    gaps: tuple[Gap, ...] = ()
    # of a switch whose LLDP calls its ports otherwise: what it sends -> the port's name
    port_names: Mapping[str, str] | None = None

    def of_kind(self, kind: str) -> tuple[Component, ...]:
        """Return the components of one kind, in slot order."""
        return tuple(sorted((c for c in self.components if c.kind == kind), key=lambda c: c.slot))

    def find_component(self, kind: str, slot: str) -> Component | None:
        """Return one component, or None if it was not observed."""
        return next((c for c in self.components if (c.kind, c.slot) == (kind, slot)), None)

    def devices_of(self, kind: DeviceKind) -> tuple[Device, ...]:
        """Return the devices of one kind, in slot order."""
        return tuple(sorted((d for d in self.devices if d.kind is kind), key=lambda d: d.slot))


class ListedVersion(NamedTuple):
    """A version that runs on some parts of a node. `pending`: what `staged` waits for."""

    kind: str
    version: str | None
    staged: str | None
    pending: str | None
    slots: int


def list_versions(inventory: Inventory) -> tuple[ListedVersion, ...]:
    """Return the versions of a node without their slots: alike nodes have equal ones."""
    counts = Counter(
        (c.kind, c.version, c.staged, c.pending.value if c.pending is not None else None)
        for c in inventory.components
    )
    return tuple(sorted((ListedVersion(*k, n) for k, n in counts.items()), key=json.dumps))


def list_serials(inventory: Inventory) -> tuple[str, ...]:
    """Return serial and part, with a tab between, of all that has a serial, in small letters."""
    found = [(inventory.system_serial, "system")]
    found += [(c.serial, f"{c.kind} {c.slot}") for c in inventory.components]
    found += [(d.serial, f"{d.kind} {d.slot}") for d in inventory.devices]
    return tuple(sorted({f"{serial}\t{part}".casefold() for serial, part in found if serial}))


def list_models(inventory: Inventory) -> tuple[str, ...]:
    found = [inventory.model, *(d.model for d in inventory.devices)]
    return tuple(sorted({model for model in found if model}))
