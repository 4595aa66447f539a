"""Message registries and schema files of a simulated BMC: small, but served locally."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.sim.redfish.redfish_answers import BASE_TEXTS, Json
from provisioner.sim.redfish.redfish_tree import ROOT, Tree

PATH = f"{ROOT}/Registries"


def _base() -> Json:
    messages = {}
    for key, text in BASE_TEXTS.items():
        if key == "UpdateInProgress":
            continue
        args = max((n for n in range(1, 5) if f"%{n}" in text), default=0)
        fine = key == "Success"
        messages[key] = {
            "Description": text,
            "Message": text,
            "MessageSeverity": "OK" if fine else "Critical",
            "Severity": "OK" if fine else "Critical",
            "NumberOfArgs": args,
            "ParamTypes": ["string"] * args,
            "Resolution": "None.",
        }
    return {
        "@odata.type": "#MessageRegistry.v1_6_0.MessageRegistry",
        "Id": "Base.1.18.0",
        "Name": "Base Message Registry",
        "Language": "en",
        "OwningEntity": "DMTF",
        "RegistryPrefix": "Base",
        "RegistryVersion": "1.18.0",
        "Messages": messages,
    }


BASE = _base()


def mount_registries(tree: Tree, more: Sequence[str] = ()) -> None:
    """Put Registries and JsonSchemas into the tree; `more`: others that are listed."""
    tree.add_collection(PATH, "MessageRegistryFileCollection", lambda: ["Base", *more])
    tree.add_fixed(
        f"{PATH}/Base",
        {
            "@odata.type": "#MessageRegistryFile.v1_1_3.MessageRegistryFile",
            "Id": "Base",
            "Name": "Base Message Registry File",
            "Registry": "Base.1.18",
            "Languages": ["en"],
            "Location": [{"Language": "en", "Uri": f"{PATH}/Base/Base.1.18.0.json"}],
        },
    )
    tree.add_fixed(f"{PATH}/Base/Base.1.18.0.json", BASE)
    tree.add_collection(f"{ROOT}/JsonSchemas", "JsonSchemaFileCollection", list)
