"""The record of a vendor's simulated Redfish service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.sim.redfish.redfish_tree import ROOT

UPDATE = f"{ROOT}/UpdateService"
INVENTORY = f"{UPDATE}/FirmwareInventory"
RESETS = ("On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "PowerCycle")


@dataclass(frozen=True)
class Shape:
    """One vendor's service. An empty string means "not offered"."""

    name: str
    redfish_version: str
    system: str
    manager: str
    chassis: str
    manufacturer: str
    model: str
    manager_model: str
    vendor: str | None = None  # ServiceRoot.Vendor
    product: str | None = None
    root_oem: Mapping[str, Any] = field(default_factory=dict)
    manager_items: tuple[str, str] = ("", "")  # FirmwareInventory ids of BMC and BIOS
    # updates
    push_uri: str = f"{UPDATE}/upload"
    form_uri: str = ""  # HttpPushUri
    simple_target: str = f"{UPDATE}/Actions/UpdateService.SimpleUpdate"
    simple_protocols: tuple[str, ...] = ("HTTP", "HTTPS")
    apply_times: tuple[str, ...] = ()
    handle: str = "task"  # task | accepted | messages | dell | oem_state
    task_id: str = "{n}"
    task_prefix: str = f"{ROOT}/TaskService/Tasks/"
    monitor: str = f"{ROOT}/TaskService/Tasks/{{id}}/Monitor"
    task_late_s: float = 0.0  # the task answers 404 for this long (iDRAC)
    monitor_vanishes: bool = False  # iLO 6: 404 as soon as the task is done
    image_max_bytes: int | None = None
    targets: Mapping[str, str] = field(default_factory=dict)  # target path -> inventory id pattern
    busy_status: int = 400  # upstream OpenBMC: 503
    force_by_patch: bool = False
    commit_image: bool = False
    lists_targets: bool = False  # in AllowableValues of SimpleUpdate, as Lenovo's tree does
    # source: captured tree of an SR670 V2, UpdateService: HttpPushUriTargetsBusy
    claims: bool = False
    # source: fwupd, Lenovo's plugin: only the backup BMC takes a target, the others an empty array
    takes_targets: bool = True
    # source: fwupd, Lenovo's plugin: a blank in the file name answers InternalError
    file_name_blanks: bool = True
    # source: NVIDIA/libredfish dell.rs: `Oem` is present in UpdateParameters, if empty
    needs_oem: bool = False
    self_reset: tuple[str, ...] = ()  # items after whose update the BMC restarts by itself
    # reading
    expand_levels: int = 0  # 0: no $expand
    expand_drops: tuple[str, ...] = ()  # properties that $expand loses (AMI)
    page_max: int = 0  # members a page
    # logins
    session_timeout_s: int = 300
    session_max: int = 16
    lockout_threshold: int = 0
    lockout_s: int = 0
    password_min: int = 8
    password_max: int = 20
    account_id: str = ""  # accounts are numbered slots; this one is the factory account
    account_slots: bool = False  # cannot be created or deleted
    change_factory_password: bool = False
    # power
    resets: tuple[str, ...] = RESETS
    chassis_resets: tuple[str, ...] = ()
    manager_resets: tuple[str, ...] = ("GracefulRestart", "ForceRestart")
    reset_info: bool = True  # allowable values in an ActionInfo resource, not inline
    ac_cycle: tuple[str, str, str] = ("", "", "")  # name, target, ResetType
    ac_cycle_needs_off: bool = False
    # SerialConsole.ConnectTypesSupported of the manager; None: it has no SerialConsole
    console_types: tuple[str, ...] | None = None
    if_match: bool = False  # PATCH without If-Match: 428
    # answers as NVIDIA/bmcweb 7f3a16ae was run: events, numbers of tasks, types of uploaded parts
    bmcweb: bool = False
    boot_targets: tuple[str, ...] = ("None", "Pxe", "Cd", "Usb", "Hdd", "BiosSetup", "UefiHttp")
    # source: NVIDIA/libredfish nvidia_gbx00.rs: works on a GB200, whose captured tree lists it not
    boot_targets_unlisted: tuple[str, ...] = ()
    boot_mode: bool = True  # a GB200's captured tree shows no BootSourceOverrideMode
    media: tuple[str, ...] = ("VirtualMedia1", "VirtualMedia2")
    media_needs_login: bool = False  # DGX refuses InsertMedia without UserName and Password
    # source: openstack/sushy's constants (Supermicro boots virtual media as UsbCd only);
    # dell/iDRAC-Redfish-Scripting 90 (Cd is the physical drive)
    media_target: str = "Cd"
    media_by_patch: bool = False  # source: captured tree of an SR670 V2: EXT1 has no action
    # source: captured tree of a DGX H100, EnableRMediaActionInfo: no drive is listed before it
    media_enable: str = ""
    # source: captured trees of a DGX H100 (Systems/DGX/SD) and a GB200 (Systems/System_0/Settings)
    system_settings: str = ""
    first_boot: bool = False  # source: captured tree of an R750, DellAttributes: ServerBoot.1
