"""BIOS settings and Secure Boot of a simulated host; changes wait for the next boot."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial

from provisioner.integrations.sim.hardware.device_authority import issue
from provisioner.integrations.sim.hardware.parts import Bios
from provisioner.integrations.sim.hardware.parts import Value as BiosValue
from provisioner.integrations.sim.redfish.redfish_power import mount_setup_password
from provisioner.integrations.sim.redfish.redfish_tree import (
    ROOT,
    Answer,
    Change,
    Json,
    Request,
    Resource,
    Tree,
    answer_done,
    make_error,
    make_patch_check,
)
from provisioner.integrations.sim.redfish.shape import Shape

# ------------------------------------------------------------------------------
# BIOS attributes of the simulated hosts, a few of each vendor, with their registries' words.
#
# Names, types, values, locks and the attributes that a profile writes are read from the registries
# of captured trees: PowerEdge R750, ProLiant DL385 Gen10 Plus v2, ThinkSystem SR670 V2,
# SYS-821GE-TNHR; of a DGX H100 only the shown values are in hand, and it serves no registry here.


Value = str | int | bool
_ENABLED = ("Enabled", "Disabled")
_ENABLE = ("Enable", "Disable")


@dataclass(frozen=True)
class Attribute:
    """One attribute; `values`: of an enumeration. `locked`: read-only unless another has a value.

    `numbered`: the registry names the values by numbers, and what is shown are their labels.
    """

    name: str
    default: Value
    values: tuple[str, ...] = ()
    bounds: tuple[int, int] = (0, 0)
    locked: tuple[str, str] | None = None
    numbered: bool = False


@dataclass(frozen=True)
class BiosTable:
    """The attributes of one vendor. `settings`: name of the object of pending values."""

    settings: str
    attributes: tuple[Attribute, ...]
    registry: str = ""  # its name; "": Bios names none
    registry_path: str = ""  # below Bios; "": listed under Registries; "-": not served
    apply_times: tuple[str, ...] = ()
    shows_only_pending: bool = False  # the object lists nothing that does not wait
    makes_jobs: bool = False
    refuses_locked: bool = True  # False: accepted, shown as pending, and dropped at the boot
    writes: dict[tuple[str, Value], dict[str, Value]] = field(default_factory=dict)


_CUSTOM = ("SysProfile", "Custom")
_MODE = ("OperatingModes_ChooseOperatingMode", "CustomMode")
_HPC = "HighPerformanceCompute(HPC)"
TABLES: dict[str, BiosTable] = {
    "dell": BiosTable(
        settings="Settings",
        registry="BiosAttributeRegistry.v1_0_3",
        registry_path="BiosRegistry",
        apply_times=("OnReset", "AtMaintenanceWindowStart", "InMaintenanceWindowOnReset"),
        shows_only_pending=True,
        makes_jobs=True,
        attributes=(
            Attribute("BootMode", "Uefi", ("Bios", "Uefi")),
            Attribute("ProcVirtualization", "Disabled", _ENABLED),
            Attribute("SriovGlobalEnable", "Disabled", _ENABLED),
            Attribute("LogicalProc", "Enabled", _ENABLED),
            Attribute("ProcX2Apic", "Disabled", _ENABLED),
            Attribute("SubNumaCluster", "Disabled", ("2-Way", "Disabled")),
            Attribute(
                "SysProfile",
                "PerfPerWattOptimizedDapc",
                ("PerfPerWattOptimizedDapc", "PerfPerWattOptimizedOs", "PerfOptimized", "Custom"),
            ),
            Attribute("ProcCStates", "Enabled", (*_ENABLED, "Autonomous"), locked=_CUSTOM),
            Attribute("ProcC1E", "Enabled", _ENABLED, locked=_CUSTOM),
            Attribute("AcPwrRcvryUserDelay", 120, bounds=(120, 600)),
        ),
        writes={
            ("SysProfile", "PerfOptimized"): {"ProcCStates": "Disabled", "ProcC1E": "Disabled"},
            ("SysProfile", "PerfPerWattOptimizedDapc"): {
                "ProcCStates": "Enabled",
                "ProcC1E": "Enabled",
            },
        },
    ),
    "hpe": BiosTable(
        settings="settings",
        registry="BiosAttributeRegistryA42.v1_2_60",
        attributes=(
            Attribute("BootMode", "Uefi", ("Uefi", "LegacyBios")),
            Attribute("ProcAmdIoVt", "Disabled", _ENABLED),
            Attribute("Sriov", "Disabled", _ENABLED),
            Attribute("ProcSMT", "Enabled", _ENABLED),
            Attribute("AccessControlService", "Enabled", _ENABLED),
            Attribute("WorkloadProfile", "Custom", ("GeneralPeakFrequencyCompute", _HPC, "Custom")),
            Attribute("NetworkBootRetryCount", 20, bounds=(0, 20)),
        ),
        writes={
            ("WorkloadProfile", _HPC): {"ProcAmdIoVt": "Disabled", "Sriov": "Disabled"},
        },
    ),
    "lenovo": BiosTable(
        settings="Pending",
        registry="BiosAttributeRegistry.1.0.0",
        apply_times=("OnReset",),
        refuses_locked=False,  # source: python-redfish-lenovo 174
        attributes=(
            Attribute("BootModes_SystemBootMode", "UEFIMode", ("UEFIMode", "LegacyMode")),
            Attribute("DevicesandIOPorts_IntelVTforDirectedIOVTd", "Disabled", _ENABLED),
            Attribute("DevicesandIOPorts_SRIOV", "Disabled", _ENABLED),
            Attribute("Processors_HyperThreading", "Enabled", _ENABLED),
            Attribute("Processors_PCIeACSCTL", "Enabled", _ENABLED),
            Attribute(
                "OperatingModes_ChooseOperatingMode",
                "Efficiency_FavorPerformance",
                ("Efficiency_FavorPerformance", "CustomMode", "MaximumPerformance"),
            ),
            Attribute(
                "Processors_CStates",
                "Autonomous",
                ("Legacy", "Autonomous", "Disabled"),
                locked=_MODE,
            ),
        ),
    ),
    "supermicro": BiosTable(
        settings="SD",
        registry="BiosAttributeRegistry.v1_0_0",
        attributes=(
            Attribute("IntelVTforDirectedI_O_VT_d__1E32", "Disable", _ENABLE, numbered=True),
            Attribute("SR_IOVSupport_0047", "Disabled", _ENABLED, numbered=True),
            Attribute("Hyper_Threading_ALL__F27F", "Enable", _ENABLE, numbered=True),
            Attribute("RelaxedOrdering_1DD1", "No", ("No", "Yes"), numbered=True),
            Attribute("PCIeACSCTL_1E3C", "Disable", _ENABLE, numbered=True),
        ),
    ),
    "ami_dgx": BiosTable(
        settings="SD",
        registry="BiosAttributeRegistry113.1.1.3",
        registry_path="-",
        attributes=(
            Attribute("VTdSupport", "Disable", _ENABLE),
            Attribute("SRIOVEnable", "Disable", _ENABLE),
            Attribute("SriovSupport", "Disabled", _ENABLED),
            Attribute("Ipv4Http", "Enabled", _ENABLED),
            Attribute("Ipv4Pxe", "Enabled", _ENABLED),
            Attribute("KcsInterfaceDisable", "Allow All", ("Allow All", "Deny All")),
        ),
    ),
}


# ------------------------------------------------------------------------------
# The key databases of Secure Boot: PK, KEK and db hold certificates, dbx digests of loaders.
#
# Resources as DMTF's SecureBootDatabase 1.0, Certificate 1.5 and Signature 1.0 define them; of the
# simulated vendors only a DGX H100 has them in a captured tree. The keys are the simulator's.
# Beside
# each database its `…Default` stands, as that tree has it, and HPE documents it
# (HPEDevCom/redfishdocs, securebootdatabases).


DATABASES = ("PK", "KEK", "db", "dbx")
_REVOKED = 5  # loaders; a genuine dbx has some 400
_OWNER = "77fa9abd-0359-4d32-bd60-28f4e78f784b"  # Microsoft's GUID of an owner (UEFI)


@cache
def make_boot_key(name: str) -> str:
    """Return a certificate for a database, as PEM."""
    return issue(f"secure boot/{name}", f"Simulated {name}", None, is_ca=True).pem


@cache
def list_makers_keys() -> Mapping[str, tuple[str, ...]]:
    """Return the entries of each database as the maker delivers them."""
    revoked = (hashlib.sha256(f"revoked loader {n}".encode()).hexdigest() for n in range(_REVOKED))
    return {
        "PK": (make_boot_key("platform key"),),
        "KEK": (make_boot_key("key exchange key"),),
        "db": (make_boot_key("maker of systems"), make_boot_key("maker of option ROMs")),
        "dbx": tuple(revoked),
    }


def list_makers_entries(name: str) -> Mapping[str, Json]:
    """Return the entries of one database as the maker delivers them, as a BMC shows them."""
    bios = Bios()
    return {
        f"{kind}/{number}": _show_entry(bios, kind, name, kind, number)
        for kind in ("Certificates", "Signatures")
        for number in _list_ids(bios, name, kind)
    }


def mount_boot_databases(tree: Tree, path: str, bios: Bios) -> None:
    """Put the databases and their entries into the tree."""
    names = [*DATABASES, *(f"{name}Default" for name in DATABASES)]
    tree.add_collection(path, "SecureBootDatabaseCollection", lambda: names, partial=False)
    for name in names:
        tree.add_live(f"{path}/{name}", partial(_show_database, path, name), partial=False)
        for kind, schema in (("Certificates", "Certificate"), ("Signatures", "Signature")):
            at = f"{path}/{name}/{kind}"
            tree.add_collection(
                at,
                f"{schema}Collection",
                partial(_list_ids, bios, name, kind),
                resolve=partial(_resolve, bios, at, name, kind),
                partial=False,
            )


def _show_database(path: str, name: str) -> Json:
    return {
        "@odata.type": "#SecureBootDatabase.v1_0_0.SecureBootDatabase",
        "Id": name,
        "Name": f"UEFI {name}",
        "DatabaseId": name,
        "Certificates": {"@odata.id": f"{path}/{name}/Certificates"},
        "Signatures": {"@odata.id": f"{path}/{name}/Signatures"},
    }


def _list_entries(bios: Bios, name: str, kind: str) -> list[str]:
    bare = name.removesuffix("Default")
    keys = bios.boot_keys if bios.boot_keys is not None and bare == name else list_makers_keys()
    is_certificate = kind == "Certificates"
    return [one for one in keys.get(bare, ()) if one.startswith("-----") is is_certificate]


def _list_ids(bios: Bios, name: str, kind: str) -> list[str]:
    return [str(n) for n in range(1, len(_list_entries(bios, name, kind)) + 1)]


def _resolve(bios: Bios, path: str, name: str, kind: str, number: str) -> Resource | None:
    if number not in _list_ids(bios, name, kind):
        return None
    return Resource(partial(_show_entry, bios, path, name, kind, number), partial=False)


def _show_entry(bios: Bios, path: str, name: str, kind: str, number: str) -> Json:
    entry = _list_entries(bios, name, kind)[int(number) - 1]
    shown: Json = {
        "@odata.id": f"{path}/{number}",
        "@odata.type": "#Signature.v1_0_0.Signature",
        "Id": number,
        "Name": f"{name} {number}",
        "UefiSignatureOwner": _OWNER,
    }
    if kind == "Certificates":
        shown["@odata.type"] = "#Certificate.v1_5_0.Certificate"
        return {**shown, "CertificateString": entry, "CertificateType": "PEM"}
    return {
        **shown,
        "SignatureString": entry,
        "SignatureType": "EFI_CERT_SHA256_GUID",
        "SignatureTypeRegistry": "UEFI",
    }


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

    def accepts(name: str, running: dict[str, BiosValue]) -> bool:
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
