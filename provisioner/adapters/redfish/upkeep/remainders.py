"""Reads the things that a tenant may have left in a BMC: accounts, subscriptions, waiting values.

A tenant with root on its host reaches the BMC in band (KCS, a host interface) and may add users
there, without any password of ours.
"""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.adapters.redfish.parsing import link, text, truth
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.settings.reading import read_bios
from provisioner.adapters.redfish.walk import Resource
from provisioner.model.machine.remainders import BmcAccount, BmcRemainders

_NO_ROLE = "None"  # Dell's role of a slot that nobody uses
_STREAM = "SSE"  # a connection that is open now; it ends with its client


async def read_remainders(service: Service) -> BmcRemainders:
    """Return one reading. Raises `PortError` if the BMC does not answer."""
    walk = service.walk()
    root = await walk.read_root()
    accounts = None
    if (path := link(root, "AccountService")) is not None:
        listed = await walk.read_linked((await walk.read(path)).data, "Accounts")
        accounts = tuple(sorted(_list_enabled(listed), key=lambda a: a.name))
    destinations = None
    if (path := link(root, "EventService")) is not None:
        ends = await walk.read_linked((await walk.read(path)).data, "Subscriptions")
        sent = [e.data for e in ends if text(e.data.get("SubscriptionType")) != _STREAM]
        destinations = tuple(sorted({d for e in sent if (d := text(e.get("Destination")))}))
    system = await service.read_system()
    bios = None
    if system is not None:  # a registry is read where values wait; without one they are named too
        bios = await read_bios(service, service.walk(), root, system.data, registry=False)
    waiting = None if bios is None else {n: str(v) for n, v in sorted(bios.pending.items())}
    gaps = tuple(dict.fromkeys(f"{g.source}: {g.detail}"[:200] for g in walk.gaps))
    return BmcRemainders(
        accounts=accounts, destinations=destinations, waiting=waiting, gaps=gaps[:8]
    )


def _list_enabled(listed: list[Resource]) -> Iterator[BmcAccount]:
    """Yield the accounts that may log in; Dell lists sixteen slots, most of them empty."""
    for account in listed:
        name = text(account.data.get("UserName"))
        role = text(account.data.get("RoleId")) or ""
        if name and truth(account.data.get("Enabled")) is not False and role != _NO_ROLE:
            yield BmcAccount(name=name, role=role)
