"""Builds one simulated BMC from its shape, its tree and its update engine."""

from __future__ import annotations

from collections.abc import Callable

from provisioner.sim.hardware.clock import SimClock
from provisioner.sim.hardware.machine import Machine
from provisioner.sim.redfish import redfish_telemetry
from provisioner.sim.redfish.recorded_shapes import mount_recorded
from provisioner.sim.redfish.redfish_answers import Json
from provisioner.sim.redfish.redfish_events import Deliver, Events
from provisioner.sim.redfish.redfish_integrity import Integrity
from provisioner.sim.redfish.redfish_power import make_link
from provisioner.sim.redfish.redfish_registries import mount_registries
from provisioner.sim.redfish.redfish_service import RedfishService
from provisioner.sim.redfish.redfish_tree import ROOT, Resource
from provisioner.sim.redfish.redfish_updates import Fetch, UpdateService
from provisioner.sim.redfish.shapes import SHAPES
from provisioner.sim.redfish.shapes_bios import find_listed_registry, mount_bios_registry
from provisioner.sim.redfish.shapes_bluefield import BluefieldTree
from provisioner.sim.redfish.shapes_hgx import BOARD, HgxTree, silent_while_off
from provisioner.sim.redfish.shapes_host import HostTree
from provisioner.sim.redfish.updates import Updates


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
