"""Syslog servers of a BMC, by the vendor's own attributes: quirk `syslog`.

DMTF has event destinations of syslog (EventDestination 1.9), which no recorded service offers.
"""

from __future__ import annotations

from typing import Any

from provisioner.adapters.redfish.parsing import Json, as_object, at, objects, path_of, text
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.walk import Walk
from provisioner.model.outcome import Blocker
from provisioner.quirks import Quirk
from provisioner.quirks.quirk import Syslog

OFF = "off"


_LISTED_MAX = 3  # servers in the form of a list


async def read_syslog(walk: Walk, quirk: Quirk, manager: Json) -> tuple[str, str] | None:
    """Return the path of the attributes, and the servers as a setting; None: it shows none."""
    found = await _read_shown(walk, quirk, manager)
    return None if found is None else (found[0], _list_servers(quirk.syslog, found[1]))


async def build_change(
    service: Service, manager: Json, value: str
) -> tuple[str, dict[str, Any]] | Blocker | None:
    """Return the request that sets the servers; None: they are set already."""
    rule = service.quirk.syslog
    found = await _read_shown(service.walk(), service.quirk, manager)
    if rule is None or found is None:
        return service.not_offered("syslog", "syslog attributes that a source names")
    path, shown = found
    if _list_servers(rule, shown) == value:
        return None
    if value == OFF:
        return path, _nest(rule, {rule.switch: rule.off})
    chosen = value.split(",")
    if _is_listed(rule, shown):
        if len(chosen) > _LISTED_MAX:
            return service.not_offered("syslog", f"more than {_LISTED_MAX} servers")
        entries = [{rule.listed: name} for name in chosen]
        return path, _nest(rule, {rule.switch: rule.on, rule.servers[0]: entries})
    if len(chosen) > len(rule.servers):
        return service.not_offered("syslog", f"more than {len(rule.servers)} servers")
    filled = [*chosen, *[""] * (len(rule.servers) - len(chosen))]
    servers = dict(zip(rule.servers, filled, strict=True))
    return path, _nest(rule, {rule.switch: rule.on, **servers})


async def _read_shown(walk: Walk, quirk: Quirk, manager: Json) -> tuple[str, Json] | None:
    rule = quirk.syslog
    if rule is None:
        return None
    for one in objects(at(manager, *rule.links) or []):
        path = path_of(one)
        shown = as_object(at((await walk.read(path)).data, *rule.inside)) if path else {}
        if path is not None and rule.switch in shown:
            return path, shown
    return None


def _list_servers(rule: Syslog | None, shown: Json) -> str:
    assert rule is not None
    if _is_listed(rule, shown):
        entries = objects(shown[rule.servers[0]], _LISTED_MAX + 1)
        servers = [name for one in entries if (name := text(one.get(rule.listed)))]
    else:
        servers = [name for key in rule.servers if (name := text(shown.get(key)))]
    return ",".join(servers) if shown.get(rule.switch) == rule.on and servers else OFF


def _is_listed(rule: Syslog, shown: Json) -> bool:
    return bool(rule.listed) and isinstance(shown.get(rule.servers[0]), list)


def _nest(rule: Syslog, body: dict[str, Any]) -> dict[str, Any]:
    for key in reversed(rule.inside):
        body = {key: body}
    return body
