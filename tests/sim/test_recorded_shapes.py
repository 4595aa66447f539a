"""The share of a real type's properties that the simulator's resource of this type shows.

For each recorded tree in ../shared/mockups: all top-level properties of all resources of a type
there, against those of the simulator's resources of the same type and vendor. The types are those
that the client reads or writes.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from bmc_door import Door, reason

from provisioner.integrations.sim.redfish.bmc import read_shape
from provisioner.integrations.sim.redfish.shape import SHAPES
from provisioner.integrations.sim.redfish.sources import ASSUMED, RULES

sys.path.append(str(Path(__file__).parents[1] / "real"))
from static_tree import recorded_tree

SHARE_MIN = 0.85
ROOT = "/redfish/v1"
WRITES = Path(__file__).parents[1] / "recorded" / "writes"
# the simulated BMC that stands for each recorded tree: vendor, name of the BMC
TREES = {
    "dell": ("dell", "host"),
    "nvidia_viking": ("ami_dgx", "host"),
    "nvidia_dpu": ("supermicro", "DPU_0"),
}
# what the client of `adapters/redfish` reads, changes or creates
TYPES = (
    "AccountService",
    "ActionInfo",
    "Bios",
    "BootOption",
    "Chassis",
    "ComponentIntegrity",
    "ComputerSystem",
    "DellAttributes",
    "DellLicense",
    "Drive",
    "EthernetInterface",
    "EventDestination",
    "EventService",
    "Fabric",
    "Fan",
    "Job",
    "JobService",
    "LogService",
    "Manager",
    "ManagerAccount",
    "ManagerNetworkProtocol",
    "Memory",
    "NetworkAdapter",
    "NetworkDeviceFunction",
    "NetworkPort",
    "NvidiaComputerSystem",
    "PCIeDevice",
    "Port",
    "Power",
    "PowerSubsystem",
    "PowerSupply",
    "Processor",
    "SecureBoot",
    "Sensor",
    "ServiceRoot",
    "Session",
    "SessionService",
    "SoftwareInventory",
    "Storage",
    "StorageController",
    "Switch",
    "Task",
    "TaskService",
    "TelemetryService",
    "Thermal",
    "ThermalSubsystem",
    "UpdateService",
    "VirtualMedia",
)
# resources of these types that the client never reads
UNREAD = re.compile(r"/(Processors|Switches)/[^/]+/Ports/|/SubProcessors/")
# types of which a captured resource holds nothing but its own name
EMPTY = {("nvidia_viking", "Drive"), ("nvidia_viking", "Storage")}


def type_of(resource: Mapping[str, Any]) -> str:
    return str(resource.get("@odata.type", "")).lstrip("#").partition(".")[0]


def properties(resource: Mapping[str, Any]) -> set[str]:
    """Names of the properties; annotations, the vendor's own object and OData's names left out."""
    return {name for name in resource if "@" not in name and name != "Oem"}


def recorded(tree: Path) -> dict[str, set[str]]:
    """Type -> the properties that resources of this type have in the tree."""
    shown: dict[str, set[str]] = defaultdict(set)
    for file in tree.rglob("index.json"):
        body = json.loads(file.read_text())
        if isinstance(body, dict) and not UNREAD.search("/" + str(file.relative_to(tree))):
            shown[type_of(body)] |= properties(body)
    return shown


def links(value: Any) -> Iterator[str]:
    """Every path that a resource refers to."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("@odata.id", "@Redfish.ActionInfo") and isinstance(inner, str):
                yield inner.partition("#")[0]
            else:
                yield from links(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from links(inner)


def simulated(wire: Door) -> tuple[dict[str, set[str]], list[str]]:
    """Type -> the properties that the simulator shows, and the paths that lead nowhere."""
    shown: dict[str, set[str]] = defaultdict(set)
    lost = []
    waiting, visited = [ROOT], {ROOT}
    while waiting:
        path = waiting.pop()
        resource = wire.service.tree.find(path)
        body = resource.read() if resource is not None and resource.read is not None else None
        if body is None:
            lost.append(path)
            continue
        shown[type_of(body)] |= properties(body)
        for link in links(body):
            if link not in visited:
                visited.add(link)
                waiting.append(link)
    return shown, lost


def used_wire(vendor: str, bmc: str) -> Door:
    """A BMC with a session, a subscription and an update task."""
    wire = Door(bmc, vendor)
    if wire.service.shape.change_factory_password:
        account = f"{ROOT}/AccountService/Accounts/root"
        wire.ask("PATCH", account, {"Password": "Changed-at-once-1"})
        wire.bmc.password = "Changed-at-once-1"
    assert wire.session().status == 201
    subscription = {"Destination": "https://127.0.0.1:9/e", "Protocol": "Redfish", "Context": "c"}
    answer = wire.ask("POST", f"{ROOT}/EventService/Subscriptions", subscription)
    assert answer.status == 201, answer
    task = wire.service.tasks.add_task("Update", wire.clock.now())
    task.end_with("Completed", wire.clock.now())
    return wire


@pytest.mark.parametrize("name", list(TREES))
def test_simulated_resources_show_most_properties_of_the_recorded_types(
    name: str, tmp_path: Path
) -> None:
    real = recorded(recorded_tree(name, tmp_path))
    shown, lost = simulated(used_wire(*TREES[name]))

    shares = {
        kind: len(real[kind] & shown[kind]) / len(real[kind])
        for kind in TYPES
        if real.get(kind) and (name, kind) not in EMPTY
    }
    low = {
        kind: (round(share, 2), sorted(real[kind] - shown[kind]))
        for kind, share in shares.items()
        if share < SHARE_MIN
    }
    assert lost == []
    assert low == {}
    assert len(shares) > 20


@pytest.mark.parametrize(
    ("vendor", "file"),
    [
        ("hpe", "hpe_ilo5"),
        ("lenovo", "lenovo_xcc"),
        ("supermicro", "supermicro_x13"),
        ("nvidia_gb200", "gb200"),
    ],
)
def test_other_vendors_resources_show_what_their_reduced_trees_show(vendor: str, file: str) -> None:
    reduced = json.loads((WRITES / f"{file}.json").read_text())
    real: dict[str, set[str]] = defaultdict(set)
    for body in reduced["tree"].values():
        real[type_of(body)] |= properties(body)
    shown, lost = simulated(used_wire(vendor, "host"))

    shares = {
        kind: len(listed & shown[kind]) / len(listed)
        for kind, listed in real.items()
        if listed and not kind.endswith("Collection")
    }
    assert lost == []
    assert {kind: share for kind, share in shares.items() if share < SHARE_MIN} == {}
    assert len(shares) > 8


def test_a_job_stays_when_the_task_is_gone_with_the_restart_of_the_idrac() -> None:
    """source: dell/iDRAC-Redfish-Scripting, DeviceFirmwareMultipartUploadREDFISH."""
    wire = Door(vendor="dell")
    task = wire.service.tasks.add_task("Update", wire.clock.now())
    wire.machine.bmc_reset("host", wire.clock.now())
    for reset in wire.bmc.on_reset:
        reset(wire.clock.now())

    job = wire.service.tree.find(f"{ROOT}/JobService/Jobs/{task.id}")
    gone = wire.service.tree.find(f"{ROOT}/TaskService/Tasks/{task.id}")
    assert gone is None
    assert job is not None
    assert job.read is not None
    assert (job.read() or {})["JobState"] == "New"


def test_the_settings_object_refuses_a_property_that_it_does_not_list() -> None:
    """source: captured tree of a DGX H100, Systems/DGX/SD."""
    wire = Door(vendor="ami_dgx")
    path = f"{ROOT}/Systems/DGX/SD"
    etag = wire.ask("GET", path).headers["ETag"]
    headers = {**wire.basic(), "if-match": etag}

    without = wire.ask("PATCH", path, {"Boot": {}})
    unknown = wire.ask("PATCH", path, {"IndicatorLED": "Lit"}, headers)
    boot = {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}
    taken = wire.ask("PATCH", path, {"Boot": boot}, headers)

    assert (without.status, unknown.status, taken.status) == (428, 400, 200)
    assert reason(unknown) == "PropertyUnknown"
    assert wire.machine.host.override["BootSourceOverrideTarget"] == "Pxe"


def test_each_rule_names_a_source_or_is_assumed() -> None:
    for name in SHAPES:
        shape = read_shape(name)
        assert shape is not None
        assert shape.source
    names = {*SHAPES, "all"}
    assert {s for r in RULES for s in r.shapes.split(", ")} <= names
    assert all(r.source for r in RULES)
    assert any(r.source == ASSUMED for r in RULES)
