"""Reads the databases of Secure Boot, and asks for the factory's keys.

source: DMTF SecureBoot 1.1 and SecureBootDatabase 1.0; captured trees of a DGX H100, whose every
database has a `…Default` beside it, and of a BlueField-3, whose defaults are empty
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

from provisioner.adapters.redfish.obstacles import find_obstacle
from provisioner.adapters.redfish.parsing import Json, at, link, objects, path_of, text, truth
from provisioner.adapters.redfish.service import Service, action_of, not_offered, target_of
from provisioner.adapters.redfish.walk import Resource, Walk
from provisioner.model.machine.secure_boot_keys import KeyDatabase, SecureBootKeys
from provisioner.model.outcome import Blocker

_ACTION = "#SecureBoot.ResetKeys"
_PARAMETER = "ResetKeysType"
_RESET = "ResetAllKeysToDefault"
_DEFAULT = "Default"  # the end of the name of a factory's set
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]{1,40000})-----END CERTIFICATE")


async def read_secure_boot_keys(service: Service) -> SecureBootKeys | None:
    """Return one reading; None: the service shows no Secure Boot.

    Raises `PortError` if the BMC does not answer.
    """
    walk = service.walk()
    system = await service.read_system()
    path = None if system is None else link(system.data, "SecureBoot")
    if path is None:
        return None
    body = (await walk.read(path)).data
    if not body:
        return None
    sets: dict[str, dict[str, str]] = {}
    for database in await walk.read_linked(body, "SecureBootDatabases"):
        name = text(database.data.get("DatabaseId")) or text(database.data.get("Id"))
        if name:
            sets[name] = await _read_entries(walk, database)
    databases = tuple(
        KeyDatabase(
            name=name,
            entries=tuple(sorted(entries)),
            factory=tuple(sorted(sets[name + _DEFAULT])) if name + _DEFAULT in sets else None,
            titles={entry: title for entry, title in entries.items() if title},
        )
        for name, entries in sorted(sets.items())
        if not name.endswith(_DEFAULT)
    )
    return SecureBootKeys(
        enabled=truth(body.get("SecureBootEnable")),
        mode=text(body.get("SecureBootMode")),
        databases=databases,
        resets=_RESET in await _list_types(service, action_of(body, _ACTION)),
        gaps=tuple(dict.fromkeys(f"{g.source}: {g.detail}"[:200] for g in walk.gaps))[:8],
    )


async def reset_secure_boot_keys(service: Service) -> Blocker | None:
    """Ask for the factory's keys; the boot that follows carries it out."""
    if (refused := await find_obstacle(service, "settings")) is not None:
        return refused
    system = await service.read_system()
    path = None if system is None else link(system.data, "SecureBoot")
    if path is None:
        return not_offered("SecureBoot", "SecureBoot resource")
    action = action_of(await service.read_part(path), _ACTION)
    target = target_of(action)
    if target is None or _RESET not in await _list_types(service, action):
        return not_offered("SecureBoot", f"{_ACTION.strip('#')} with {_RESET}")
    reply = await service.post(target, {_PARAMETER: _RESET}, "SecureBoot")
    return reply if isinstance(reply, Blocker) else None


async def _read_entries(walk: Walk, database: Resource) -> dict[str, str]:
    """Return the entries of one database, each with the subject of its certificate."""
    entries: dict[str, str] = {}
    for certificate in await walk.read_linked(database.data, "Certificates"):
        shown = certificate.data.get("CertificateString")
        title = text(at(certificate.data, "Subject", "CommonName")) or ""
        entries[fingerprint_pem(shown) or f"unreadable {certificate.path}"] = title
    for signature in await walk.read_linked(database.data, "Signatures"):
        shown = text(signature.data.get("SignatureString")) or f"unreadable {signature.path}"
        entries[shown.lower()] = ""
    return entries


def fingerprint_pem(pem: object) -> str:
    """Return the SHA-256 of the first certificate in a text; "": there is none."""
    match = _PEM.search(pem) if isinstance(pem, str) else None
    if match is None:
        return ""
    try:
        der = base64.b64decode("".join(match[1].split()), validate=True)
    except (binascii.Error, ValueError):
        return ""
    return hashlib.sha256(der).hexdigest()


async def _list_types(service: Service, action: Json) -> list[str]:
    listed = action.get(f"{_PARAMETER}@Redfish.AllowableValues")
    if not isinstance(listed, list):
        info = link(action, "@Redfish.ActionInfo") or path_of(action.get("@Redfish.ActionInfo"))
        parameters = (await service.get(info)).get("Parameters") if info else None
        listed = next(
            (
                p.get("AllowableValues")
                for p in objects(parameters or [])
                if p.get("Name") == _PARAMETER
            ),
            None,
        )
    return [t for t in (text(v) for v in listed) if t] if isinstance(listed, list) else []
