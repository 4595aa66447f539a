"""Every part that a service lists, with the properties that identify it, in the service's words.

An `Inventory` holds the parts that the daemon compares between two collections. `provisioner
inspect` shows more: each system, chassis, module and manager behind one BMC, each port's MAC
addresses, each drive's and supply's firmware. The parts are reached from the service root along
`LINKS`, one table of resource type -> properties that lead to parts. A type that is not in the
table ends the way: logs, sensors, metrics, certificates and the threads of a processor are not
read.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from provisioner.adapters.redfish.parsing import Json, as_object, link, objects, path_of, text
from provisioner.adapters.redfish.walk import ROOT, Resource, Walk
from provisioner.model.outcome import Gap
from provisioner.ports import PortError

# ------------------------------------------------------------------------------
# What health checks look at in one BMC: whole resources as they came, with the walk's gaps.


_EROT = re.compile(r"erot", re.IGNORECASE)
BOOT_DATABASES = frozenset({"PK", "KEK", "db", "dbx"})
_CHASSIS_MAX = 256  # a DGX H100 has 40


@dataclass(frozen=True)
class Reading:
    """The bodies that were read, by path, and the gaps."""

    resources: Mapping[str, Json]
    gaps: tuple[Gap, ...]


async def read_firmware(walk: Walk) -> Reading:
    """The firmware inventory, and the chassis of the roots of trust."""
    root = await walk.read_root()
    service = link(root, "UpdateService")
    update = (await walk.read(service)).data if service is not None else {}
    resources = await walk.read_linked(update, "FirmwareInventory")
    paths = (await walk.read_links(link(root, "Chassis")))[:_CHASSIS_MAX]
    resources += await walk.read_several([p for p in paths if _EROT.search(p.rsplit("/", 1)[-1])])
    return _reading(walk, resources)


async def read_sensors(walk: Walk) -> Reading:
    """Every sensor of every chassis; of a chassis without sensors, its `Thermal` and `Power`."""
    root = await walk.read_root()
    resources: list[Resource] = []
    for chassis in (await walk.read_linked(root, "Chassis"))[:_CHASSIS_MAX]:
        listed = await walk.read_linked(chassis.data, "Sensors")
        if not listed:
            older = [link(chassis.data, name) for name in ("Thermal", "Power")]
            listed = await walk.read_several([path for path in older if path is not None])
        resources += listed
    return _reading(walk, resources)


async def read_secure_boot(walk: Walk) -> Reading:
    """The state of Secure Boot of every system, and each key and digest of its databases.

    The databases with the maker's defaults (`dbDefault`, …) are left out: nothing boots by them.
    """
    root = await walk.read_root()
    resources: list[Resource] = []
    for system in await walk.read_linked(root, "Systems"):
        resources.append(system)  # shows a host without Secure Boot as one that was read
        path = link(system.data, "SecureBoot")
        if path is None:
            continue
        state = await walk.read(path)
        resources.append(state)
        for database in await walk.read_linked(state.data, "SecureBootDatabases"):
            if database.path.rstrip("/").rpartition("/")[2] not in BOOT_DATABASES:
                continue
            resources.append(database)
            for kind in ("Certificates", "Signatures"):
                resources += await walk.read_linked(database.data, kind)
    return _reading(walk, resources)


# what `Command.line` of a check asks for -> how it is read
READINGS: Mapping[str, Callable[[Walk], Awaitable[Reading]]] = {
    "firmware of /redfish/v1": read_firmware,
    "sensors of /redfish/v1": read_sensors,
    "secure boot of /redfish/v1": read_secure_boot,
}


def _reading(walk: Walk, resources: list[Resource]) -> Reading:
    return Reading({r.path: r.data for r in resources if r.data}, tuple(walk.gaps))


RESOURCES_MAX = 4096  # a DGX H100 lists some 400
_VALUES_MAX = 512  # of one resource: 14 assemblies of 8 values each are the most recorded
_DEPTH_MAX = 6

# source: the `Links` and navigation properties of DMTF's schemas of these types, as the captured
# trees of an R750, a DGX H100 and a BlueField-3 use them
LINKS: Mapping[str, tuple[str, ...]] = {
    "ServiceRoot": ("Systems", "Chassis", "Managers", "UpdateService", "Fabrics"),
    "ComputerSystem": (
        "Processors",
        "Memory",
        "Storage",
        "EthernetInterfaces",
        "NetworkInterfaces",
        "PCIeDevices",
    ),
    "Chassis": (
        "NetworkAdapters",
        "PCIeDevices",
        "Drives",
        "Assembly",
        "PowerSubsystem",
        "ThermalSubsystem",
        "Power",
    ),
    "Manager": ("EthernetInterfaces", "DedicatedNetworkPorts"),
    "UpdateService": ("FirmwareInventory", "SoftwareInventory"),
    "Fabric": ("Switches",),
    "Storage": ("Drives", "Controllers"),
    "Drive": ("Assembly",),
    "Memory": ("Assembly",),
    "Processor": ("Assembly",),
    "PCIeDevice": ("Assembly",),
    "PowerSupply": ("Assembly",),
    "NetworkAdapter": (
        "NetworkDeviceFunctions",
        "NetworkPorts",
        "Ports",
        "Assembly",
        "Controllers.Links.NetworkPorts",  # a captured R750 has a port that no collection lists
        "Controllers.Links.Ports",
    ),
    "Power": ("PowerSupplies.Assembly",),
    "NetworkInterface": ("NetworkDeviceFunctions",),
    "PowerSubsystem": ("PowerSupplies",),
    "ThermalSubsystem": ("Fans",),
}
# names of the properties that identify a part, or give its state and size
_NAMES = frozenset(
    {
        "AssetTag",
        "AssociatedMACAddresses",
        "AssociatedNetworkAddresses",
        "BaseMACAddress",
        "BiosVersion",
        "CapacityBytes",
        "CapacityMiB",
        "FirmwarePackageVersion",
        "FirmwareRevision",
        "FirmwareVersion",
        "Health",
        "HealthRollup",
        "LastState",
        "LinkStatus",
        "MACAddress",
        "Manufacturer",
        "Model",
        "NodeGUID",
        "PartNumber",
        "PermanentMACAddress",
        "PermanentPortGUID",
        "PortGUID",
        "PowerState",
        "ProcessorType",
        "Producer",
        "Revision",
        "SKU",
        "SerialNumber",
        "ServiceEntryPointUUID",
        "SparePartNumber",
        "State",
        "UUID",
        "Vendor",
        "Version",
    }
)
_ASIDE = frozenset({"Actions", "Links", "Oem", "Redundancy"})  # other resources' values


class HardwarePart(NamedTuple):
    """One resource. `values`: property -> value, nested ones as "Status.Health"."""

    kind: str  # the schema's name, "PowerSupply"
    source: str
    values: Mapping[str, str]


class HardwareTree(NamedTuple):
    """The parts in the service's order, and the resources that did not answer."""

    parts: tuple[HardwarePart, ...]
    gaps: tuple[Gap, ...]


async def read_tree(walk: Walk) -> HardwareTree:
    """Return every part that the service lists, up to the point where it stops answering."""
    parts: dict[str, HardwarePart] = {}
    try:
        root = Resource(ROOT, await walk.read_root())
        await _follow(walk, [root], parts)
    except PortError as error:
        gap = Gap(reason=error.reason, source=ROOT, detail=str(error)[:200])
        return HardwareTree(tuple(parts.values()), (*walk.gaps, gap))
    return HardwareTree(tuple(parts.values()), tuple(walk.gaps))


async def _follow(walk: Walk, level: list[Resource], parts: dict[str, HardwarePart]) -> None:
    """Read the tree level by level, each resource once."""
    while level:
        following: list[Resource] = []
        for resource in level:
            source = resource.path.rstrip("/")
            if not resource.data or source in parts or len(parts) >= RESOURCES_MAX:
                continue
            kind = _kind(resource)
            parts[source] = HardwarePart(kind, source, _values(resource.data))
            for name in LINKS.get(kind, ()):
                following += await _linked(walk, resource.data, name)
        level = following


async def _linked(walk: Walk, data: Mapping[str, Any], name: str) -> list[Resource]:
    """The resources under a property: a list of links, a collection, or one resource."""
    outer, _, last = name.rpartition(".")
    resources: list[Resource] = []
    for holder in _holders(data, outer.split(".") if outer else []):
        value = holder.get(last)
        paths = [p for one in objects(value) if (p := path_of(one)) is not None]
        if isinstance(value, list) or last in _SINGLE:
            resources += await walk.read_several(paths)
        elif paths:
            resources += await walk.read_members(paths[0])
    return resources


def _holders(data: Mapping[str, Any], names: list[str]) -> list[Mapping[str, Any]]:
    """The objects that nested properties lead to; each list on the way gives all of its objects."""
    level = [data]
    for name in names:
        level = [inner for holder in level for inner in objects(holder.get(name))]
    return level


_SINGLE = frozenset({"UpdateService", "Assembly", "PowerSubsystem", "ThermalSubsystem", "Power"})


def _kind(resource: Resource) -> str:
    spelled = text(resource.data.get("@odata.type")) or ""
    return spelled.lstrip("#").partition(".")[0]


def _values(data: Mapping[str, Any]) -> Mapping[str, str]:
    values = dict[str, str]()
    for name, value in _flatten(data, "", 0):
        if len(values) >= _VALUES_MAX:
            break
        values[name] = value
    return values


def _flatten(value: Any, name: str, depth: int) -> Iterator[tuple[str, str]]:
    """The values of known properties, nested objects and lists included."""
    if depth > _DEPTH_MAX:
        return
    if isinstance(value, list):
        for number, one in enumerate(value[:_VALUES_MAX]):
            yield from _flatten(one, f"{name}.{number}", depth + 1)
    elif isinstance(value, Mapping):
        for key, one in as_object(value).items():
            if isinstance(key, str) and key not in _ASIDE and "@" not in key:
                yield from _flatten(one, f"{name}.{key}" if name else key, depth + 1)
    elif _named(name) in _NAMES and (shown := text(value)) is not None:
        yield name, shown


def _named(name: str) -> str:
    """The property's own name: the last word of the path that is no place in a list."""
    return next((w for w in reversed(name.split(".")) if not w.isdigit()), "")
