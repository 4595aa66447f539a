"""Obstacles to writes that a BMC itself reports: a missing licence, a lockdown.

An inventory holds these obstacles, so that a plan names them before anything is sent; each write
asks again right before its first request. A BMC that lists neither licences nor a lockdown, or
whose list could not be read, gives no obstacle: then only its own answer to a request can say so.
"""

from __future__ import annotations

import re

from provisioner.adapters.redfish.parsing import Json, as_object, at, objects, path_of
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.upkeep.bmc_time import read_licence_names
from provisioner.adapters.redfish.walk import Walk
from provisioner.model.inventory import WriteObstacle, build_obstacle_blocker
from provisioner.model.outcome import Blocker, Reason
from provisioner.quirks import Quirk


async def find_obstacle(service: Service, needed_for: str) -> Blocker | None:
    """Return why the BMC refuses `needed_for` ("push", "media", "boot") now, if so."""
    await service.learn()
    if not _is_hindered(service.quirk, needed_for):
        return None
    manager = await service.read_manager()
    listed = await read_obstacles(
        service.walk(), service.quirk, manager.data if manager is not None else {}, ""
    )
    return next((build_obstacle_blocker(o) for o in listed if needed_for in o.hinders), None)


async def read_obstacles(
    walk: Walk, quirk: Quirk, manager: Json, bmc: str
) -> tuple[WriteObstacle, ...]:
    """Return the obstacles that the BMC named `bmc` reports.

    A list that cannot be read is no gap of an inventory: nothing is planned from it.
    """
    gaps_before = len(walk.gaps)
    readings = (
        await _read_licences(walk, quirk, manager, bmc),
        await _read_lock(walk, quirk, manager, bmc),
    )
    del walk.gaps[gaps_before:]
    return tuple(obstacle for obstacle in readings if obstacle is not None)


def _is_hindered(quirk: Quirk, needed_for: str) -> bool:
    licensed = quirk.licence.needed_for if quirk.licence is not None else ()
    lockable = quirk.lockdown.hinders if quirk.lockdown is not None else ()
    return needed_for in (*licensed, *lockable)


async def _read_licences(walk: Walk, quirk: Quirk, manager: Json, bmc: str) -> WriteObstacle | None:
    licence = quirk.licence
    if licence is None:
        return None
    names = await read_licence_names(walk, licence, manager)
    if names is None:
        return None
    if any(re.search(licence.sufficient, name, re.IGNORECASE) for name in names):
        return None
    installed = ", ".join(name[:60] for name in names[:4]) or "none"
    return WriteObstacle(
        bmc=bmc,
        name="licence",
        reason=Reason.NOT_OFFERED,
        hinders=licence.needed_for,
        detail=f"this BMC lacks the licence {licence.title}; it has {installed}",
        unblock=f"Install the licence {licence.title} in the BMC, then retry.",
    )


async def _read_lock(walk: Walk, quirk: Quirk, manager: Json, bmc: str) -> WriteObstacle | None:
    """Return an obstacle if an attribute of the BMC says that it is locked against changes."""
    lockdown = quirk.lockdown
    for one in objects(at(manager, *lockdown.links) or []) if lockdown is not None else ():
        assert lockdown is not None
        path = path_of(one)
        attributes = as_object((await walk.read(path)).data.get("Attributes")) if path else {}
        for name, value in attributes.items():
            if re.search(lockdown.attribute, name) and value == lockdown.locked:
                return WriteObstacle(
                    bmc=bmc,
                    name="lockdown",
                    reason=Reason.REFUSED,
                    hinders=lockdown.hinders,
                    detail=f"{lockdown.title} is on ({name} is {value})",
                    unblock=f"Switch {lockdown.title} off in the BMC, then retry; "
                    "switch it on again afterwards if the site wants it.",
                )
    return None
