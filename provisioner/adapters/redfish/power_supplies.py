"""The redundancy of a host's power supplies, looked at before one of them is written.

A supply that takes new firmware gives no power for minutes: the others must be healthy (facts:
hardware 4.1, "one PSU at a time").
"""

from __future__ import annotations

from provisioner.adapters.redfish.host_parts import list_power_supplies
from provisioner.adapters.redfish.parsing import at, text
from provisioner.adapters.redfish.parts import is_present, of_type
from provisioner.adapters.redfish.service import Service
from provisioner.model.outcome import Blocker, Reason


async def find_power_fault(service: Service) -> Blocker | None:
    """Return why no supply may be written now: one of them reports a fault. None: none does."""
    walk = service.walk()
    chassis = of_type(await walk.read_linked(await walk.read_root(), "Chassis"), "Chassis")
    faulty = [
        f"{slot} is {health}"
        for slot, supply in await list_power_supplies(walk, chassis)
        if is_present(supply)
        and (health := text(at(supply.data, "Status", "Health"))) not in (None, "OK")
    ]
    if not faulty:
        return None
    return Blocker(
        reason=Reason.PRECONDITION,
        subject="host.psu",
        detail=f"a power supply reports a fault: {', '.join(faulty[:8])}",
        unblock="Restore the power supplies' redundancy, then retry the node.",
    )
