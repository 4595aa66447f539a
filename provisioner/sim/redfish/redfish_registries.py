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


def mount_registry(tree: Tree, prefix: str, version: str, messages: Json) -> None:
    """Serve one more registry, as a file beside Base that Registries lists."""
    collection = tree.find(PATH)
    before = collection.read if collection is not None else None
    assert collection is not None, "Registries is mounted first"
    assert before is not None, "a collection is read"
    file = f"{PATH}/{prefix}"
    body = f"{file}/{prefix}.{version}.json"

    def read() -> Json | None:
        listed = dict(before() or {})
        members = [*listed.get("Members", []), {"@odata.id": file}]
        return listed | {"Members": members, "Members@odata.count": len(members)}

    collection.read = read
    tree.add_fixed(
        file,
        {
            "@odata.type": "#MessageRegistryFile.v1_1_3.MessageRegistryFile",
            "Id": prefix,
            "Registry": f"{prefix}.{version}",
            "Languages": ["en"],
            "Location": [{"Language": "en", "Uri": body}],
        },
    )
    registry = {"RegistryPrefix": prefix, "RegistryVersion": version, "Messages": messages}
    tree.add_fixed(body, {**registry, "@odata.type": BASE["@odata.type"], "Id": prefix})


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
