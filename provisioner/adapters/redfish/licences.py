"""Licences that a BMC needs for what it is asked to do, read before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Sequence

from provisioner.adapters.redfish.parsing import Json, link, objects
from provisioner.adapters.redfish.service import Service
from provisioner.model.outcome import Blocker, Reason


async def find_missing_licence(service: Service, needed_for: str) -> Blocker | None:
    """Return a blocker if the BMC lists its licences and none of them is sufficient.

    A service that lists none at all, or that could not be read, gives no blocker: then only its
    own answer to the request can say so.
    """
    licence = service.quirk.licence
    if licence is None or needed_for not in licence.needed_for:
        return None
    manager = await service.manager()
    data: Json = manager.data if manager is not None else {}
    walk = service.walk()
    for hop in licence.hops:
        path = link(data, *hop)
        if path is None:
            return None
        data = (await walk.read(path)).data
    listed = [data]
    if "Members" in data:
        listed = [member.data for member in await walk.members(path)]
    if not data or walk.gaps:
        return None
    names = [name for one in objects(listed) for name in _texts(one, licence.fields)]
    if any(re.search(licence.sufficient, name, re.IGNORECASE) for name in names):
        return None
    installed = ", ".join(name[:60] for name in names[:4]) or "none"
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject="licence",
        detail=f"this BMC lacks the licence {licence.title}; it has {installed}",
        unblock=f"Install the licence {licence.title} in the BMC, then retry.",
    )


def _texts(licence: Json, fields: Sequence[str]) -> list[str]:
    values = [licence.get(field) for field in fields]
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return [text for text in flat if isinstance(text, str) and text]
