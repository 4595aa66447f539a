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
    """Path -> body of what was read, and what was not given."""

    resources: Mapping[str, Json]
    gaps: tuple[Gap, ...]


async def firmware(walk: Walk) -> Reading:
    """The firmware inventory, and the chassis of the roots of trust."""
    root = await walk.root()
    service = link(root, "UpdateService")
    update = (await walk.read(service)).data if service is not None else {}
    found = await walk.first(update, "FirmwareInventory")
    paths = (await walk.links(link(root, "Chassis")))[:_CHASSIS_MAX]
    found += await walk.reads([p for p in paths if _EROT.search(p.rsplit("/", 1)[-1])])
    return _reading(walk, found)


async def sensors(walk: Walk) -> Reading:
    """Every sensor of every chassis; of a chassis without sensors, its `Thermal` and `Power`."""
    root = await walk.root()
    found: list[Resource] = []
    for chassis in (await walk.first(root, "Chassis"))[:_CHASSIS_MAX]:
        listed = await walk.first(chassis.data, "Sensors")
        if not listed:
            older = [link(chassis.data, name) for name in ("Thermal", "Power")]
            listed = await walk.reads([path for path in older if path is not None])
        found += listed
    return _reading(walk, found)


# what `Command.line` of a check asks for -> how it is read
READINGS: Mapping[str, Callable[[Walk], Awaitable[Reading]]] = {
    "firmware of /redfish/v1": firmware,
    "sensors of /redfish/v1": sensors,
}


def _reading(walk: Walk, found: list[Resource]) -> Reading:
    return Reading({r.path: r.data for r in found if r.data}, tuple(walk.gaps))
