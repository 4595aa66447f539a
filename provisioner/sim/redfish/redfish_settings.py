"""The settings object of a system, where a vendor's boot override waits for the next start."""

from __future__ import annotations

from provisioner.sim.redfish.redfish_answers import Answer, Json, make_error
from provisioner.sim.redfish.redfish_power import Power
from provisioner.sim.redfish.redfish_tree import Request, Tree

# source: captured tree of a DGX H100, Systems/DGX/SD
_LISTED = ("Boot", "AssetTag")


def mount_system_settings(tree: Tree, power: Power, system: str, name: str) -> Json:
    """Put the object into the tree; return the annotation of the system that names it.

    It takes the properties that it lists, and refuses any other by name.
    """
    path = f"{system}/{name}"
    boot_uri: dict[str, str | None] = {"HttpBootUri": None}

    def read() -> Json:
        return {
            "@odata.type": "#ComputerSystem.v1_17_0.ComputerSystem",
            "Id": power.shape.system,
            "Name": "System",
            "SystemType": "Physical",
            "AssetTag": None,
            "Boot": {
                **power.get_boot(),
                **boot_uri,
                "BootSourceOverrideMode@Redfish.AllowableValues": ["UEFI"],
                "UefiTargetBootSourceOverride": None,
            },
        }

    def patch(body: Json, request: Request) -> Answer | None:
        for listed in body:
            if "@" not in listed and listed not in _LISTED:
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
            boot_uri["HttpBootUri"] = uri
        return refusal

    tree.add_live(path, read, patch=patch)
    return {
        "@Redfish.Settings": {
            "@odata.type": "#Settings.v1_2_2.Settings",
            "SettingsObject": {"@odata.id": path},
        }
    }
