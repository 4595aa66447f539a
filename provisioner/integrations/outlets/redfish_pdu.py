"""A PDU with a Redfish service.

source: DMTF DSP8010, Outlet.v1_4 (PowerState, #Outlet.PowerControl with the parameter PowerState),
and the mockup DSP2043 rackpdu: /redfish/v1/PowerEquipment/RackPDUs/1/Outlets/A1. Server Technology
gives the action a target without `Actions` in it, so the target is read and never built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.model.location import OutletState
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import BmcAddress, BmcTransport, Call, Malformed, Reply

ROOT = "/redfish/v1/"
_STATES = {"On": OutletState.ON, "Off": OutletState.OFF}  # PoweringOn and PoweringOff: unknown
UNKNOWN = OutletState.UNKNOWN
_ACTION = "#Outlet.PowerControl"
_MEMBERS_MAX = 64  # rack PDUs behind one service: a chain has at most 64 by any vendor's manual


class RedfishPdu:
    """`ports.power.Pdu` over Redfish; `transport` logs in, and out when its maker closes it."""

    def __init__(self, transport: BmcTransport, address: BmcAddress) -> None:
        self._transport = transport
        self._address = address
        self._paths: dict[str, str] = {}

    async def read_outlet(self, outlet: str) -> OutletState | Blocker:
        """Return the state that the PDU reports now."""
        data = await self._read(outlet)
        if isinstance(data, Blocker):
            return data
        return parse_power_state(data)

    async def switch_outlet(self, outlet: str, *, on: bool) -> Blocker | None:
        """Post `Outlet.PowerControl` to the target that the outlet lists."""
        data = await self._read(outlet)
        if isinstance(data, Blocker):
            return data
        asked = "On" if on else "Off"
        target = find_power_target(data, asked)
        if target is None:
            return self._refuse(outlet, f"it offers no {_ACTION} to {asked}")
        reply = await self._request("POST", target, {"PowerState": asked})
        if reply.status >= 400:
            return self._refuse(outlet, f"{_ACTION} {asked}: HTTP status {reply.status}")
        return None

    async def _read(self, outlet: str) -> Mapping[str, Any] | Blocker:
        """Return the resource of an outlet, which must carry the id that was asked for."""
        if outlet not in self._paths:
            path = await self._find_path(outlet)
            if isinstance(path, Blocker):
                return path
            self._paths[outlet] = path
        data = await self._get(self._paths[outlet])
        if data.get("Id") != outlet.rpartition("/")[2]:
            del self._paths[outlet]
            return self._refuse(outlet, f"the resource there has the id {data.get('Id')!r:.40}")
        return data

    async def _find_path(self, outlet: str) -> str | Blocker:
        """Return the path of `OUTLET`, or of `RACKPDU/OUTLET` where there are several."""
        unit, _, name = outlet.rpartition("/")
        equipment = link_path(await self._get(ROOT), "PowerEquipment")
        units = await self._members(link_path(await self._get(equipment), "RackPDUs"))
        chosen = [u for u in units if not unit or u.rsplit("/", 1)[-1] == unit]
        if len(chosen) != 1:
            several = f"{len(chosen)} rack PDUs fit; write RACKPDU/OUTLET"
            return self._refuse(outlet, several if chosen else f"there is no rack PDU {unit!r}")
        outlets = await self._members(link_path(await self._get(chosen[0]), "Outlets"))
        fitting = [o for o in outlets if o.rsplit("/", 1)[-1] == name]
        return fitting[0] if fitting else self._refuse(outlet, "there is no such outlet")

    async def _members(self, path: str) -> list[str]:
        members = (await self._get(path)).get("Members")
        if not isinstance(members, list):
            raise Malformed(f"{path} is no collection")
        paths = [m.get("@odata.id") for m in members[: 16 * _MEMBERS_MAX] if isinstance(m, dict)]
        return [p.rstrip("/") for p in paths if isinstance(p, str)]

    async def _get(self, path: str) -> Mapping[str, Any]:
        reply = await self._request("GET", path)
        data = reply.json() if reply.status < 400 else None
        if not isinstance(data, dict):
            raise Malformed(f"GET {path}: HTTP status {reply.status}, no resource")
        return data

    async def _request(self, method: str, path: str, body: object = None) -> Reply:
        return await self._transport.request(self._address, Call(method, path, body=body))

    def _refuse(self, outlet: str, detail: str) -> Blocker:
        return Blocker(
            reason=Reason.NOT_OFFERED,
            subject=f"{self._address.url}/{outlet}"[:120],
            detail=detail,
            unblock="Correct `outlets` of the hardware list, or switch outlets by another kind of "
            "PDU in the settings.",
        )


def parse_power_state(data: Mapping[str, Any]) -> OutletState:
    """Return the state of an outlet's resource; a transition is unknown."""
    value = data.get("PowerState")
    return _STATES.get(value, UNKNOWN) if isinstance(value, str) else UNKNOWN


def find_power_target(data: Mapping[str, Any], asked: str) -> str | None:
    """Return the target of the outlet's action, unless it lists values without `asked`."""
    actions = data.get("Actions")
    action = actions.get(_ACTION) if isinstance(actions, dict) else None
    if not isinstance(action, dict):
        return None
    allowed = action.get("PowerState@Redfish.AllowableValues")
    target = action.get("target")
    if isinstance(allowed, list) and asked not in allowed:
        return None
    return target if isinstance(target, str) and target.startswith("/redfish/") else None


def link_path(data: Mapping[str, Any], name: str) -> str:
    """Return the path of a link. Raises `Malformed` where there is none."""
    link = data.get(name)
    path = link.get("@odata.id") if isinstance(link, dict) else None
    if not isinstance(path, str) or not path.startswith("/redfish/"):
        raise Malformed(f"the service has no {name}")
    return path
