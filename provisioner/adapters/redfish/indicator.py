"""Switches the LED that marks a chassis for people on site, with the property that a BMC offers.

`LocationIndicatorActive` where it is a boolean (DSP0268: it replaces `IndicatorLED`), else
`IndicatorLED`. Recorded trees have either of them on the system or on its chassis, and null where
it means nothing (DGX: chassis of components); the property is read before it is written.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from provisioner.adapters.redfish.parsing import Json, as_object, at, path_of
from provisioner.adapters.redfish.service import Service, not_offered
from provisioner.model.outcome import Blocker

CHASSIS_MAX = 4  # of a system: a server has one or two


async def identify(service: Service, *, on: bool) -> Blocker | None:
    """Switch it, and read back that it is so; why it is not, else. Raises `PortError`."""
    refused: Blocker | None = None
    async for path, data in _bearers(service):
        for body in _bodies(data, on=on):
            if all(data.get(k) == v for k, v in body.items()):
                return None
            refused = await service.patch(path, body, "identify LED")
            if refused is None and is_shown(await service.get(path), on=on):
                return None
    return refused or not_offered("host", "identify LED that can be switched")


def is_shown(data: Json, *, on: bool) -> bool:
    """Whether a resource says that its LED is as it is to be."""
    active = data.get("LocationIndicatorActive")
    if isinstance(active, bool):
        return active is on
    return (data.get("IndicatorLED") in ("Lit", "Blinking")) is on


def _bodies(data: Json, *, on: bool) -> list[dict[str, object]]:
    """Return the bodies to write, best first; none where the resource has no such property."""
    if isinstance(data.get("LocationIndicatorActive"), bool):
        return [{"LocationIndicatorActive": on}]
    if isinstance(data.get("IndicatorLED"), str):
        values = ("Blinking", "Lit") if on else ("Off",)
        return [{"IndicatorLED": v} for v in values]
    return []


async def _bearers(service: Service) -> AsyncIterator[tuple[str, Json]]:
    """The host's system, then its chassis."""
    system = await service.read_system()
    if system is None:
        return
    yield system.path, system.data
    chassis = at(system.data, "Links", "Chassis")
    for one in (chassis if isinstance(chassis, list) else [])[:CHASSIS_MAX]:
        path = path_of(as_object(one))
        if path:
            yield path, await service.get(path)
