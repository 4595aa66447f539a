"""The pinned settings of a host's BIOS and BMC, read through its BMC as components."""

from __future__ import annotations

from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.settings.reading import read_host_settings
from provisioner.model.inventory import Inventory
from provisioner.planning.machine_settings.pinned_sets import (
    BIOS,
    BMC,
    CARD,
    PinnedSets,
    find_card_kind,
)
from provisioner.planning.machine_settings.running_sets import build_components


async def add_settings(
    client: Redfish, inventory: Inventory, sets: PinnedSets, bmc: str = "host"
) -> Inventory:
    """Return the inventory with the sets that run; as it is where none is pinned for this BMC."""
    kinds = (BIOS, BMC) if bmc == "host" else (CARD, find_card_kind(bmc))
    if not any(sets.get(kind) for kind in kinds):
        return inventory
    settings = await read_host_settings(client.service)
    components = build_components(settings, sets, client.quirk.meanings, bmc)
    return inventory.model_copy(
        update={
            "components": (*inventory.components, *components),
            "gaps": (*inventory.gaps, *settings.gaps),
        }
    )
