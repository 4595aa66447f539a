"""Names of the licences that a BMC lists. Keys and entitlements are secrets, and are left alone."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.adapters.redfish.parsing import Json, link, objects
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.walk import Walk
from provisioner.quirks.quirk import Licence

_STANDARD = (("LicenseService",), ("Licenses",))  # DMTF LicenseService 1.0.0, from the root
_STANDARD_FIELDS = ("Name", "LicenseType", "Id")
_NAME_MAX = 120  # a name that a person reads; licences themselves are longer


async def list_licences(service: Service) -> tuple[str, ...] | None:
    """Return the names of the licences of a BMC; None: it lists none that can be read.

    A vendor's declared place comes first, then the standard service.
    """
    walk = service.walk()
    licence = service.quirk.licence
    if licence is None:
        return await _follow(walk, await walk.read_root(), _STANDARD, _STANDARD_FIELDS)
    manager = await service.read_manager()
    return await read_licence_names(walk, licence, manager.data if manager is not None else {})


async def read_licence_names(walk: Walk, licence: Licence, manager: Json) -> tuple[str, ...] | None:
    """Return the names at the vendor's declared place; None: it lists none that can be read."""
    return await _follow(walk, manager, licence.hops, licence.fields)


async def _follow(
    walk: Walk, data: Json, hops: Sequence[Sequence[str]], fields: Sequence[str]
) -> tuple[str, ...] | None:
    gaps_before = len(walk.gaps)
    path: str | None = None
    for hop in hops:
        path = link(data, *hop)
        if path is None:
            return None
        data = (await walk.read(path)).data
    listed = [data]
    if "Members" in data:
        listed = [member.data for member in await walk.read_members(path)]
    if not data or len(walk.gaps) > gaps_before:
        return None
    return tuple(name[:_NAME_MAX] for one in objects(listed) for name in _list_texts(one, fields))


def _list_texts(licence: Json, fields: Sequence[str]) -> list[str]:
    values = [licence.get(field) for field in fields]
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return [text for text in flat if isinstance(text, str) and text]
