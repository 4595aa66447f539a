"""The BIOS's factory defaults: asked for by the standard action, carried out by the next boot.

No recorded registry names the default of an attribute. So a reset is seen by what it changes: the
states before the request and after the boot are compared, as digests of each value.
"""

from __future__ import annotations

import hashlib

from provisioner.adapters.redfish.obstacles import find_obstacle
from provisioner.adapters.redfish.parsing import link
from provisioner.adapters.redfish.service import Service, action_of, not_offered, target_of
from provisioner.adapters.redfish.settings.reading import read_bios
from provisioner.adapters.redfish.task_list import find_open_job
from provisioner.model.machine.bios_state import BiosState
from provisioner.model.outcome import Blocker

_ACTION = "#Bios.ResetBios"
_TYPE = "Reset"  # source: captured tree of a DGX H100: ResetBiosActionInfo requires it


async def reset_bios(service: Service) -> Blocker | None:
    """Have the defaults run from the next boot on. A job that is open is waited for, never ended.

    source: DMTF Bios 1.2, ResetBios; its body is empty, or has the one type that a service lists
    """
    if (refused := await find_obstacle(service, "settings")) is not None:
        return refused
    system = await service.read_system()
    path = None if system is None else link(system.data, "Bios")
    if path is None:
        return not_offered("BIOS", "BIOS resource")
    action = action_of(await service.read_part(path), _ACTION)
    target = target_of(action)
    if target is None:
        return not_offered("BIOS", "Bios.ResetBios")
    types = await service.reset_types(action)
    if types and _TYPE not in types:
        return not_offered("BIOS", f"reset to defaults; it has {', '.join(types[:8])}")
    if (busy := await find_open_job(service, "BIOS")) is not None:
        return busy
    reply = await service.post(target, {"ResetType": _TYPE} if types else {}, "BIOS")
    return reply if isinstance(reply, Blocker) else None


async def read_bios_state(service: Service) -> BiosState | None:
    """Return a digest of each running attribute; None if the BMC shows none now."""
    walk = service.walk()
    root = await walk.read_root()
    system = await service.read_system()
    bios = None if system is None else await read_bios(service, walk, root, system.data)
    if bios is None or bios.current is None:
        return None
    fixed = {n for n, r in bios.registry.rules.items() if r.read_only} if bios.registry else set()
    values = {n: v for n, v in sorted(bios.current.items()) if n not in fixed}
    return BiosState(
        names=tuple(values),
        digests=tuple(_digest(f"{name}={value!r}") for name, value in values.items()),
        waiting=tuple(sorted(bios.pending)),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
