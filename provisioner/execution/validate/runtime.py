"""Applies the SuperNICs' run-time settings before the checks of a validation.

They are lost at every boot and a report is bound to its boot, so that whatever is certified, and
hence released, has them. Setting them again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.execution.actions.work import Site
from provisioner.execution.observe.inband import until_quiet
from provisioner.execution.steps.methods_inband import make_play_blocker, run_play
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.certification.runtime import select_settings

PLAY = "bluefield_runtime"


async def apply(
    site: Site, node: Node, inventory: Inventory, profile: Mapping[str, str]
) -> Blocker | None:
    """Set the profile on the cards that carry rails. A Blocker: it is not in force."""
    rails = {p.nic_slot for p in node.ports if p.rail >= 0}
    cards = {d.slot: d.pci for d in inventory.devices if d.slot in rails}
    unknown = sorted(slot for slot in rails if not cards.get(slot))
    if unknown:
        return Blocker(
            reason=Reason.PAIRING_FAILED,
            subject=f"{node.id}/{unknown[0]}",
            detail="its PCI address is not known",
            unblock="Take the node in again, with the host's operating system up.",
        )
    if not profile or not rails:
        return None
    if (busy := await until_quiet(site, node, site.settings.playbook_limit_s)) is not None:
        return busy
    chosen = select_settings(profile, site.settings.fabric_overlay)
    variables = {
        "devices": sorted(str(pci) for pci in cards.values()),
        "routing": [s.model_dump() for s in chosen.routing],
        "congestion": [s.model_dump() for s in chosen.congestion],
    }
    result = await run_play(site, node, PLAY, variables)
    if (failed := make_play_blocker(node, PLAY, result)) is not None:
        return failed
    interfaces = result.facts.get("interfaces")
    if isinstance(interfaces, Mapping) and len(interfaces) >= len(cards):
        return None
    return Blocker(
        reason=Reason.UPDATE_FAILED,
        subject=f"{node.id}/{PLAY}",
        detail=f"the play ended well, but the host shows {interfaces!r:.200}",
        unblock="Look at the host: its network cards lack interfaces.",
    )
