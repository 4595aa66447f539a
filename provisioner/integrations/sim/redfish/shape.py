"""The record of a vendor's simulated Redfish service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.integrations.sim.redfish.redfish_tree import ROOT

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


# ------------------------------------------------------------------------------
# The vendors' Redfish differences as data (docs/sources/redfish.md#vendors).


SUPERMICRO = Shape(
    "supermicro",
    "1.11.0",
    "1",
    "1",
    "1",
    "Supermicro",
    "SYS-821GE-TNHR",
    "ASPEED",
    root_oem={"Supermicro": {"DumpService": {"@odata.id": f"{ROOT}/Oem/Supermicro/DumpService"}}},
    manager_items=("BMC", "BIOS"),
    apply_times=("Immediate", "OnStartUpdateRequest"),
    handle="accepted",
    task_id="{n}",
    monitor=f"{ROOT}/TaskService/TaskMonitors/{{id}}",
    targets={
        f"{ROOT}/Managers/1": "BMC",
        f"{ROOT}/Systems/1/Bios": "BIOS",
        f"{INVENTORY}/HGX_0": "HGX_*",
    },
    media_target="UsbCd",
    lists_targets=True,  # assumed: the captured tree of a SYS-821GE-TNHR lists no HGX target
    self_reset=("BMC",),
    expand_levels=2,
    session_timeout_s=300,
    lockout_threshold=3,
    lockout_s=30,
    account_id="2",
    resets=(
        "On",
        "ForceOff",
        "GracefulShutdown",
        "GracefulRestart",
        "ForceRestart",
        "Nmi",
        "ForceOn",
        "PowerCycle",
    ),
    manager_resets=("GracefulRestart",),
    ac_cycle=(
        "#OemSystemExtensions.Reset",
        f"{ROOT}/Systems/1/Actions/Oem/OemSystemExtensions.Reset",
        "ACCycle",
    ),
    boot_targets=(
        "None",
        "Pxe",
        "Floppy",
        "Cd",
        "Usb",
        "Hdd",
        "BiosSetup",
        "UsbCd",
        "UefiBootNext",
        "UefiHttp",
    ),
)

AMI_DGX = Shape(
    "ami_dgx",
    "1.11.0",
    "DGX",
    "BMC",
    "DGX",
    "NVIDIA",
    "DGXH100",
    "410810600",
    vendor="AMI",
    product="AMI Redfish Server",
    root_oem={
        "Ami": {"@odata.type": "#AMIServiceRoot.v1_0_0.AMIServiceRoot", "RtpVersion": "13.03"}
    },
    manager_items=("HostBMC_0", "HostBIOS_0"),
    simple_target=f"{UPDATE}/Actions/SimpleUpdate",
    handle="messages",
    monitor=f"{ROOT}/TaskService/TaskMonitors/{{id}}",
    image_max_bytes=419_627_008,
    targets={f"{INVENTORY}/HGX_0": "HGX_*"},
    force_by_patch=True,
    commit_image=True,
    expand_levels=5,
    expand_drops=("Id", "Name"),
    session_timeout_s=30,
    lockout_threshold=5,
    lockout_s=30,
    password_min=13,
    account_id="2",
    chassis_resets=("On", "ForceOff", "PowerCycle"),
    if_match=True,
    media=("CD1", "HD1"),
    system_settings="SD",
    media_enable="AMIVirtualMedia.EnableRMedia",
    media_needs_login=True,
    console_types=("IPMI",),  # source: mockups, a DGX H100: Managers/BMC
)

BLUEFIELD = Shape(
    "nvidia_openbmc",
    "1.17.0",
    "Bluefield",
    "Bluefield_BMC",
    "Card1",
    "https://www.mellanox.com",
    "BlueField-3 SmartNIC Main Card",
    "OpenBmc",
    vendor="Nvidia",
    product="Nvidia-BMCMezz",
    manager_items=("BMC_Firmware", "DPU_UEFI"),
    push_uri=f"{UPDATE}/update-multipart",
    form_uri=f"{UPDATE}/update",
    simple_protocols=("SCP", "HTTP", "HTTPS"),
    apply_times=("Immediate",),
    image_max_bytes=209_715_200,
    targets={
        f"{ROOT}/Managers/Bluefield_BMC": "BMC_Firmware",
        f"{ROOT}/Chassis/Bluefield_ERoT": "Bluefield_FW_ERoT",
    },
    commit_image=True,
    bmcweb=True,
    expand_levels=6,
    session_timeout_s=1800,
    session_max=64,
    lockout_threshold=10,
    lockout_s=600,
    password_min=12,
    change_factory_password=True,
    resets=(
        "On",
        "ForceOff",
        "GracefulShutdown",
        "GracefulRestart",
        "ForceRestart",
        "Nmi",
        "PowerCycle",
    ),
    chassis_resets=("GracefulRestart",),
    boot_targets=("None", "Pxe", "UefiHttp", "UefiShell", "UefiTarget", "UefiBootNext"),
    media=(),
    console_types=("IPMI", "SSH"),  # source: mockups, a BlueField-3
)

# source: captured tree of a GB200 tray, BMC GB200Nvl-24.12-8 (NVIDIA/libredfish tests/mockups)
GB200 = Shape(
    "nvidia_gb200",
    "1.17.0",
    "System_0",
    "BMC_0",
    "BMC_0",
    "NVIDIA",
    "GB200 NVL",
    "OpenBmc",
    vendor="NVIDIA",
    product="GB200 NVL",
    manager_items=("FW_BMC_0", "UEFI"),
    push_uri=f"{UPDATE}/update-multipart",
    form_uri=f"{UPDATE}/update",
    apply_times=("Immediate",),
    image_max_bytes=209_715_200,
    targets={f"{ROOT}/Chassis/BMC_0": "FW_*"},
    commit_image=True,
    expand_levels=6,
    session_timeout_s=1800,
    session_max=64,
    change_factory_password=True,
    resets=(
        "ForceOff",
        "PowerCycle",
        "Nmi",
        "GracefulShutdown",
        "On",
        "ForceOn",
        "GracefulRestart",
        "ForceRestart",
    ),
    manager_resets=("GracefulRestart", "ForceRestart", "GracefulShutdown"),
    ac_cycle=(
        "#NvidiaChassis.AuxPowerReset",
        f"{ROOT}/Chassis/BMC_0/Actions/Oem/NvidiaChassis.AuxPowerReset",
        "AuxPowerCycle",
    ),
    ac_cycle_needs_off=True,
    bmcweb=True,
    boot_targets=("None", "Pxe", "Hdd", "Cd", "Diags", "BiosSetup", "Usb"),
    boot_targets_unlisted=("UefiHttp",),
    boot_mode=False,
    media=("USB1", "USB2"),
    media_target="",
    system_settings="Settings",
)

DELL = Shape(
    "dell",
    "1.18.0",
    "System.Embedded.1",
    "iDRAC.Embedded.1",
    "System.Embedded.1",
    "Dell Inc.",
    "PowerEdge XE9680",
    "16G Monolithic",
    vendor="Dell",
    product="Integrated Dell Remote Access Controller",
    root_oem={"Dell": {"@odata.type": "#DellServiceRoot.v1_0_0.DellServiceRoot", "IsBranded": 0}},
    manager_items=("Installed-25227-*", "Installed-159-*"),
    push_uri=f"{UPDATE}/MultipartUpload",
    needs_oem=True,
    form_uri=INVENTORY,
    simple_protocols=("HTTP", "NFS", "CIFS", "TFTP", "HTTPS"),
    apply_times=("Immediate", "OnReset", "OnStartUpdateRequest"),
    handle="dell",
    task_id="JID_{n:012d}",
    task_late_s=10.0,
    monitor=f"{ROOT}/TaskService/TaskMonitors/{{id}}",
    self_reset=("Installed-25227-*",),
    expand_levels=1,
    page_max=50,
    session_timeout_s=1800,
    session_max=8,
    account_id="2",
    account_slots=True,
    resets=(
        "On",
        "ForceOff",
        "ForceRestart",
        "GracefulRestart",
        "GracefulShutdown",
        "PushPowerButton",
        "Nmi",
        "PowerCycle",
    ),
    chassis_resets=("On", "ForceOff"),
    manager_resets=("GracefulRestart",),
    reset_info=False,
    ac_cycle=(
        "#DellOemChassis.ExtendedReset",
        f"{ROOT}/Chassis/System.Embedded.1/Actions/Oem/DellOemChassis.ExtendedReset",
        "PowerCycle",
    ),
    boot_targets=(
        "None",
        "Pxe",
        "Floppy",
        "Cd",
        "Hdd",
        "BiosSetup",
        "Utilities",
        "UefiTarget",
        "SDCard",
        "UefiHttp",
    ),
    media=("CD", "RemovableDisk"),
    media_target="",
    first_boot=True,
    console_types=(),  # source: mockups, a PowerEdge R750: it is off
)

HPE = Shape(
    "hpe",
    "1.6.0",
    "1",
    "1",
    "1",
    "HPE",
    "ProLiant DL385 Gen10 Plus v2",
    "iLO 5",
    vendor="HPE",
    root_oem={
        "Hpe": {
            "@odata.type": "#HpeiLOServiceExt.v2_4_0.HpeiLOServiceExt",
            "Manager": [{"ManagerFirmwareVersion": "2.72", "ManagerType": "iLO 5"}],
        }
    },
    manager_items=("1", "2"),
    push_uri="",
    form_uri="/cgi-bin/uploadFile",
    handle="oem_state",
    monitor=f"{ROOT}/TaskService/TaskMonitors/{{id}}",
    monitor_vanishes=True,
    self_reset=("1",),
    session_timeout_s=30,
    resets=(
        "On",
        "ForceOff",
        "GracefulShutdown",
        "ForceRestart",
        "Nmi",
        "PushPowerButton",
        "GracefulRestart",
    ),
    reset_info=False,
    boot_targets=(
        "None",
        "Cd",
        "Hdd",
        "Usb",
        "SDCard",
        "Utilities",
        "Diags",
        "BiosSetup",
        "Pxe",
        "UefiShell",
        "UefiHttp",
        "UefiTarget",
    ),
    media=("1", "2"),
)

LENOVO = Shape(
    "lenovo",
    "1.15.0",
    "1",
    "1",
    "1",
    "Lenovo",
    "ThinkSystem SR670 V2",
    "Lenovo XClarity Controller",
    vendor="Lenovo",
    manager_items=("BMC-Primary", "UEFI"),
    push_uri="/mfwupdate",
    claims=True,
    takes_targets=False,
    file_name_blanks=False,
    form_uri="/fwupdate",
    simple_protocols=("TFTP", "SFTP", "HTTPS", "HTTP"),
    image_max_bytes=250_000_000,
    monitor=f"{ROOT}/TaskService/TaskMonitors/{{id}}",
    expand_levels=2,
    session_timeout_s=300,
    account_id="1",
    resets=(
        "On",
        "Nmi",
        "GracefulShutdown",
        "GracefulRestart",
        "ForceOn",
        "ForceOff",
        "ForceRestart",
    ),
    ac_cycle=(
        "#LenovoComputerSystem.SystemReset",
        f"{ROOT}/Systems/1/Actions/Oem/LenovoComputerSystem.SystemReset",
        "ACPowerCycle",
    ),
    ac_cycle_needs_off=True,
    boot_targets=("None", "Pxe", "Cd", "Usb", "Hdd", "BiosSetup", "Diags", "UefiTarget"),
    media=("EXT1", "EXT2"),
    media_by_patch=True,
)

SHAPES = {s.name: s for s in (SUPERMICRO, AMI_DGX, BLUEFIELD, GB200, DELL, HPE, LENOVO)}
