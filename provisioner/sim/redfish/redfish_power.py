"""Resets and boot sources of a simulated host and its BMCs: their effect, and the refusals."""

from __future__ import annotations

from provisioner.sim.hardware.machine import Machine
from provisioner.sim.redfish.redfish_answers import Answer, Json, answer_done, make_error
from provisioner.sim.redfish.redfish_tree import (
    ROOT,
    Request,
    Tree,
    get_allowed_value,
    make_patch_check,
)
from provisioner.sim.redfish.shape import Shape

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
