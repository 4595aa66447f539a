"""What only a visit to the maintenance image asks of a BMC: its drives, and the host's addresses.

Kept out of the inventory: a service needs a request for each drive, and nothing else asks.
"""

from __future__ import annotations

from provisioner.adapters.redfish.parsing import at, link, mac, objects, path_of, text
from provisioner.adapters.redfish.service import Service, raise_unread

DRIVES_MAX = 128


async def drive_serials(service: Service) -> tuple[str, ...]:
    """Serials of the drives that the host's system lists, sorted; () if it lists none.

    Raises `Unreachable` when a drive or the list does not come: silence is no absence.
    """
    system = await service.read_system()
    path = link(system.data, "Storage") if system is not None else None
    if path is None:
        return ()
    walk = service.walk()
    drives: list[str] = []
    for storage in await walk.read_members(path):
        listed = objects(at(storage.data, "Drives"))
        drives += [p for d in listed if (p := path_of(d)) is not None]
    serials = []
    for drive in await walk.read_several(list(dict.fromkeys(drives))[:DRIVES_MAX]):
        state = text(at(drive.data, "Status", "State"))
        serial = text(drive.data.get("SerialNumber"))
        if serial is not None and state != "Absent":
            serials.append(serial)
    raise_unread(walk.gaps)
    return tuple(sorted(serials))


async def host_macs(service: Service) -> tuple[str, ...]:
    """Addresses of the host's own Ethernet interfaces, sorted; many services list none."""
    system = await service.read_system()
    path = link(system.data, "EthernetInterfaces") if system is not None else None
    addresses = set()
    walk = service.walk()
    for interface in await walk.read_members(path):
        for field in ("MACAddress", "PermanentMACAddress"):
            if (address := mac(interface.data.get(field))) is not None:
                addresses.add(address)
    raise_unread(walk.unread)
    return tuple(sorted(addresses))
