"""The loops of racks that the leading daemon runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from provisioner.integrations.racks.duty.certificate_watch import CertificateWatch
from provisioner.integrations.racks.duty.rack_duty import DutyParts, RackDuty
from provisioner.integrations.racks.duty.rack_holds import RackHolds
from provisioner.integrations.racks.duty.rack_water import RackWater


def build_loops(parts: DutyParts) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
    """Return the loops by name; all go by the same logins.

    What holds nodes runs without `racks_update`, too: a campaign may have begun before.
    """
    duty = RackDuty(parts)
    loops = {"rack holds": RackHolds(duty).run, "rack certificates": CertificateWatch(parts).run}
    if parts.settings.racks_update:
        loops |= {"rack updates": duty.run, "rack water": RackWater(duty).run}
    return loops
