"""BIOS settings of a simulated host; changes wait for the next boot."""

from __future__ import annotations

from provisioner.sim.redfish.redfish_answers import Answer, Json, answer_done, make_error
from provisioner.sim.redfish.redfish_tree import Request, Tree, make_patch_check
from provisioner.sim.redfish.shapes import Shape

SETTINGS = {"ami_dgx": "SD", "hpe": "settings", "lenovo": "Pending"}
DEFAULTS: Json = {"BootMode": "UEFI", "SriovEnable": "Enabled", "AcpiHpet": "Disabled"}


def mount_bios(tree: Tree, system: str, shape: Shape) -> None:
    """Put Bios and its settings object, with the vendor's names, into the tree."""
    path = f"{system}/Bios"
    settings = f"{path}/{SETTINGS.get(shape.name, 'Settings')}"
    pending: Json = {}

    def change_settings(body: Json, _: Request) -> Answer | None:
        fault = make_patch_check("Attributes")(body)
        attributes = body.get("Attributes", {})
        if fault is None and not isinstance(attributes, dict):
            fault = make_error(400, "PropertyValueTypeError", str(attributes), "Attributes")
        if fault is None:
            unknown = [name for name in attributes if name not in DEFAULTS]
            if unknown:
                return make_error(
                    400, "PropertyUnknown", unknown[0], prop=f"Attributes/{unknown[0]}"
                )
            pending.update(attributes)
        return fault

    def reset(_: Request) -> Answer:
        pending.clear()
        return answer_done()

    shown: Json = {"@odata.type": "#Bios.v1_2_0.Bios", "Id": "BIOS", "Name": "BIOS Configuration"}
    tree.add_live(
        path,
        lambda: {
            **shown,
            "Attributes": DEFAULTS,
            "Actions": {"#Bios.ResetBios": {"target": f"{path}/Actions/Bios.ResetBios"}},
            "@Redfish.Settings": {
                "@odata.type": "#Settings.v1_3_0.Settings",
                "SettingsObject": {"@odata.id": settings},
            },
        },
    )
    tree.add_live(
        settings, lambda: {**shown, "Attributes": {**DEFAULTS, **pending}}, patch=change_settings
    )
    tree.add_action(f"{path}/Actions/Bios.ResetBios", reset)
