"""The rshim of a BlueField: the BMC writes a bundle through it, and the host must not hold it.

source: Mellanox/dpu-update (try_enable_rshim_on_bmc: enable, wait 10 s, read back, toggle once,
"make sure rshim on Host side is disabled"); captured tree of a BlueField-3 BMC (HostRshim.Set).
"""

from __future__ import annotations

from provisioner.adapters.redfish.parsing import Json, at, link, text
from provisioner.adapters.redfish.service import Service, action_of, not_offered, target_of
from provisioner.model.outcome import Blocker, Reason

_SETTLE_S = 10.0


async def enable_on_bmc(service: Service) -> Blocker | None:
    """Give the rshim to the BMC, and read back that it has it."""
    manager = await service.read_manager()
    path = link(manager.data, "Oem", "Nvidia") if manager is not None else None
    if path is None or await _read_enabled(service, path) is not False:
        return None  # older BMCs have no switch for it
    if (refused := await _take_from_host(service)) is not None:
        return refused
    for toggled in (False, True):
        for enabled in (False, True) if toggled else (True,):
            body = {"BmcRShim": {"BmcRShimEnabled": enabled}}
            refused = await service.patch(path, body, "rshim", always=("BmcRShim",))
            if refused is not None:
                return refused
            await service.pause(_SETTLE_S)
        if await _read_enabled(service, path) is True:
            return None
    return Blocker(
        reason=Reason.PRECONDITION,
        subject="rshim",
        detail="the BMC does not get the rshim: it was enabled twice, and reads back disabled",
        unblock="Stop the rshim service on the host (systemctl stop rshim), then retry.",
    )


async def set_for_host(service: Service, *, enabled: bool) -> Blocker | None:
    """Give the rshim to the host, or take it away; refused by name where that is not offered."""
    target, state = await _find_host_switch(service)
    if target is None or state is None:
        return not_offered("host_rshim", "HostRshim.Set")
    chosen = "Enabled" if enabled else "Disabled"
    if state == chosen:
        return None
    reply = await service.post(target, {"HostRshim": chosen}, "host_rshim")
    return reply if isinstance(reply, Blocker) else None


async def _take_from_host(service: Service) -> Blocker | None:
    """Switch the host's rshim off where the system offers it and reports it as enabled."""
    target, state = await _find_host_switch(service)
    if target is None or state != "Enabled":
        return None
    reply = await service.post(target, {"HostRshim": "Disabled"}, "rshim")
    return reply if isinstance(reply, Blocker) else None


async def _find_host_switch(service: Service) -> tuple[str | None, str | None]:
    """Return the action's target and the state, as far as the system shows them."""
    system = await service.read_system()
    path = link(system.data, "Oem", "Nvidia") if system is not None else None
    nvidia: Json = await service.get(path) if path is not None else {}
    return target_of(action_of(nvidia, "HostRshim.Set")), text(nvidia.get("HostRshim"))


async def _read_enabled(service: Service, path: str) -> bool | None:
    state = at(await service.get(path), "BmcRShim", "BmcRShimEnabled")
    return state if isinstance(state, bool) else None
