"""Reads the things that a tenant may have left in a BMC: accounts, subscriptions, waiting values.

A tenant with root on its host reaches the BMC in band (KCS, a host interface) and may add users
there, without any password of ours.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
from collections.abc import Iterator

from provisioner.adapters.redfish.parsing import Json, link, text, truth
from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.settings.reading import read_bios
from provisioner.adapters.redfish.walk import Resource, Walk
from provisioner.model.machine.remainders import BmcAccount, BmcRemainders

_NO_ROLE = "None"  # Dell's role of a slot that nobody uses
_KEY_MAX = 16_384  # characters of a key's line
_BLOB_MIN = 32  # bytes: an Ed25519 key has 51, and no name of a type is Base64 of so many
_STREAM = "SSE"  # a connection that is open now; it ends with its client


async def read_remainders(service: Service) -> BmcRemainders:
    """Return one reading. Raises `PortError` if the BMC does not answer."""
    walk = service.walk()
    root = await walk.read_root()
    accounts = None
    if (path := link(root, "AccountService")) is not None:
        listed = await walk.read_linked((await walk.read(path)).data, "Accounts")
        shown = [await _read_keys(walk, account, body) for account, body in _list_enabled(listed)]
        accounts = tuple(sorted(shown, key=lambda a: a.name))
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
        if name and truth(account.data.get("Enabled")) is not False and role != _NO_ROLE:
            yield BmcAccount(name=name, role=role), account.data
