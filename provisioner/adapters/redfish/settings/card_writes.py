"""The mode of a BlueField and its host's rights over it: they take effect when the card starts.

The mode is an action of a BlueField-3 (`Mode.Set`, captured tree) and an attribute of older cards
(libredfish, nvidia_dpu.rs, set_nic_mode); the host's rights are an attribute of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.adapters.redfish.parsing import Json, link, text
from provisioner.adapters.redfish.service import Service, action_of, target_of
from provisioner.adapters.redfish.settings.bios_writes import set_bios
from provisioner.model.machine.settings import CARD_MODE
from provisioner.model.outcome import Blocker

MODES = {"dpu": "DpuMode", "nic": "NicMode"}
_SAME = "NicMode"  # the attribute that shows the mode, too


async def set_card(service: Service, settings: Mapping[str, str]) -> Blocker | None:
    """Have these settings run from the card's next start on; those that run are not sent."""
    rest = dict(settings)
    mode = rest.get("card_mode")
    target, shown = await _find_mode_switch(service)
    if mode is not None and target is not None and shown is not None:
        del rest["card_mode"]
    if rest:
        sent = await set_bios(service, rest, own=(_SAME,))
        if isinstance(sent, Blocker):
            return sent
    if mode is None or target is None or shown is None or shown == MODES[mode]:
        return None
    reply = await service.post(target, {CARD_MODE: MODES[mode]}, "card_mode")
    return reply if isinstance(reply, Blocker) else None


async def _find_mode_switch(service: Service) -> tuple[str | None, str | None]:
    """Return the action's target and the mode, as far as the system shows them."""
    system = await service.read_system()
    if system is None:
        return None, None
    path = link(system.data, "Oem", "Nvidia")
    nvidia: Json = await service.get(path) if path is not None else {}
    return target_of(action_of(nvidia, "Mode.Set")), text(nvidia.get(CARD_MODE))
