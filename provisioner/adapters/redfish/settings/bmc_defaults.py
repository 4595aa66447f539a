"""The factory defaults of a BMC itself, by the standard action of its manager.

source: DMTF Manager 1.8 and newer, ResetToDefaults: "resets the manager settings to factory
defaults. This can cause the manager to reset"; parameter and values as in the trees of a PowerEdge
R750, a DGX H100 and a BlueField-3. bmcweb carries it out by a restart of the BMC.
"""

from __future__ import annotations

import hashlib

from provisioner.adapters.redfish.obstacles import find_obstacle
from provisioner.adapters.redfish.parsing import Json
from provisioner.adapters.redfish.service import Service, action_of, target_of
from provisioner.adapters.redfish.settings.reading import read_bmc_settings
from provisioner.adapters.redfish.tasks import find_open_job
from provisioner.model.machine.settings import BiosState
from provisioner.model.outcome import Blocker

_ACTION = "#Manager.ResetToDefaults"
_NAME = "Manager.ResetToDefaults"


async def list_resets(service: Service) -> tuple[str, ...] | Blocker:
    """Return the types of reset that the BMC offers; () if it does not say."""
    action = await _find_action(service)
    if target_of(action) is None:
        return service.not_offered("bmc", _NAME)
    return tuple(await service.reset_types(action))


async def reset_bmc_defaults(service: Service, kind: str) -> Blocker | None:
    """Have the BMC give itself its defaults. A job that is open is waited for, never ended."""
    if (refused := await find_obstacle(service, "settings")) is not None:
        return refused
    target = target_of(await _find_action(service))
    if target is None:
        return service.not_offered("bmc", _NAME)
    if (busy := await find_open_job(service, "bmc")) is not None:
        return busy
    reply = await service.post(target, {"ResetType": kind}, "bmc")
    return reply if isinstance(reply, Blocker) else None


async def read_bmc_state(service: Service) -> BiosState:
    """Return a digest of each setting of the BMC itself: protocols, time servers, policies."""
    values = {
        f"{one.source.rstrip('/').rpartition('/')[2]}/{name}": value
        for one in await read_bmc_settings(service)
        for name, value in sorted(one.values.items())
    }
    digests = (f"{name}={value!r}".encode() for name, value in values.items())
    return BiosState(
        names=tuple(values), digests=tuple(hashlib.sha256(d).hexdigest()[:8] for d in digests)
    )


async def _find_action(service: Service) -> Json:
    manager = await service.read_manager()
    return action_of(manager.data, _ACTION) if manager is not None else {}
