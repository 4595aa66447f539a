"""Syslog servers of a BMC, by the vendor's own attributes: quirk `syslog`.

DMTF has event destinations of syslog (EventDestination 1.9), which no recorded service offers.
"""

from __future__ import annotations

from typing import Any

from provisioner.adapters.redfish.parsing import Json, as_object, at, objects, path_of, text
from provisioner.adapters.redfish.service import Service, not_offered
from provisioner.adapters.redfish.walk import Walk
from provisioner.model.outcome import Blocker
from provisioner.quirks import Quirk

OFF = "off"


async def read_syslog(walk: Walk, quirk: Quirk, manager: Json) -> tuple[str, str] | None:
    """Return the path of the attributes, and the servers as a setting; None: it shows none."""
    rule = quirk.syslog
    if rule is None:
        return None
    for one in objects(at(manager, *rule.links) or []):
        path = path_of(one)
        shown = as_object((await walk.read(path)).data.get("Attributes")) if path else {}
        if path is not None and rule.switch in shown:
            servers = [name for key in rule.servers if (name := text(shown.get(key)))]
            is_on = shown[rule.switch] == rule.on and bool(servers)
            return path, ",".join(servers) if is_on else OFF
    return None


async def build_change(
    service: Service, manager: Json, value: str
) -> tuple[str, dict[str, Any]] | Blocker | None:
    """Return the request that sets the servers; None: they are set already."""
    rule = service.quirk.syslog
    shown = await read_syslog(service.walk(), service.quirk, manager)
    if rule is None or shown is None:
        return not_offered("syslog", "syslog attributes that a source names")
    path, running = shown
    if running == value:
        return None
    if value == OFF:
        return path, {"Attributes": {rule.switch: rule.off}}
    chosen = value.split(",")
    if len(chosen) > len(rule.servers):
        return not_offered("syslog", f"more than {len(rule.servers)} servers")
    filled = [*chosen, *[""] * (len(rule.servers) - len(chosen))]
    servers = dict(zip(rule.servers, filled, strict=True))
    return path, {"Attributes": {rule.switch: rule.on, **servers}}
