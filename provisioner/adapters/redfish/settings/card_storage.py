"""The orders of a BlueField's UEFI to wipe its eMMC and its NVMe at the card's next start.

They are attributes that are acts (`EmmcWipe`, `NvmeWipe`: NVIDIA BlueField BSP 4.9.1, Redfish; a
captured tree of a BlueField-3): they read false again once they were carried out.
"""

from __future__ import annotations

from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.settings.bios_writes import set_bios
from provisioner.adapters.redfish.settings.reading import read_bios
from provisioner.model.base import Record
from provisioner.model.outcome import Blocker
from provisioner.planning.machine_settings.resolution import ATTRIBUTE

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
