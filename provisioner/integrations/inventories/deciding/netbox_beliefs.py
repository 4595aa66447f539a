"""Read the records of hosts from a NetBox's objects, for a comparison with the daemon's. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.integrations.inventories.deciding.belief import Belief
from provisioner.integrations.inventories.deciding.belief_comparison import (
    bracket_address,
    format_address,
)
from provisioner.integrations.inventories.deciding.netbox_records import NetBoxKind, NetBoxObject

# dcim/choices.py of NetBox, DeviceStatusChoices; failed, offline and decommissioning say neither
SERVES = {"active": True, "planned": False, "staged": False, "inventory": False}


def list_beliefs(objects: Sequence[NetBoxObject], role: str) -> tuple[Belief, ...]:
    """Return the record of each device that has the role of hosts."""
    sites = {o.key: o.fields.get("name", o.key) for o in objects if o.kind is NetBoxKind.SITE}
    addresses = {
        o.fields["interface"]: o.key.partition("/")[0]
        for o in objects
        if o.kind is NetBoxKind.ADDRESS and o.fields.get("interface")
    }
    beliefs = []
    for device in objects:
        fields = device.fields
        if device.kind is not NetBoxKind.DEVICE or fields.get("role") != role:
            continue
        state = fields.get("status", "")
        bmc = addresses.get(f"{device.key}/bmc", "")
        beliefs.append(
            Belief(
                key=f"device {device.number}",
                name=device.key,
                address=format_address(bracket_address(bmc)),
                serial=fields.get("serial", ""),
                state=state,
                serves=SERVES.get(state),
                tenant=fields.get("tenant", ""),
                site=sites.get(fields.get("site", ""), ""),
                rack=fields.get("rack", "").partition("/")[2],
            )
        )
    return tuple(beliefs)
