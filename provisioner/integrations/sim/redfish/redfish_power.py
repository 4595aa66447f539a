"""Resets and boot sources of a simulated host and its BMCs: their effect, and the refusals."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

from provisioner.integrations.sim.hardware.clock import make_certificate
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.hardware.parts import Bios
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.redfish.redfish_tree import (
    ROOT,
    Answer,
    Json,
    Request,
    Resource,
    Tree,
    answer_done,
    get_allowed_value,
    make_error,
    make_patch_check,
)
from provisioner.integrations.sim.redfish.shape import Shape
from provisioner.integrations.sim.redfish.tasks import Task, TaskTable, format_time

# source: captured trees of a DGX H100, Systems/DGX/SD, and of a GB200, Systems/System_0/Settings
_LISTED = {"SD": ("Boot", "AssetTag"), "Settings": ("Boot",)}
RESET_DELAY_S = 1.0  # a BMC answers before it restarts


class Power:
    """Actions on the host's power, behind its BMC."""

    def __init__(self, machine: Machine, shape: Shape, bmc: str) -> None:
        self.machine = machine
        self.shape = shape
        self.bmc = bmc

    def system_reset(self, request: Request) -> Answer:
        """ComputerSystem.Reset and Chassis.Reset."""
        allowed = self.shape.resets + self.shape.chassis_resets
        reset_type = get_allowed_value(request, "ComputerSystem.Reset", "ResetType", allowed)
        if isinstance(reset_type, Answer):
            return reset_type
        machine = self.machine
        now = request.now
        host = machine.host
        if "ignores_reset" in machine.bmcs[self.bmc].troubles:  # measured on a DGX
            machine.log_event(now, "power_ignored", "host", reset_type)
            return answer_done()
        off = host.power in ("Off", "PoweringOff")
        if reset_type in ("On", "ForceOn"):
            if not off:
                return make_error(400, "ResourceInUse", resolution="The host is on already.")
            machine.power_on(now)
        elif reset_type in ("ForceOff", "GracefulShutdown"):
            if not off:
                machine.power_off(now, graceful=reset_type == "GracefulShutdown")
        elif reset_type == "PushPowerButton":
            if off:
                machine.power_on(now)
            else:
                machine.power_off(now, graceful=True)
        elif reset_type == "PowerCycle":
            machine.power_cycle(now)
        elif reset_type in ("ForceRestart", "GracefulRestart"):
            if off:
                machine.power_on(now)
            else:
                machine.restart_host(now)
        return answer_done()

    def ac_cycle(self, request: Request) -> Answer:
        """The vendor's action that cuts standby power."""
        name, _, kind = self.shape.ac_cycle
        reset_type = get_allowed_value(request, name.lstrip("#"), "ResetType", (kind,))
        if isinstance(reset_type, Answer):
            return reset_type
        if self.shape.ac_cycle_needs_off and self.machine.host.power != "Off":
            return make_error(400, "ChassisPowerStateOffRequired", self.shape.chassis)
        machine = self.machine
        machine.schedule.plan_act(request.now + RESET_DELAY_S, machine.ac_cycle)
        return answer_done()

    def manager_reset(self, request: Request, manager: str = "") -> Answer:
        """Manager.Reset: the BMC answers, then it is gone."""
        reset_type = get_allowed_value(
            request, "Manager.Reset", "ResetType", self.shape.manager_resets
        )
        if isinstance(reset_type, Answer):
            return reset_type
        self.machine.schedule.plan_act(
            request.now + RESET_DELAY_S,
            lambda at: self.machine.bmc_reset(self.bmc, at, manager),
        )
        return answer_done()

    def get_boot(self) -> Json:
        """The Boot property of a system."""
        more = {"BootNext": None} if "UefiBootNext" in self.shape.boot_targets else {}
        boot = {
            **more,
            **self.machine.host.override,
            "BootSourceOverrideTarget@Redfish.AllowableValues": list(self.shape.boot_targets),
            "BootSourceOverrideEnabled@Redfish.AllowableValues": ["Once", "Continuous", "Disabled"],
            "BootSourceOverrideMode@Redfish.AllowableValues": ["Legacy", "UEFI"],
        }
        if self.shape.boot_mode:
            return boot
        return {name: value for name, value in boot.items() if "OverrideMode" not in name}

    def patch_system(self, body: Json, _: Request) -> Answer | None:
        """PATCH of a ComputerSystem: boot override, indicator, asset tag."""
        read_only = ("SerialNumber", "PowerState", "Model", "Manufacturer", "UUID", "SystemType")
        fault = make_patch_check(
            "Boot", "IndicatorLED", "LocationIndicatorActive", "AssetTag", read_only=read_only
        )(body)
        if fault:
            return fault
        led = body.get("IndicatorLED", self.machine.host.indicator)
        if led not in ("Off", "Lit", "Blinking"):
            return make_error(400, "PropertyValueNotInList", str(led), "IndicatorLED")
        boot = body.get("Boot", {})
        if not isinstance(boot, dict):
            return make_error(400, "PropertyValueTypeError", str(boot), "Boot")
        allowed = {
            "BootSourceOverrideTarget": self.shape.boot_targets + self.shape.boot_targets_unlisted,
            "BootSourceOverrideEnabled": ("Once", "Continuous", "Disabled"),
            "BootSourceOverrideMode": ("Legacy", "UEFI"),
        }
        for name, value in boot.items():
            if name not in allowed:
                return make_error(400, "PropertyUnknown", name, prop=f"Boot/{name}")
            if value not in allowed[name]:
                return make_error(
                    400, "PropertyValueNotInList", str(value), name, prop=f"Boot/{name}"
                )
        self.machine.host.indicator = led
        if "override_ignored" not in self.machine.bmcs[self.bmc].troubles:
            self.machine.host.override.update(boot)
        return None


def mount_system_settings(tree: Tree, power: Power, system: str, name: str) -> Json:
    """Put the object into the tree; return the annotation of the system that names it.

    It takes the properties that it lists, and refuses any other by name. The URI of a boot by HTTP
    is always taken, and shown where the boot source UefiHttp is listed (source: NVIDIA/bmcweb
    7f3a16ae, systems.hpp: handleComputerSystemSettingsPatch, getUefiPropertySettingsHost).
    """
    path = f"{system}/{name}"
    listed_names = _LISTED[name]
    host = power.machine.host

    def read() -> Json:
        return {
            "@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem",
            "Id": power.shape.system,
            "Name": "System",
            "SystemType": "Physical",
            **({"AssetTag": None} if "AssetTag" in listed_names else {}),
            "Boot": show_boot(),
        }

    def show_boot() -> Json:
        if "UefiHttp" not in power.shape.boot_targets:
            return power.get_boot()
        return {
            **power.get_boot(),
            "HttpBootUri": host.boot_uri,
            "BootSourceOverrideMode@Redfish.AllowableValues": ["UEFI"],
            "UefiTargetBootSourceOverride": None,
        }

    def patch(body: Json, request: Request) -> Answer | None:
        for listed in body:
            if "@" not in listed and listed not in listed_names:
                return make_error(400, "PropertyUnknown", listed, prop=listed)
        boot = body.get("Boot", {})
        if not isinstance(boot, dict):
            return make_error(400, "PropertyValueTypeError", str(boot), "Boot")
        uri = boot.get("HttpBootUri")
        if not isinstance(uri, str | None):
            return make_error(400, "PropertyValueTypeError", str(uri), "HttpBootUri")
        if boot.get("BootSourceOverrideMode", "UEFI") != "UEFI":
            mode = str(boot["BootSourceOverrideMode"])
            return make_error(400, "PropertyValueNotInList", mode, "BootSourceOverrideMode")
        rest = {name: value for name, value in boot.items() if name != "HttpBootUri"}
        refusal = power.patch_system({"Boot": rest}, request)
        if refusal is None and "HttpBootUri" in boot:
            host.boot_uri = uri
        return refusal

    tree.add_live(path, read, patch=patch)
    return {
        "@Redfish.Settings": {
            "@odata.type": "#Settings.v1_2_2.Settings",
            "SettingsObject": {"@odata.id": path},
        }
    }


def reset_action(
    tree: Tree, path: str, action: str, allowed: tuple[str, ...], *, info: bool
) -> Json:
    """The `Actions` entry of a reset, with its allowable values inline or in an ActionInfo."""
    target = f"{path}/Actions/{action}"
    if not info:
        return {
            f"#{action}": {"target": target, "ResetType@Redfish.AllowableValues": list(allowed)}
        }
    tree.add_fixed(
        f"{path}/ResetActionInfo",
        {
            "@odata.type": "#ActionInfo.v1_1_2.ActionInfo",
            "Id": "ResetActionInfo",
            "Name": "Reset Action Info",
            "Parameters": [
                {
                    "Name": "ResetType",
                    "Required": True,
                    "DataType": "String",
                    "AllowableValues": list(allowed),
                }
            ],
        },
    )
    info_path = f"{path}/ResetActionInfo"
    return {f"#{action}": {"target": target, "@Redfish.ActionInfo": info_path}}


def make_link(*parts: str) -> Json:
    """A reference below the service root."""
    return {"@odata.id": "/".join((ROOT, *parts))}


# ------------------------------------------------------------------------------
# The factory defaults of a simulated BMC itself: Manager.ResetToDefaults.
#
# source: the trees of a PowerEdge R750, a DGX H100 and a BlueField-3 (mockups) for the types and
# where they are listed; DMTF Manager, ResetToDefaultsType, for what each one keeps; bmcweb for the
# restart that carries it out. No source says what becomes of the certificate: a new one of its own,
# or with the trouble `certificate_stays` the one that it had.


TYPES = {  # of the recorded trees
    "dell": ("ResetAll", "PreserveNetworkAndUsers"),
    "ami_dgx": ("ResetAll", "PreserveNetworkAndUsers", "PreserveNetwork"),
    "nvidia_openbmc": ("ResetAll",),
}
_IN_ACTION_INFO = ("ami_dgx",)
_KEEPS_USERS = "PreserveNetworkAndUsers"
_NAME = "Manager.ResetToDefaults"


@dataclass
class FactoryState:
    """The state that a BMC has again after its reset, as it was when the machine was built."""

    service: RedfishService

    def __post_init__(self) -> None:
        bmc = self.service.bmc
        self.accounts = {n: copy(a) for n, a in self.service.accounts.accounts.items()}
        self.protocols = dict(bmc.protocols)
        self.ntp_enabled = bmc.ntp_enabled
        self.ntp_servers = bmc.ntp_servers

    def restore(self, kind: str, now: float) -> None:
        """Carry the reset out, and restart."""
        bmc = self.service.bmc
        machine = self.service.machine
        if "defaults_dropped" not in bmc.troubles:
            machine.log_event(now, "bmc_defaults", bmc.name, kind)
            if kind != _KEEPS_USERS:
                accounts = self.service.accounts.accounts
                accounts.clear()
                accounts |= {name: copy(account) for name, account in self.accounts.items()}
            bmc.protocols = dict(self.protocols)
            bmc.ntp_enabled = self.ntp_enabled
            bmc.ntp_servers = self.ntp_servers
            if self.service.events is not None:
                self.service.events.subscriptions.clear()
            if "certificate_stays" not in bmc.troubles:
                bmc.certificate, key = make_certificate(bmc.name, "127.0.0.1")
                for present in bmc.on_certificate:
                    present(bmc.certificate, key)
        machine.bmc_reset(bmc.name, now)
        if "lost_after_defaults" in bmc.troubles:
            bmc.gone_until = float("inf")


def mount_defaults(
    service: RedfishService, manager: str, types: tuple[str, ...] | None = None
) -> Json:
    """Return the entry of `Actions`; {} for a vendor whose tree shows none."""
    offered = TYPES.get(service.shape.name, ()) if types is None else types
    if not offered:
        return {}
    state = FactoryState(service)
    target = f"{manager}/Actions/{_NAME}"

    def reset(request: Request) -> Answer:
        kind = get_allowed_value(request, _NAME, "ResetType", offered)
        if isinstance(kind, Answer):
            return kind
        due = request.now + RESET_DELAY_S
        service.machine.schedule.plan_act(due, lambda at: state.restore(kind, at))
        return answer_done()

    service.tree.add_action(target, reset)
    if service.shape.name not in _IN_ACTION_INFO:
        listed: Json = {"target": target, "ResetType@Redfish.AllowableValues": list(offered)}
        return {f"#{_NAME}": listed}
    info = f"{manager}/ResetToDefaultsActionInfo"
    parameter = {
        "Name": "ResetType",
        "Required": True,
        "DataType": "String",
        "AllowableValues": list(offered),
    }
    service.tree.add_fixed(
        info,
        {
            "@odata.type": "#ActionInfo.v1_1_2.ActionInfo",
            "Id": "ResetToDefaultAction",
            "Name": "ResetToDefaultAction",
            "Parameters": [parameter],
        },
    )
    return {f"#{_NAME}": {"target": target, "@Redfish.ActionInfo": info}}


# ------------------------------------------------------------------------------
# The set-up password of a simulated PowerEdge: a request, a job, and the boot that carries it out.
#
# source: DMTF Bios 1.2 (ChangePassword: PasswordName, OldPassword, NewPassword); Dell's
# BiosChangePasswordREDFISH: the password's name is SetupPassword, and a BIOS configuration job is
# made afterwards; captured tree of a PowerEdge R750: its registry states that SHA256SetupPassword
# is the SHA-256 of the password, and SHA256SetupPasswordSalt is appended before. That the old
# password is compared by the BIOS at the boot, and not by the iDRAC, is our assumption: it is the
# harder case, and so it is on Lenovo's TSM (its guide, "Change BIOS password").


NAME = "SetupPassword"
LENGTH_MAX = 32  # source: captured tree of a PowerEdge R750, its registry


def mount_setup_password(tree: Tree, system: str, bios: Bios) -> Json:
    """Put the action into the tree; return the entry of Actions."""
    target = f"{system}/Bios/Actions/Bios.ChangePassword"

    def change(request: Request) -> Answer:
        body = request.json or {}
        given = [body.get(name) for name in ("PasswordName", "OldPassword", "NewPassword")]
        for name, value in zip(("PasswordName", "OldPassword", "NewPassword"), given, strict=True):
            if not isinstance(value, str):
                return make_error(400, "ActionParameterMissing", "ChangePassword", name)
        kind, old, new = map(str, given)
        if kind != NAME or not 0 < len(new) <= LENGTH_MAX:
            # source: dell/iDRAC-Redfish-Scripting 308, also for an empty new password
            return make_error(400, "PropertyValueFormatError", "Invalid BIOS Password.", NAME)
        if bios.job:
            return make_error(400, "ResourceInUse", resolution="A job is already committed.")
        bios.setup.waiting = (old, new)
        return answer_done()

    tree.add_action(target, change)
    return {"#Bios.ChangePassword": {"target": target}}


def mount_jobs(
    tree: Tree, manager: str, settings: str, bios: Bios, tasks: TaskTable, now: Callable[[], float]
) -> Json:
    """Put the list of jobs into the tree, which takes those of the BIOS; return the link to it.
    `settings`: the object whose values wait.

    source: captured tree of a PowerEdge R750, Links.Oem.Dell.Jobs of its manager
    """
    path = f"{manager}/Oem/Dell/Jobs"

    def begin(request: Request) -> Answer:
        if (request.json or {}).get("TargetSettingsURI") != settings:
            return make_error(400, "ActionParameterMissing", "Jobs", "TargetSettingsURI")
        if bios.job:
            return make_error(400, "ResourceInUse", resolution="A job is already committed.")
        if not bios.pending and bios.setup.waiting is None:
            return make_error(400, "GeneralError", resolution="No pending data is present.")
        bios.job = True
        task = tasks.add_task("Configure: BIOS.Setup.1-1", request.now)

        task.add_message("IDRAC.2.8.JCP001", "Task successfully scheduled.")
        task.state = "Starting"
        task.oem = {"Dell": {"JobState": "Scheduled", "Message": "Task successfully scheduled."}}

        def end(state: str) -> None:
            task.oem = {}
            task.end_with(state, now())

        bios.job_watchers.append(end)
        return Answer(200, {"Location": f"{path}/{task.id}"}, b"")

    def resolve(name: str) -> Resource | None:
        task = tasks.jobs.get(name)
        return None if task is None else Resource(lambda: _show_job(path, task))

    tree.add_collection(
        path, "DellJobCollection", lambda: list(tasks.jobs), resolve=resolve, post=begin
    )
    return {"Jobs": {"@odata.id": path}}


def _show_job(path: str, task: Task) -> Json:
    """Return a job (source: captured tree of a PowerEdge R750, Oem/Dell/Jobs)."""
    said = task.messages[-1] if task.messages else {}
    state = str(task.oem.get("Dell", {}).get("JobState", task.state))
    return {
        "@odata.id": f"{path}/{task.id}",
        "@odata.type": "#DellJob.v1_2_0.DellJob",
        "ActualRunningStartTime": None,
        "ActualRunningStopTime": None,
        "CompletionTime": None if task.ended is None else format_time(task.ended),
        "Description": "Job Instance",
        "EndTime": "TIME_NA",
        "Id": task.id,
        "JobState": state,
        "JobType": "BIOSConfiguration" if "BIOS.Setup" in task.name else "FirmwareUpdate",
        "Message": said.get("Message", ""),
        "MessageArgs": [],
        "MessageId": said.get("MessageId", ""),
        "Name": task.name,
        "PercentComplete": task.percent,
        "StartTime": format_time(task.started),
        "TargetSettingsURI": None,
    }
