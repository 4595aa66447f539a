"""The time of a BMC: read, compared with ours, and set through NTP or, without it, by hand.

source: DMTF schemas Manager 1.19 (DateTime, DateTimeLocalOffset) and ManagerNetworkProtocol 1.8
(NTP.NTPServers, NTP.ProtocolEnabled); trees of a DGX H100, a PowerEdge R750 and a BlueField-3.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from provisioner.adapters.redfish.parsing import Json, as_object, link, objects, text, truth
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.settings.reading import raise_unread_bios, read_bios
from provisioner.adapters.redfish.walk import ROOT, Resource, Walk
from provisioner.model.inventory import BmcClock
from provisioner.model.machine.settings import BmcAccount, BmcRemainders
from provisioner.model.outcome import Blocker, Reason
from provisioner.quirks.quirk import Licence

# ------------------------------------------------------------------------------
# Names of the licences that a BMC lists. Keys and entitlements are secrets, and are left alone.


_STANDARD = (("LicenseService",), ("Licenses",))  # DMTF LicenseService 1.0.0, from the root
_STANDARD_FIELDS = ("Name", "LicenseType", "Id")
_NAME_MAX = 120  # a name that a person reads; licences themselves are longer


async def list_licences(service: Service) -> tuple[str, ...] | None:
    """Return the names of the licences of a BMC; None: it lists none that can be read.

    A vendor's declared place comes first, then the standard service.
    """
    walk = service.walk()
    licence = service.quirk.licence
    if licence is None:
        return await _follow(walk, await walk.read_root(), _STANDARD, _STANDARD_FIELDS)
    manager = await service.read_manager()
    return await read_licence_names(walk, licence, manager.data if manager is not None else {})


async def read_licence_names(walk: Walk, licence: Licence, manager: Json) -> tuple[str, ...] | None:
    """Return the names at the vendor's declared place; None: it lists none that can be read."""
    return await _follow(walk, manager, licence.hops, licence.fields)


async def _follow(
    walk: Walk, data: Json, hops: Sequence[Sequence[str]], fields: Sequence[str]
) -> tuple[str, ...] | None:
    gaps_before = len(walk.gaps)
    path: str | None = None
    for hop in hops:
        path = link(data, *hop)
        if path is None:
            return None
        data = (await walk.read(path)).data
    listed = [data]
    if "Members" in data:
        listed = [member.data for member in await walk.read_members(path)]
    if not data or len(walk.gaps) > gaps_before:
        return None
    return tuple(name[:_NAME_MAX] for one in objects(listed) for name in _list_texts(one, fields))


def _list_texts(licence: Json, fields: Sequence[str]) -> list[str]:
    values = [licence.get(field) for field in fields]
    flat = [item for value in values for item in (value if isinstance(value, list) else [value])]
    return [text for text in flat if isinstance(text, str) and text]


# ------------------------------------------------------------------------------
# Reads the things that a tenant may have left in a BMC: accounts, subscriptions, waiting values.
#
# A tenant with root on its host reaches the BMC in band (KCS, a host interface) and may add users
# there, without any password of ours.


_NO_ROLE = "None"  # Dell's role of a slot that nobody uses
_KEY_MAX = 16_384  # characters of a key's line
_BLOB_MIN = 32  # bytes: an Ed25519 key has 51, and no name of a type is Base64 of so many
_STREAM = "SSE"  # a connection that is open now; it ends with its client


async def read_remainders(service: Service) -> BmcRemainders:
    """Return one reading. Raises `PortError` if the BMC does not answer."""
    walk = service.walk()
    root = await walk.read_root()
    accounts = None
    if (listed := await _list_members(walk, root, "AccountService", "Accounts")) is not None:
        shown = [await _read_keys(walk, account, body) for account, body in _list_enabled(listed)]
        accounts = tuple(sorted(shown, key=lambda a: a.name))
    destinations = None
    if (ends := await _list_members(walk, root, "EventService", "Subscriptions")) is not None:
        sent = [e.data for e in ends if text(e.data.get("SubscriptionType")) != _STREAM]
        destinations = tuple(sorted({d for e in sent if (d := text(e.get("Destination")))}))
    system = await service.read_system()
    bios = None
    if system is not None:  # a registry is read where values wait; without one they are named too
        own = service.walk()
        bios = await read_bios(service, own, root, system.data, registry=False)
        raise_unread_bios(own, bios)  # what waits there is not known to be nothing
    waiting = None if bios is None else {n: str(v) for n, v in sorted(bios.pending.items())}
    gaps = tuple(dict.fromkeys(f"{g.source}: {g.detail}"[:200] for g in walk.gaps))
    return BmcRemainders(
        accounts=accounts, destinations=destinations, waiting=waiting, gaps=gaps[:8]
    )


async def _list_members(
    walk: Walk, root: Json, service: str, collection: str
) -> list[Resource] | None:
    """Return the members of a service's collection; None where the BMC has no such collection."""
    held = await walk.read_child(Resource(ROOT, root), service)
    if held is None:
        return None
    listed = await walk.read_child(held, collection)
    return None if listed is None else await walk.read_members(listed.path)


async def _read_keys(walk: Walk, account: BmcAccount, body: Json) -> BmcAccount:
    """Return the account with the SSH keys that it may log in by.

    source: DMTF ManagerAccount 1.9 (Keys), Key 1.0 (KeyString)
    """
    if link(body, "Keys") is None:
        return account
    keys = [fingerprint_key(k.data.get("KeyString")) for k in await walk.read_linked(body, "Keys")]
    return account.model_copy(update={"keys": tuple(sorted(keys))})


def fingerprint_key(line: object) -> str:
    """Return the fingerprint of an OpenSSH public key as ssh-keygen prints it."""
    if not isinstance(line, str):
        return "a key that is not shown"
    text_of_key = line[:_KEY_MAX].strip()
    for piece in text_of_key.split():
        with contextlib.suppress(binascii.Error, ValueError):
            blob = base64.b64decode(piece, validate=True)
            if len(blob) >= _BLOB_MIN:
                digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
                return f"SHA256:{digest}"
    return f"unreadable {hashlib.sha256(text_of_key.encode(errors='replace')).hexdigest()[:16]}"


def _list_enabled(listed: list[Resource]) -> Iterator[tuple[BmcAccount, Json]]:
    """Yield the accounts that may log in; Dell lists sixteen slots, most of them empty."""
    for account in listed:
        name = text(account.data.get("UserName"))
        role = text(account.data.get("RoleId")) or ""
        is_on = truth(account.data.get("Enabled"))
        if name and is_on is not False and role != _NO_ROLE:
            yield BmcAccount(name=name, role=role), account.data
        elif account.data and not name and is_on:
            yield BmcAccount(name=f"no name at {account.path}"[:120], role=role), account.data


SET_WITHIN_S = 5.0  # a clock that is read in whole seconds over a slow answer is no better
_SERVERS_MAX = 4  # of those that a BMC lists; all trees have two or three


async def read_clock(service: Service, now: Callable[[], float]) -> BmcClock | None:
    """Return the clock of the BMC's own manager; None if it has no manager."""
    before = now()
    manager = await service.read_manager()
    if manager is None:
        return None
    after = now()
    middle = (before + after) / 2
    shown = _parse_time(text(manager.data.get("DateTime")))
    ntp = as_object((await _read_network(service, manager.data)).get("NTP"))
    return BmcClock(
        skew_s=None if shown is None else round(shown - middle, 1),
        uncertainty_s=round((after - before) / 2, 1),
        offset=text(manager.data.get("DateTimeLocalOffset")),
        ntp=truth(ntp.get("ProtocolEnabled")),
        ntp_servers=_servers(ntp),
        source=manager.path,
    )


async def set_clock(
    service: Service, servers: Sequence[str], now: Callable[[], float]
) -> Blocker | None:
    """Have the BMC take its time from these servers; one without NTP gets our time instead.

    A BMC that does so already is sent nothing.
    """
    manager = await service.read_manager()
    data: Json = manager.data if manager is not None else {}
    path = link(data, "NetworkProtocol")
    network = await _read_network(service, data)
    ntp = as_object(network.get("NTP"))
    if path is not None and "NTPServers" in ntp and servers:
        if truth(ntp.get("ProtocolEnabled")) and _servers(ntp) == tuple(servers):
            return None
        body = {"NTP": {"ProtocolEnabled": True, "NTPServers": list(servers)}}
        return await service.patch(path, body, "time")
    if manager is None or "DateTime" not in data:
        return service.not_offered("time", "time that can be set: neither NTP servers nor DateTime")
    shown = _parse_time(text(data.get("DateTime")))
    if shown is not None and abs(shown - now()) <= SET_WITHIN_S:
        return None
    stamp = datetime.fromtimestamp(now(), UTC).isoformat(timespec="seconds")
    only = ("DateTime",)
    refused = await service.patch(manager.path, {"DateTime": stamp}, "time", always=only)
    if refused is not None and refused.reason is Reason.PRECONDITION:
        # nothing was changed: a tag over the whole resource is another one each second
        stamp = datetime.fromtimestamp(now(), UTC).isoformat(timespec="seconds")
        return await service.patch(
            manager.path, {"DateTime": stamp}, "time", if_match="any", always=only
        )
    return refused


async def _read_network(service: Service, manager: Json) -> Json:
    path = link(manager, "NetworkProtocol")
    return await service.get(path) if path is not None else {}


def _servers(ntp: Json) -> tuple[str, ...]:
    """Return the servers without blanks around them, as a DGX prints them."""
    listed = ntp.get("NTPServers")
    named = [text(one) for one in listed] if isinstance(listed, list) else []
    return tuple(one for one in named[:_SERVERS_MAX] if one)


def _parse_time(shown: str | None) -> float | None:
    """Return the seconds since the epoch; a time without an offset is UTC, as DSP0266 9.5 asks."""
    if shown is None:
        return None
    try:
        moment = datetime.fromisoformat(shown)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
