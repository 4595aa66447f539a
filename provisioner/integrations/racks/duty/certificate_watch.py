"""The daemon's loop that tells of certificates of racks' machines before they end.

Four times a day each TLS port of the planned racks is read by a handshake, before any login. What
ends within thirty days, or is over, is a notice of the daemon; what does not answer is
judged by what it last showed: the watch of water tells of silent machines where `racks_update` is
set, and of NVOS nobody. Nothing is replaced.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from provisioner.integrations.racks.duty.certificate_commands import (
    Door,
    Presented,
    judge,
    list_doors,
    read_doors,
)
from provisioner.integrations.racks.duty.node_holds import HoldParts
from provisioner.integrations.racks.plan import read_plan
from provisioner.model.input_error import InputError
from provisioner.runtime import permit

log = logging.getLogger(__name__)
EACH_S = 6 * 3600.0
SUBJECT = "rack certificates"  # of the daemon's notices
NOTICES_MAX = 16
TELLS = frozenset({"over", "ends soon"})


@dataclass
class CertificateWatch:
    """One per daemon."""

    parts: HoldParts
    read: Callable[[Sequence[Door]], Awaitable[Sequence[Presented]]] = read_doors
    _last: dict[Door, Presented] = field(default_factory=dict)

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await self.tick()
            await self.parts.clock.sleep(EACH_S)

    async def tick(self) -> None:
        """Read every certificate once, and tell those that end."""
        file = Path(self.parts.settings.racks_folder) / "racks.yaml"
        try:
            plan = await asyncio.to_thread(read_plan, file)
        except InputError as error:
            log.warning("racks: no certificate was looked at: %s", error)
            return
        now = self.parts.clock.now()
        shown = await self.read(list_doors(plan.racks))
        last = self._last
        self._last = {one.door: one if one.ends_at else last.get(one.door, one) for one in shown}
        told = [_describe(one) for one in self._last.values() if judge(one, now) in TELLS]
        more = len(told) - NOTICES_MAX
        said = (*told[:NOTICES_MAX], *((f"and {more} more",) if more > 0 else ()))
        notices = permit.get_scope().notices
        if said and notices.get(SUBJECT) != said:
            log.warning("racks: %s", "; ".join(said))
        notices[SUBJECT] = said


def _describe(one: Presented) -> str:
    day = time.strftime("%F", time.gmtime(one.ends_at))
    return f"the certificate of {one.door.unit}'s {one.door.what} ends on {day}"
