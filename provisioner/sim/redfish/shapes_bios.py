"""BIOS settings and Secure Boot of a simulated host; changes wait for the next boot."""

from __future__ import annotations

from provisioner.sim.hardware.bios import Bios, Value
from provisioner.sim.redfish.bios_tables import TABLES, Attribute, BiosTable
from provisioner.sim.redfish.boot_databases import mount_boot_databases
from provisioner.sim.redfish.redfish_answers import Answer, Json, answer_done, make_error
from provisioner.sim.redfish.redfish_tree import ROOT, Change, Request, Tree, make_patch_check
from provisioner.sim.redfish.setup_passwords import mount_setup_password
from provisioner.sim.redfish.shape import Shape

_SHOWN: Json = {"@odata.type": "#Bios.v1_2_0.Bios", "Id": "BIOS", "Name": "BIOS Configuration"}

_RESET_INFO: Json = {
    "@odata.type": "#ActionInfo.v1_1_2.ActionInfo",
    "Id": "ResetBiosAction",
    "Name": "ResetBiosAction",
    "Parameters": [
        {"Name": "ResetType", "Required": True, "DataType": "String", "AllowableValues": ["Reset"]}
    ],
}


def mount_bios(tree: Tree, system: str, shape: Shape, bios: Bios) -> None:
    """Put Bios, its settings object and its registry, with the vendor's names, into the tree."""
    table = TABLES.get(shape.name, TABLES["supermicro"])
    path = f"{system}/Bios"
    settings = f"{path}/{table.settings}"
    _prepare(bios, table)
    registry = {"AttributeRegistry": table.registry} if table.registry else {}
    times = {"SupportedApplyTimes": list(table.apply_times)} if table.apply_times else {}

    info = f"{path}/ResetBiosActionInfo"
    # source: captured tree of a DGX H100: its action has a required parameter
    typed = shape.name == "ami_dgx"
    # the password of the set-up is that of a PowerEdge: no source says more of others than a name
    change_password = mount_setup_password(tree, system, bios) if table.makes_jobs else {}

    def reset(request: Request) -> Answer:
        kind = (request.json or {}).get("ResetType")
        if typed and kind != "Reset":
            return make_error(400, "ActionParameterMissing", "ResetBios", "ResetType")
        # source: Dell, SetBiosDefaultSettingsREDFISH.py 3.0: a flag, applied by the next reboot
        bios.reset_due = True
        return answer_done()

    def read_settings() -> Json:
        kept = {} if table.shows_only_pending else bios.running
        return {**_SHOWN, **registry, "Attributes": {**kept, **bios.pending}}

    tree.add_live(
        path,
        lambda: {
            **_SHOWN,
            **registry,
            "Attributes": dict(bios.running)
            | (bios.setup.show() if change_password else {})
            | (bios.pending if bios.shows_waiting else {}),
            "Actions": {
                **change_password,
                "#Bios.ResetBios": {
                    "target": f"{path}/Actions/Bios.ResetBios",
                    **({"@Redfish.ActionInfo": info} if typed else {}),
                },
            },
            "@Redfish.Settings": {
                "@odata.type": "#Settings.v1_3_0.Settings",
                "SettingsObject": {"@odata.id": settings},
                **times,
            },
        },
    )
    tree.add_live(settings, read_settings, patch=_make_patch(bios, table))
    tree.add_action(f"{path}/Actions/Bios.ResetBios", reset)
    if typed:
        tree.add_fixed(info, _RESET_INFO)
    if table.registry_path and table.registry_path != "-":
        tree.add_fixed(f"{path}/{table.registry_path}", make_registry(table))


_KEY_RESETS = ("ResetAllKeysToDefault", "DeletePK", "DeleteAllKeys")
_KEYS_INFO: Json = {
    "@odata.type": "#ActionInfo.v1_1_2.ActionInfo",
    "Id": "ResetKeysActionInfo",
    "Name": "ResetKeysActionInfo",
    "Parameters": [
        {
            "Name": "ResetKeysType",
            "Required": True,
            "DataType": "String",
            "AllowableValues": list(_KEY_RESETS),
        }
    ],
}


def mount_secure_boot(tree: Tree, system: str, bios: Bios) -> None:
    """Put Secure Boot into the tree: switched by `SecureBootEnable`, from the next boot on.

    Its keys are reset as a captured DGX H100 lists it; that this takes a boot is our assumption.
    """
    info = f"{system}/SecureBoot/ResetKeysActionInfo"
    target = f"{system}/SecureBoot/Actions/SecureBoot.ResetKeys"

    def reset_keys(request: Request) -> Answer:
        kind = (request.json or {}).get("ResetKeysType")
        if kind not in _KEY_RESETS:
            return make_error(400, "ActionParameterMissing", "ResetKeys", "ResetKeysType")
        bios.keys_reset_due = kind == _KEY_RESETS[0]
        return answer_done()

    def patch(body: Json, _: Request) -> Answer | None:
        if (fault := make_patch_check("SecureBootEnable")(body)) is not None:
            return fault
        enable = body.get("SecureBootEnable", bios.secure_boot)
        if not isinstance(enable, bool):
            return make_error(400, "PropertyValueTypeError", str(enable), "SecureBootEnable")
        bios.secure_boot = enable
        return None

    tree.add_live(
        f"{system}/SecureBoot",
        lambda: {
            "@odata.type": "#SecureBoot.v1_1_0.SecureBoot",
            "Id": "SecureBoot",
            "Name": "Secure Boot",
            "SecureBootEnable": bios.secure_boot,
            "SecureBootCurrentBoot": "Enabled" if bios.secure_boot_running else "Disabled",
            "SecureBootMode": "UserMode",
            "SecureBootDatabases": {"@odata.id": f"{system}/SecureBoot/SecureBootDatabases"},
            "Actions": {"#SecureBoot.ResetKeys": {"target": target, "@Redfish.ActionInfo": info}},
        },
        patch=patch,
    )
    tree.add_fixed(info, _KEYS_INFO)
    tree.add_action(target, reset_keys)
    mount_boot_databases(tree, f"{system}/SecureBoot/SecureBootDatabases", bios)


def find_listed_registry(shape: Shape) -> tuple[str, Json] | None:
    """Return the name and the body of the registry that is listed under Registries."""
    table = TABLES.get(shape.name)
    if table is None or table.registry_path or not table.registry:
        return None
    # source: captured tree of a SYS-821GE-TNHR: the list has the name without its version
    name = table.registry.partition(".")[0] if shape.name == "supermicro" else table.registry
    return name, make_registry(table)


def mount_bios_registry(tree: Tree, name: str, body: Json) -> None:
    """Put the registry and the file that leads to it into the tree."""
    path = f"{ROOT}/Registries/{name}"
    file: Json = {
        "@odata.type": "#MessageRegistryFile.v1_1_3.MessageRegistryFile",
        "Id": name,
        "Name": "BIOS Attribute Registry File",
        "Registry": name,
        "Languages": ["en"],
        "Location": [{"Language": "en", "Uri": f"{path}/registry.json"}],
    }
    tree.add_fixed(path, file)
    tree.add_fixed(f"{path}/registry.json", body)


def make_registry(table: BiosTable) -> Json:
    """Return the table as an attribute registry."""
    locks = [a for a in table.attributes if a.locked is not None and table.refuses_locked]
    maps = [_make_map(a.name, "ReadOnly", a.locked, "NEQ", value=True) for a in locks if a.locked]
    maps += [
        _make_map(name, "CurrentValue", (other, str(choice)), "EQU", value=value)
        for (other, choice), written in table.writes.items()
        for name, value in written.items()
    ]
    return {
        "@odata.type": "#AttributeRegistry.v1_3_6.AttributeRegistry",
        "Id": table.registry,
        "Name": "BIOS Attribute Registry",
        "Language": "en",
        "RegistryVersion": "1.0.0",
        "RegistryEntries": {
            "Attributes": [_describe(a) for a in table.attributes],
            "Dependencies": maps,
        },
    }


def _describe(attribute: Attribute) -> Json:
    kind = "Enumeration" if attribute.values else "Integer"
    body: Json = {
        "AttributeName": attribute.name,
        "Type": kind,
        "ReadOnly": False,
        "Hidden": False,
        "ResetRequired": True,
    }
    if not attribute.values:
        return {**body, "LowerBound": attribute.bounds[0], "UpperBound": attribute.bounds[1]}
    named = [
        {"ValueName": str(n) if attribute.numbered else v, "ValueDisplayName": v}
        for n, v in enumerate(attribute.values)
    ]
    return {**body, "Value": named}


def _make_map(
    name: str, affects: str, term: tuple[str, str], condition: str, *, value: object
) -> Json:
    return {
        "DependencyFor": name,
        "Type": "Map",
        "Dependency": {
            "MapFrom": [
                {
                    "MapFromAttribute": term[0],
                    "MapFromProperty": "CurrentValue",
                    "MapFromCondition": condition,
                    "MapFromValue": term[1],
                }
            ],
            "MapToAttribute": name,
            "MapToProperty": affects,
            "MapToValue": value,
        },
    }


def _prepare(bios: Bios, table: BiosTable) -> None:
    locks = {a.name: a.locked for a in table.attributes}

    def accepts(name: str, running: dict[str, Value]) -> bool:
        lock = locks.get(name)
        return lock is None or running.get(lock[0]) == lock[1]

    bios.defaults = {a.name: a.default for a in table.attributes}
    bios.running = bios.defaults | bios.running
    bios.accepts = accepts
    bios.writes = table.writes
    bios.needs_job = table.makes_jobs


def _make_patch(bios: Bios, table: BiosTable) -> Change:
    by_name = {a.name: a for a in table.attributes}

    def patch(body: Json, _: Request) -> Answer | None:
        if (fault := make_patch_check("Attributes")(body)) is not None:
            return fault
        attributes = body.get("Attributes", {})
        if not isinstance(attributes, dict):
            return make_error(400, "PropertyValueTypeError", str(attributes), "Attributes")
        if bios.job:
            # source: libredfish dell.rs; quads 726: a second change is refused until the job ended
            return make_error(400, "ResourceInUse", resolution="A job is already committed.")
        for name, value in attributes.items():
            if (wrong := _check_value(by_name.get(name), name, value)) is not None:
                return wrong
            if table.refuses_locked and not bios.accepts(name, bios.running):
                return make_error(400, "PropertyNotWritable", name, prop=f"Attributes/{name}")
        bios.pending.update(attributes)
        # source: terraform-provider-redfish 231: without an apply time no job is made
        when = body.get("@Redfish.SettingsApplyTime", {})
        bios.job = (
            table.makes_jobs and isinstance(when, dict) and when.get("ApplyTime") == "OnReset"
        )
        return None

    return patch


def _check_value(attribute: Attribute | None, name: str, value: object) -> Answer | None:
    where = f"Attributes/{name}"
    if attribute is None:
        return make_error(400, "PropertyUnknown", name, prop=where)
    if attribute.values:
        if value not in attribute.values:
            return make_error(400, "PropertyValueNotInList", str(value), name, prop=where)
    elif not isinstance(value, int) or not attribute.bounds[0] <= value <= attribute.bounds[1]:
        return make_error(400, "PropertyValueFormatError", str(value), name, prop=where)
    return None
