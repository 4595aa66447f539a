"""What health checks look at in one BMC: whole resources as they came, with the walk's gaps."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from provisioner.adapters.redfish.parsing import Json, link
from provisioner.adapters.redfish.walk import Resource, Walk
from provisioner.model.outcome import Gap

_EROT = re.compile(r"erot", re.IGNORECASE)
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


# what `Command.line` of a check asks for -> how it is read
READINGS: Mapping[str, Callable[[Walk], Awaitable[Reading]]] = {
    "firmware of /redfish/v1": read_firmware,
    "sensors of /redfish/v1": read_sensors,
}


def _reading(walk: Walk, resources: list[Resource]) -> Reading:
    return Reading({r.path: r.data for r in resources if r.data}, tuple(walk.gaps))
