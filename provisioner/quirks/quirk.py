"""Vendor-specific behaviour of a Redfish service, as data; `README.md` explains each flag.

A flag exists only where recorded behaviour or a vendor's document requires it. The client reads
flags and never checks a vendor's name.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from provisioner.model.base import Record
from provisioner.quirks.meaning import Row


class AcCycle(Record):
    """An action that removes standby power: its resource, its name, and its body.

    `unlisted` is the action's path below its resource where the service accepts the action but
    does not list it; it is used only if the action is not listed.
    """

    resource: str  # "Chassis" or "Systems"
    action: str  # end of the action's name, "NvidiaChassis.AuxPowerReset"
    body: dict[str, str]
    needs_off: bool = True
    unlisted: str = ""


class BootAttributes(Record):
    """Settings of the BMC that choose the virtual drive; they are not in `Boot` of the system.

    `action` and `buffer` are the way of a service that does not list the attributes: an action of
    the manager that imports a configuration.
    """

    virtual_cd: dict[str, str]
    normal: dict[str, str]
    action: str = ""
    body: dict[str, Any] = Field(default_factory=dict)


class Licence(Record):
    """A licence without which the BMC refuses `needed_for`, and the place that lists licences.

    `hops` lead from the manager to the list, each by the keys of a link; `sufficient` is an
    expression over the texts of `fields`.
    """

    hops: tuple[tuple[str, ...], ...]
    fields: tuple[str, ...]  # texts of a licence that name it
    sufficient: str
    needed_for: tuple[str, ...]  # "push", "media"
    title: str


class Lockdown(Record):
    """A mode of the BMC in which it refuses `hinders`, and the attribute that shows it.

    `links` are the keys below the manager that lead to its attributes.
    """

    links: tuple[str, ...]
    attribute: str  # expression over names of attributes
    locked: str  # the value of a BMC in this mode
    unlocked: str  # the value of one that takes changes
    hinders: tuple[str, ...]  # "push", "media", "boot"
    title: str


class Syslog(Record):
    """Attributes of the BMC that send its log to syslog servers, in the order of use."""

    links: tuple[str, ...]  # keys below the manager that lead to its attributes
    inside: tuple[str, ...] = ()  # keys below that resource
    switch: str
    on: str | bool
    off: str | bool
    servers: tuple[str, ...]
    listed: str = ""  # key of an address, where the one attribute may be a list of objects


class SetupPassword(Record):
    """How the set-up password of a host is changed, and the attributes that prove the one in force.

    Only a vendor that shows such a proof has this: where nothing shows it, a change that a BIOS
    dropped could not be distinguished from one that it made, and the password would be lost.
    """

    name: str  # PasswordName of Bios.ChangePassword
    sha256: str  # attribute: digest, hex, of the password with the salt appended
    salt: str  # attribute: the salt, hex
    jobs: tuple[str, ...]  # keys below the manager that lead to its jobs: one carries it out


class Quirk(Record):
    """One vendor. Times are in seconds. The defaults are the behaviour that DSP0266 requires."""

    name: str
    title: str

    # identity: expressions over fields of the service root, any of which identifies the vendor
    vendor: str = ""
    product: str = ""
    oem: str = ""  # key under Oem, of the root and of the BMC's own manager
    is_openbmc: bool = False  # its manager shows OpenBMC too, as its model or in its Oem

    # reading
    expand: bool = True  # $expand works where the service offers it

    # pushing firmware
    push: str = "multipart"  # "multipart" | "form" (HPE)
    apply_time: str = ""  # @Redfish.OperationApplyTime to send; "": leave it out
    apply_time_by_kind: dict[str, str] = Field(default_factory=dict)  # takes precedence
    oem_always: bool = False  # UpdateParameters must have an Oem object, even an empty one
    oem_by_kind: dict[str, dict[str, Any]] = Field(default_factory=dict)
    targets: dict[str, str] = Field(default_factory=dict)  # component kind -> see README.md
    package_files: str = ""  # expression: files that name their own targets; `Targets` is empty
    empty_targets: bool = False  # `Targets` must be there, even empty
    file_name_blanks: bool = True  # a blank in the name of the file is accepted
    # why the BMC is updated and restarted before anything else is pushed through it; "": no source
    bmc_first: str = ""
    claim: bool = False  # HttpPushUriTargetsBusy is set around an update
    force: str = "parameter"  # "parameter" | "options" (PATCH HttpPushUriOptions) | "none"
    pull_without_scheme: bool = False  # SimpleUpdate: ImageURI without scheme, double slash
    pull_targets_relative: bool = False  # SimpleUpdate: Targets without their first slash

    # changing
    if_match: str = "etag"  # "etag" | "any" ("*") | "none"
    password_if_match: str = ""  # for accounts only; "": as `if_match`
    empty_body: bool = True  # an action without parameters needs {}
    full_override: bool = False  # boot override: enabled, mode and target in one body
    media_inserted: bool = True  # InsertMedia accepts Inserted and WriteProtected
    media_by_patch: bool = False  # a drive without InsertMedia takes an image by PATCH
    media_slots: str = ""  # expression over Ids of drives that take images; "": any
    media_targets: tuple[str, ...] = ("Cd",)  # boot targets of the virtual CD, best first
    media_enable: str = ""  # action of the manager that makes the drives appear
    media_enable_body: dict[str, str] = Field(default_factory=dict)
    boot_attributes: BootAttributes | None = None  # instead of the override, for the virtual CD
    http_boot: bool = False  # a maintenance image is booted by UEFI HTTP: no drive takes images
    media_login: str = ""  # user and password that InsertMedia requires although none is needed

    # settings
    bios_registry: str = ""  # name below Bios of the attribute registry, where none is listed
    bmc_attributes: tuple[str, ...] = ()  # keys below the manager that lead to its attributes
    # @Redfish.SettingsApplyTime to send where the service lists none; "": leave it out
    settings_apply_time: str = ""
    settings_if_match: str = ""  # for the object of pending settings; "": as `if_match`
    syslog: Syslog | None = None  # None: no source names its attributes
    setup_password: SetupPassword | None = None  # None: no source says how one is proved
    meanings: tuple[Row, ...] = ()  # attributes of the settings that profiles pin

    # resetting
    bmc_reset_types: tuple[str, ...] = ("GracefulRestart", "ForceRestart")  # in this order
    ac_cycle: AcCycle | None = None

    # obstacles that are read before anything is sent
    licence: Licence | None = None
    lockdown: Lockdown | None = None

    # time and limits
    bmc_reset_s: float = 180.0  # no request to a restarted BMC before this
    settle_reads: int = 3
    read_timeout_s: float = 30.0
    session_limit: int = 4
    # the first login: its user, and where a person finds its password
    factory_user: str = "admin"
    factory_printed: str = "in the maker's manual, or on its label"
    lockout_failures: int = 3  # failed logins that lock an account, by the strictest observed BMC
