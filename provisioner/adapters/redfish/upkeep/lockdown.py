"""The lockdown of a BMC: lifted for our own work, and restored afterwards.

source: iDRAC9 User's Guide, "System Configuration Lockdown mode"; libredfish, which switches it by
a PATCH of the manager's attributes; captured tree of a PowerEdge R750, which has the attribute.
"""

from __future__ import annotations

import re

from provisioner.adapters.redfish.parsing import as_object, at, objects, path_of
from provisioner.adapters.redfish.service import Service
from provisioner.model.outcome import Blocker, Reason


async def is_locked(service: Service) -> bool | None:
    """Return whether the BMC refuses changes now; None if its vendor has no such mode."""
    attribute = await _find_attribute(service)
    lockdown = service.quirk.lockdown
    if attribute is None or lockdown is None:
        return None
    return attribute[2] == lockdown.locked


async def set_lockdown(service: Service, *, locked: bool) -> Blocker | None:
    """Lock or unlock the BMC, and read it back; one that is so already is sent nothing."""
    attribute = await _find_attribute(service)
    lockdown = service.quirk.lockdown
    if attribute is None or lockdown is None:
        return None
    path, name, value = attribute
    wanted = lockdown.locked if locked else lockdown.unlocked
    if value == wanted:
        return None
    reply = await service.patch(path, {"Attributes": {name: wanted}}, "lockdown")
    if isinstance(reply, Blocker):
        return reply
    after = await _find_attribute(service)
    if after is not None and after[2] == wanted:
        return None
    return Blocker(
        reason=Reason.REFUSED,
        subject="lockdown",
        detail=f"the BMC took {name} = {wanted}, and shows {after[2] if after else 'nothing'}",
        unblock=f"Set {lockdown.title} in the BMC by hand, then retry.",
    )


async def _find_attribute(service: Service) -> tuple[str, str, object] | None:
    """Return path, name and value of the attribute that shows the lockdown."""
    lockdown = service.quirk.lockdown
    manager = await service.read_manager() if lockdown is not None else None
    if lockdown is None or manager is None:
        return None
    for one in objects(at(manager.data, *lockdown.links) or []):
        path = path_of(one)
        listed = as_object((await service.get(path)).get("Attributes")) if path else {}
        for name, value in listed.items():
            if path is not None and re.search(lockdown.attribute, name):
                return path, name, value
    return None
