"""Settings of a machine as its BMCs show them: BIOS attributes, Secure Boot, and the BMC's own.

Running and pending values are two facts. `pending` holds only what differs from the running
value: some services repeat every attribute in the settings object, others leave it empty.
"""

from __future__ import annotations

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.outcome import Gap

Value = bool | int | float | str | None
HOST_RSHIM = "HostRshim"  # a BlueField's, among the values of its BMC
CARD_MODE = "Mode"  # likewise: DpuMode, NicMode
SYSLOG = "Syslog.Servers"  # of a BMC: addresses, separated by commas; "off"
BIOS_SETTINGS = "host.bios_settings"  # kind of component: the set of BIOS settings that runs
# kinds of components: the sets of a BlueField in DPU mode and in NIC mode, which its start takes
DPU_SETTINGS = "bluefield.settings"
SUPERNIC_SETTINGS = "supernic.settings"
BOOT_SETTINGS = (BIOS_SETTINGS, DPU_SETTINGS, SUPERNIC_SETTINGS)
NO_SET = "none"  # version of such a component, where none of the pinned sets runs
HIDDEN = "***"  # in place of a secret, whatever its value is


class AttributeRule(Record):
    """One attribute as a registry describes it. `kind` is the registry's `Type`; "": not given."""

    name: str
    kind: str = ""
    values: tuple[str, ...] = ()  # names of an enumeration's values
    labels: tuple[str, ...] = ()  # the same values as people read them; Supermicro shows these
    lower: float | None = None
    upper: float | None = None
    increment: float | None = None
    length_min: int | None = None
    length_max: int | None = None
    read_only: bool = False
    hidden: bool = False
    immutable: bool = False
    reset_required: bool | None = None  # None: the registry does not say


class DependencyTerm(Record):
    """One condition of a dependency: a property of another attribute compared with a value."""

    attribute: str
    condition: str  # EQU, NEQ, GTR, GEQ, LSS, LEQ
    value: Value = None


class Dependency(Record):
    """While its terms hold, a property of `attribute` has `value`.

    `every`: all terms must hold; otherwise one is enough.
    """

    attribute: str
    affects: str  # ReadOnly, Hidden, GrayOut, CurrentValue
    value: Value = None
    terms: tuple[DependencyTerm, ...]
    every: bool = False


class AttributeRegistry(Record):
    """The vendor's description of all attributes of one BIOS version."""

    source: str
    rules: dict[str, AttributeRule]
    dependencies: tuple[Dependency, ...] = ()


class BiosSettings(Record):
    """The BIOS attributes of one system.

    `target` is the resource that takes changes, "" if none does. Secrets are HIDDEN.
    """

    source: str
    target: str = ""
    apply_times: tuple[str, ...] = ()
    current: dict[str, Value] | None = None  # None: not shown, as before the first boot
    pending: dict[str, Value] = Field(default_factory=dict)
    registry_name: str | None = None
    registry: AttributeRegistry | None = None  # None: it could not be read


class SecureBootState(Record):
    """Secure Boot of one system. `enabled` holds from the next boot, `running` now."""

    source: str
    enabled: bool | None = None
    running: bool | None = None
    mode: str | None = None


class BmcSettings(Record):
    """Settings of one BMC by name, "IPMI.ProtocolEnabled" for example; lists are joined by ","."""

    source: str
    values: dict[str, Value]


class MachineSettings(Record):
    """All settings that one Redfish service shows."""

    vendor: str
    bios: tuple[BiosSettings, ...] = ()
    secure_boot: tuple[SecureBootState, ...] = ()
    bmcs: tuple[BmcSettings, ...] = ()
    gaps: tuple[Gap, ...] = ()
