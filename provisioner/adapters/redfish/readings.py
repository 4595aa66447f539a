"""What health checks look at in one BMC: whole resources as they came, with the walk's gaps."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from provisioner.adapters.redfish.parsing import Json, link
from provisioner.adapters.redfish.walk import Resource, Walk
from provisioner.model.outcome import Gap

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
