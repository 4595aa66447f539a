"""Builds one simulated BMC from its shape, its tree and its update engine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any

from provisioner.integrations.sim.hardware.clock import SimClock
from provisioner.integrations.sim.hardware.machine import Machine
from provisioner.integrations.sim.redfish import redfish_logs as redfish_telemetry
from provisioner.integrations.sim.redfish.redfish_events import Deliver, Events
from provisioner.integrations.sim.redfish.redfish_integrity import Integrity
from provisioner.integrations.sim.redfish.redfish_power import make_link
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.redfish.redfish_tree import (
    BASE_TEXTS,
    ROOT,
    Json,
    Read,
    Resource,
    Tree,
)
from provisioner.integrations.sim.redfish.redfish_updates import Fetch, UpdateService
from provisioner.integrations.sim.redfish.shape import SHAPES
from provisioner.integrations.sim.redfish.shapes_bios import (
    find_listed_registry,
    mount_bios_registry,
)
from provisioner.integrations.sim.redfish.shapes_bluefield import BluefieldTree
from provisioner.integrations.sim.redfish.shapes_hgx import BOARD, HgxTree, silent_while_off
from provisioner.integrations.sim.redfish.shapes_host import HostTree
from provisioner.integrations.sim.redfish.updates import Updates

# ------------------------------------------------------------------------------
# Message registries and schema files of a simulated BMC: small, but served locally.


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


# ------------------------------------------------------------------------------
# Properties and resources that recorded trees show, added to the simulated ones.
#
# `recorded/*.json` has one file for each recorded tree: `overlays` add properties to the resources
# that the simulator computes, and `resources` are whole ones that it only shows. `*` in a path is
# one segment, and `{path}` in a value is the resource that it stands in. What the simulator
# computes itself goes before what was recorded. Each file is read once and shared by all BMCs of
# its shape.


_FILES = {
    name: f"{name}.json"
    for name in (
        "dell",
        "ami_dgx",
        "nvidia_openbmc",
        "nvidia_gb200",
        "hpe",
        "lenovo",
        "supermicro",
    )
}
_HERE = "{path}"


class RecordedShape:
    """The recorded properties and resources of one shape."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.source: str = content["source"]
        self.resources = len(content["resources"])
        self.overlays: list[tuple[re.Pattern[str], Json]] = [
            (_pattern(one["path"]), {"@odata.type": one["type"], **one["add"]})
            for one in content["overlays"]
        ]
        self.fixed: dict[str, Resource] = {}
        self._wild: list[tuple[re.Pattern[str], int, Json]] = []
        for path, body in content["resources"].items():
            if "*" in path:
                depth = path.count("/", 0, path.rindex("*"))
                self._wild.append((_pattern(path), depth, body))
            else:
                self.fixed[path] = _show({"@odata.id": path, **_placed(body, path)})
        self._added: dict[str, Json | None] = {}

    def find_addition(self, path: str) -> Json | None:
        """The properties that a resource has in the recorded tree besides the simulated ones."""
        if path not in self._added:
            fitting = (add for pattern, add in self.overlays if pattern.fullmatch(path))
            add = next(fitting, None)
            self._added[path] = None if add is None else _placed(add, path)
        return self._added[path]

    def find_resource(self, tree: Tree, path: str) -> Resource | None:
        """A resource that is only shown, below one that the tree has."""
        if path in self.fixed:
            return self.fixed[path]
        for pattern, depth, body in self._wild:
            if pattern.fullmatch(path):
                segments = path.split("/")
                if tree.find("/".join(segments[: depth + 1])) is None:
                    return None
                return _show({"@odata.id": path, **_placed(body, path)})
        return None


@cache
def read_shape(name: str) -> RecordedShape | None:
    """The recorded shape of this name; None where no tree was recorded."""
    if name not in _FILES:
        return None
    text = (
        files("provisioner.integrations.sim.redfish").joinpath("recorded", _FILES[name]).read_text()
    )
    return RecordedShape(json.loads(text))


def mount_recorded(tree: Tree, name: str) -> None:
    """Add the recorded properties to every resource of the tree, and the recorded resources."""
    shape = read_shape(name)
    if shape is None:
        return
    for path, resource in tree.resources.items():
        add_recorded(shape, path, resource)
    tree.dress = partial(add_recorded, shape)
    tree.find_more = partial(shape.find_resource, tree)


def add_recorded(shape: RecordedShape, path: str, resource: Resource) -> Resource:
    """Let a resource show its recorded properties too; return it."""
    add = shape.find_addition(path)
    shown = shape.fixed.get(path)
    if resource.read is not None and shown is not None and shown.read is not None:
        resource.read = partial(_read_either, resource.read, shown.read)
    elif resource.read is not None and add is not None:
        resource.read = partial(_read_both, resource.read, add)
    return resource


def _read_both(read: Read, add: Json) -> Json | None:
    value = read()
    return None if value is None else merge(add, value)


def _read_either(read: Read, recorded: Read) -> Json | None:
    """A resource that the simulator has at times only; else as it was recorded."""
    value = read()
    body = recorded() or {}
    return body if value is None else merge(body, value)


def merge(add: Mapping[str, Any], value: Mapping[str, Any]) -> Json:
    """Both objects as one; in nested objects too, the second goes before the first.

    Only the type is the recorded one: a schema's newer version has the properties that were added.
    """
    both = {**add, **value}
    for name, inner in add.items():
        own = value.get(name)
        if name == "@odata.type":
            both[name] = inner
        elif isinstance(inner, dict) and isinstance(own, dict) and "@odata.id" not in own:
            both[name] = merge(inner, own)
    return both


def _show(body: Json) -> Resource:
    return Resource(lambda: body, collection="Members" in body, partial=False)


def _pattern(glob: str) -> re.Pattern[str]:
    return re.compile("[^/]*".join(re.escape(part) for part in glob.split("*")))


def _placed(body: Json, path: str) -> Json:
    """The body with `{path}` replaced; an Id of its own where it has none."""
    text = json.dumps(body)
    if _HERE in text:
        return dict(json.loads(text.replace(_HERE, path)))
    return body


def no_server(_: str, back: Callable[[bytes | None], None]) -> None:
    """A `Fetch` without any file."""
    back(None)


def from_files(files: dict[str, bytes]) -> Fetch:
    """A `Fetch` in memory, by the last part of the URL's path."""

    def fetch(url: str, back: Callable[[bytes | None], None]) -> None:
        back(files.get(url.rpartition("/")[2]))

    return fetch


def _nobody(_: str, __: Json) -> None:
    return None


def make_service(
    machine: Machine,
    bmc: str,
    clock: SimClock,
    fetch: Fetch = no_server,
    deliver: Deliver = _nobody,
) -> RedfishService:
    """The Redfish service of one of a machine's BMCs ("host", "NIC_0", "DPU_1")."""
    hardware = machine.bmcs[bmc]
    shape = SHAPES[hardware.vendor]
    service = RedfishService(machine, bmc, shape, clock)
    service.sessions.pace = float(getattr(clock, "speed", 1.0))
    tree = service.tree
    mount_root(service)
    service.accounts.mount(tree)
    service.sessions.mount(tree)
    service.tasks.mount(tree)
    updates = Updates(machine, hardware, shape, service.tasks)
    UpdateService(machine, shape, service.tasks, updates, fetch, clock).mount(tree)
    service.events = Events(machine, hardware, deliver, as_nvidia=shape.bmcweb)
    service.events.mount(tree)
    listed = None if bmc in machine.bluefields else find_listed_registry(shape)
    mount_registries(tree, () if listed is None else (listed[0],))
    if listed is not None:
        mount_bios_registry(tree, *listed)
    if bmc in machine.bluefields:
        BluefieldTree(service).mount()
    else:
        host = HostTree(service)
        if _has_board(machine, bmc):
            HgxTree(host).mount()
            Integrity(service).mount()
            redfish_telemetry.mount_telemetry(tree, machine, BOARD)
        host.mount()
        if shape.name == "ami_dgx":
            silent_while_off(host)
    if f"{ROOT}/UpdateService/SoftwareInventory" not in tree.resources:
        path = f"{ROOT}/UpdateService/SoftwareInventory"
        tree.add_collection(path, "SoftwareInventoryCollection", list)
    mount_recorded(tree, shape.name)
    return service


def _has_board(machine: Machine, bmc: str) -> bool:
    return bmc not in machine.bluefields and ("host", "HGX_FW_BMC_0") in machine.firmware


_BOARD_SERVICES = ("TelemetryService", "ComponentIntegrity", "Fabrics")


def mount_root(service: RedfishService) -> None:
    """Put the service root and its parents into the tree."""
    shape = service.shape
    tree = service.tree
    machine = service.machine
    device = machine.devices.get(service.bmc.name)
    names = (
        "AccountService",
        "Chassis",
        "EventService",
        "Managers",
        "SessionService",
        "Systems",
        "UpdateService",
        "Registries",
        "JsonSchemas",
        *(_BOARD_SERVICES if _has_board(service.machine, service.bmc.name) else ()),
    )
    levels = shape.expand_levels
    root: Json = {
        "@odata.type": "#ServiceRoot.v1_13_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": shape.redfish_version,
        "UUID": str(device.traits["uuid"]) if device else machine.host.uuid,
        "Tasks": make_link("TaskService"),
        **{name: make_link(name) for name in names},
        "Links": {"Sessions": make_link("SessionService", "Sessions")},
        "ProtocolFeaturesSupported": {
            "FilterQuery": False,
            "SelectQuery": True,
            "ExcerptQuery": False,
            "OnlyMemberQuery": False,
            "ExpandQuery": {
                "Links": levels > 0,
                "NoLinks": levels > 0,
                "ExpandAll": levels > 0,
                "Levels": levels > 0,
                **({"MaxLevels": levels} if levels else {}),
            },
        },
    }
    for name, value in (("Vendor", shape.vendor), ("Product", shape.product)):
        if value:
            root[name] = value
    if shape.root_oem:
        root["Oem"] = dict(shape.root_oem)
    tree.add_fixed(ROOT, root)
    mount_versions(service)


def mount_versions(service: RedfishService) -> None:
    """Put /redfish, the OData and the metadata document into the tree (DSP0266 8.4, 8.5)."""
    names = (
        "AccountService",
        "Chassis",
        "EventService",
        "Managers",
        "SessionService",
        "Systems",
        "TaskService",
        "UpdateService",
    )
    document: Json = {
        "@odata.context": f"{ROOT}/$metadata",
        "value": [{"name": n, "kind": "Singleton", "url": f"{ROOT}/{n}"} for n in ("", *names)],
    }
    tree = service.tree
    tree.put("/redfish", Resource(lambda: {"v1": f"{ROOT}/"}))
    tree.put(f"{ROOT}/odata", Resource(lambda: document))
    tree.put(f"{ROOT}/$metadata", Resource(lambda: {"xml": METADATA}))


METADATA = b"""<?xml version="1.0" encoding="UTF-8"?>
<edmx:Edmx xmlns:edmx="http://docs.oasis-open.org/odata/ns/edmx" Version="4.0">
<edmx:Reference Uri="http://redfish.dmtf.org/schemas/v1/ServiceRoot_v1.xml">
<edmx:Include Namespace="ServiceRoot"/>
<edmx:Include Namespace="ServiceRoot.v1_13_0" Alias="RedfishServiceRoot"/>
</edmx:Reference>
<edmx:DataServices>
<Schema xmlns="http://docs.oasis-open.org/odata/ns/edm" Namespace="Service">
<EntityContainer Name="Service" Extends="RedfishServiceRoot.ServiceContainer"/>
</Schema>
</edmx:DataServices>
</edmx:Edmx>
"""
