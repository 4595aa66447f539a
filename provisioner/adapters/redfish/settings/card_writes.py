"""The mode of a BlueField and its host's rights over it: they take effect when the card starts.

The mode is an action of a BlueField-3 (`Mode.Set`, captured tree) and an attribute of older cards
(libredfish, nvidia_dpu.rs, set_nic_mode); the host's rights are an attribute of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.adapters.redfish.parsing import Json, link, text
from provisioner.adapters.redfish.service import Service, action_of, target_of
from provisioner.adapters.redfish.settings.bios_writes import set_bios
from provisioner.adapters.redfish.settings.reading import raise_unread_bios, read_bios
from provisioner.model.base import Record
from provisioner.model.machine.settings import CARD_MODE
from provisioner.model.outcome import Blocker
from provisioner.planning.machine_settings.resolution import ATTRIBUTE

# ------------------------------------------------------------------------------
# The orders of a BlueField's UEFI to wipe its eMMC and its NVMe at the card's next start.
#
# They are attributes that are acts (`EmmcWipe`, `NvmeWipe`: NVIDIA BlueField BSP 4.9.1, Redfish; a
# captured tree of a BlueField-3): they read false again once they were carried out.


ORDERS = ("EmmcWipe", "NvmeWipe")


class WipeOrders(Record):
    """The orders that a card offers, and those of them that wait for its start."""

    offered: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


async def read_wipe_orders(service: Service) -> WipeOrders:
    """Return the orders of a card; none where its BMC shows no such attribute, as in NIC mode."""
    system = await service.read_system()
    if system is None:
        return WipeOrders()
    walk = service.walk()
    bios = await read_bios(service, walk, await walk.read_root(), system.data, registry=False)
    raise_unread_bios(walk, bios)
    if bios is None or bios.current is None or not bios.target:
        return WipeOrders()
    running = bios.current
    offered = tuple(name for name in ORDERS if name in running)
    waiting = [n for n in offered if bios.pending.get(n) is True or running[n] is True]
    return WipeOrders(offered=offered, waiting=tuple(waiting))


async def order_wipe(service: Service, orders: WipeOrders) -> Blocker | None:
    """Have every storage of the card wiped at its next start; what waits already is not sent."""
    sent = await set_bios(service, {f"{ATTRIBUTE}{name}": "true" for name in orders.offered})
    return sent if isinstance(sent, Blocker) else None


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
