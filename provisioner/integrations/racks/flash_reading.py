"""Whether a flash or a copy of one runs behind a BMC: what an Off or a power cycle would break."""

from __future__ import annotations

from provisioner.adapters.redfish.client import Redfish
from provisioner.model.inventory import BackgroundCopy
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import PortError

_WAIT = "Wait for its end; a unit that leaks is switched off all the same: `rack water --off`."


async def find_flash(client: Redfish, unit: str) -> Blocker | None:
    """Return what runs on a unit, or that it could not be read; None: surely nothing does."""
    try:
        tasks = await client.read_tasks()
        inventory = await client.read_firmware(unit, unit)
    except PortError as error:
        detail = f"what runs on it could not be read: {error}"
        return Blocker(reason=error.reason, subject=unit, detail=detail[:300], unblock=_WAIT)
    if tasks:
        detail = f"a task runs on it: {', '.join(tasks[:4])}"
        return Blocker(reason=Reason.BUSY, subject=unit, detail=detail, unblock=_WAIT)
    copying = [
        one.slot
        for one in inventory.components
        if one.background_copy not in (None, BackgroundCopy.COMPLETED)
    ]
    lost = [gap for gap in inventory.gaps if gap.reason in (Reason.BUSY, Reason.UNREACHABLE)]
    if copying or lost:
        of = ", ".join(copying[:4]) or f"{lost[0].source}: {lost[0].detail}"
        detail = f"a copy of its firmware runs, or was not read: {of}"[:300]
        return Blocker(reason=Reason.BUSY, subject=unit, detail=detail, unblock=_WAIT)
    return None
