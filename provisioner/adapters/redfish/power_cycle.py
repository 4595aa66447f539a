"""Standby power of a host, removed and restored by the action that its vendor declares."""

from __future__ import annotations

from provisioner.adapters.redfish.parts import power_of
from provisioner.adapters.redfish.service import (
    Service,
    action_of,
    not_offered,
    raise_silence,
    target_of,
)
from provisioner.model.inventory import Power
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Unreachable
from provisioner.quirks import ALL

_UNPLUG = (
    "Declare its outlets on the hardware list (docs/power.md), or pull its cords for 5 minutes."
)


async def find_target(service: Service) -> str | Blocker:
    """Return the target of the declared action: listed by the service, or declared as unlisted."""
    cycle = service.quirk.ac_cycle
    if cycle is None:
        return Blocker(
            reason=Reason.NOT_OFFERED,
            subject="host",
            detail=f"{service.quirk.title} takes standby power away by no Redfish action",
            unblock=_UNPLUG,
        )
    walk = service.walk()
    for resource in await walk.read_linked(await walk.read_root(), cycle.resource):
        target = target_of(action_of(resource.data, cycle.action))
        if target is not None:
            return target
    raise_silence(walk.gaps)
    others = [q.ac_cycle for q in ALL.values() if q.ac_cycle and q.ac_cycle != cycle]
    listed = None
    for other in others:
        for resource in await walk.read_linked(await walk.read_root(), other.resource):
            if target_of(action_of(resource.data, other.action)) is not None:
                listed = other.action
    # a BMC that lists another software's action does not run the one whose path is known
    host = await service.read_system() if cycle.unlisted and listed is None else None
    if host is None:
        refused = not_offered("host", cycle.action)
        return refused.model_copy(update={"unblock": _UNPLUG})
    return f"{host.path.rstrip('/')}/{cycle.unlisted}"


async def remove_standby(service: Service) -> Blocker | None:
    """Post the action; the host is off before, where the vendor requires it."""
    target = await find_target(service)
    cycle = service.quirk.ac_cycle
    if isinstance(target, Blocker) or cycle is None:
        return target if isinstance(target, Blocker) else None
    if cycle.needs_off and power_of(await service.read_system()) is not Power.OFF:
        return Blocker(
            reason=Reason.PRECONDITION,
            subject="host",
            detail="the host must be off before standby power is taken away",
            unblock="Power the host off first.",
        )
    try:
        reply = await service.post(target, dict(cycle.body), "host")
    except Unreachable as error:
        if not error.maybe_executed:
            raise
        return None
    return reply if isinstance(reply, Blocker) else None
