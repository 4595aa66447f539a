"""Settings of a machine as its BMCs show them: BIOS attributes, Secure Boot, and the BMC's own.

Running and pending values are two facts. `pending` holds only what differs from the running
value: some services repeat every attribute in the settings object, others leave it empty.
"""

from __future__ import annotations

import hashlib
import re

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.outcome import Gap

# ------------------------------------------------------------------------------
# The state of a BIOS in few bytes: which attributes it has, and a digest of each value.


class BiosState(Record):
    """Attributes that can be written, by name, and a digest of each value, in the same order."""

    names: tuple[str, ...]
    digests: tuple[str, ...]
    waiting: tuple[str, ...] = ()  # attributes that change at the next boot


# ------------------------------------------------------------------------------
# A device's pins as one text: the fingerprint of its certificate, or of each that it may present.
#
# More than one is stored only while the certificate is exchanged: the first one was in force
# before.


PINS_MAX = 6  # attempts at an exchange whose outcome stayed open, and the one in force before


def split_pins(text: str) -> tuple[str, ...]:
    """Return the fingerprints, in lowercase hex without colons."""
    return tuple(pin.strip().replace(":", "").lower() for pin in text.split(",") if pin.strip())


def add_pin(text: str, new: str) -> str:
    """Return the pins with one more; of too many, the oldest behind the first is given up."""
    pins = [pin for pin in split_pins(text) if pin != new]
    if len(pins) >= PINS_MAX:
        del pins[1]
    return ",".join((*pins, new))


# ------------------------------------------------------------------------------
# The version of a drive: its model and the firmware that runs, as one text.
#
# Firmware of one model does not run on another, so the matrix pins "MODEL@FIRMWARE" for each model,
# and an edge leads from a firmware to another of the same model.


NVME_FIRMWARE = "drive.nvme"  # the component kind
# NVM Express Base Specification, Identify Controller: MN has 40 characters and FR has 8
_MODEL_MAX = 40
_FIRMWARE = re.compile(r"[!-?A-~]{1,8}")  # printable, without the separator
_MODEL = re.compile(r"[!-?A-~]+( [!-?A-~]+)*")


def join_version(model: str, firmware: str) -> str | None:
    """Return the version of a drive as the matrix writes it; None if a part has no such form.

    Drives pad both fields with blanks.
    """
    model = " ".join(model.split())
    firmware = firmware.strip()
    if len(model) > _MODEL_MAX or not _MODEL.fullmatch(model) or not _FIRMWARE.fullmatch(firmware):
        return None
    return f"{model}@{firmware}"


def split_version(version: str) -> tuple[str, str]:
    """Return (model, firmware); ("", "") for a text of another form."""
    model, _, firmware = version.partition("@")
    return (model, firmware) if join_version(model, firmware) == version else ("", "")


def have_same_model(first: str, second: str) -> bool:
    model = split_version(first)[0]
    return model != "" and model == split_version(second)[0]


# ------------------------------------------------------------------------------
# Things that a tenant may have left in a BMC, as the BMC shows them.


class BmcAccount(Record):
    """A user of the BMC that may log in."""

    name: str
    role: str = ""
    keys: tuple[str, ...] | None = None  # fingerprints of its SSH keys; None: none are shown


class BmcRemainders(Record):
    """One reading. None: the BMC does not show it."""

    accounts: tuple[BmcAccount, ...] | None = None  # those that are enabled
    destinations: tuple[str, ...] | None = None  # where the BMC sends its events
    waiting: dict[str, str] | None = None  # BIOS attributes that change at the next boot
    gaps: tuple[str, ...] = ()  # resources that did not answer


# ------------------------------------------------------------------------------
# The keys of UEFI Secure Boot as a BMC shows them: who may sign what the host boots.


class KeyDatabase(Record):
    """One database: what is in force, and what the factory put there.

    An entry is the lower-case SHA-256 of a certificate (DER), or a signature as it is shown.
    """

    name: str  # "PK", "KEK", "db", "dbx", ...
    entries: tuple[str, ...] = ()
    factory: tuple[str, ...] | None = None  # None: the service shows no such set
    titles: dict[str, str] = Field(default_factory=dict)  # entry -> the subject of its certificate


class SecureBootKeys(Record):
    """One reading of a system's Secure Boot."""

    enabled: bool | None = None  # from the next boot on
    mode: str | None = None  # "UserMode", "SetupMode", ...
    databases: tuple[KeyDatabase, ...] = ()
    resets: bool = False  # the factory's keys can be asked for
    gaps: tuple[str, ...] = ()  # resources that did not answer


# ------------------------------------------------------------------------------
# What a BMC shows of a UEFI set-up password: a digest that proves which one is in force.


class SetupPasswordState(Record):
    """The digest in force, with where a change is asked for. It has no password."""

    target: str  # of the action that changes it
    settings: str  # object of the values that wait: what a job carries out
    sha256: str = ""  # lowercase hex, of the password and the salt; "": none is set
    salt: str = ""  # hex

    @property
    def is_set(self) -> bool:
        """Return whether a set-up password is in force."""
        return bool(self.sha256)

    def proves(self, password: str) -> bool:
        """Return whether this password is the one in force; "" is in force where none is set."""
        if not self.is_set or not password:
            return not self.is_set and not password
        salted = password.encode() + bytes.fromhex(self.salt)
        return hashlib.sha256(salted).hexdigest() == self.sha256


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
