"""Writes of BIOS attributes and Secure Boot: everything of one boot in one request.

Nothing runs before the host has booted, whatever `GET` shows until then. So a write ends with the
values that wait, read again from the object that took them; what runs is read after the boot.
A service with pending values of somebody else, or with an open job, is left alone: its next boot
would carry out both.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Any

from provisioner.adapters.redfish.messages import (
    Message,
    body_of,
    collect_messages,
    read_refusal,
    task_paths,
)
from provisioner.adapters.redfish.obstacles import find_obstacle
from provisioner.adapters.redfish.parsing import (
    Json,
    as_object,
    at,
    link,
    objects,
    path_of,
    text,
    truth,
)
from provisioner.adapters.redfish.service import (
    UNBLOCK,
    Service,
    action_of,
    raise_unread,
    target_of,
)
from provisioner.adapters.redfish.settings.reading import raise_unread_bios, read_bios
from provisioner.adapters.redfish.tasks import find_open_job
from provisioner.adapters.redfish.walk import Resource, Walk
from provisioner.model.base import Record
from provisioner.model.machine.settings import (
    BiosSettings,
    BiosState,
    KeyDatabase,
    SecureBootKeys,
    SetupPasswordState,
    Value,
)
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.machine_settings.resolution import is_attribute, is_same, resolve
from provisioner.ports import Reply, Secret

# ------------------------------------------------------------------------------
# The BIOS's factory defaults: asked for by the standard action, carried out by the next boot.
#
# No recorded registry names the default of an attribute. So a reset is seen by what it changes:
# the
# states before the request and after the boot are compared, as digests of each value.


_ACTION = "#Bios.ResetBios"
_TYPE = "Reset"  # source: captured tree of a DGX H100: ResetBiosActionInfo requires it


async def reset_bios(service: Service) -> Blocker | None:
    """Have the defaults run from the next boot on. A job that is open is waited for, never ended.

    source: DMTF Bios 1.2, ResetBios; its body is empty, or has the one type that a service lists
    """
    if (refused := await find_obstacle(service, "settings")) is not None:
        return refused
    system = await service.read_system()
    path = None if system is None else link(system.data, "Bios")
    if path is None:
        return service.not_offered("BIOS", "BIOS resource")
    action = action_of(await service.get(path), _ACTION)
    target = target_of(action)
    if target is None:
        return service.not_offered("BIOS", "Bios.ResetBios")
    types = await service.reset_types(action)
    if types and _TYPE not in types:
        return service.not_offered("BIOS", f"reset to defaults; it has {', '.join(types[:8])}")
    if (busy := await find_open_job(service, "BIOS")) is not None:
        return busy
    reply = await service.post(target, {"ResetType": _TYPE} if types else {}, "BIOS")
    return reply if isinstance(reply, Blocker) else None


async def read_bios_state(service: Service) -> BiosState | None:
    """Return a digest of each running attribute; None if the BMC shows none now."""
    walk = service.walk()
    root = await walk.read_root()
    system = await service.read_system()
    bios = None if system is None else await read_bios(service, walk, root, system.data)
    raise_unread_bios(walk, bios)
    if bios is None or bios.current is None:
        return None
    fixed = {n for n, r in bios.registry.rules.items() if r.read_only} if bios.registry else set()
    values = {n: v for n, v in sorted(bios.current.items()) if n not in fixed}
    return BiosState(
        names=tuple(values),
        digests=tuple(_digest(f"{name}={value!r}") for name, value in values.items()),
        waiting=tuple(sorted(bios.pending)),
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# ------------------------------------------------------------------------------
# Reads the databases of Secure Boot, and asks for the factory's keys.
#
# source: DMTF SecureBoot 1.1 and SecureBootDatabase 1.0; captured trees of a DGX H100, whose every
# database has a `…Default` beside it, and of a BlueField-3, whose defaults are empty


_SECURE_BOOT_KEYS_ACTION = "#SecureBoot.ResetKeys"
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
    shown = None if system is None else await walk.read_child(system, "SecureBoot")
    if shown is None:
        return None
    body = shown.data
    if not body:
        raise_unread(walk.gaps)
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
        resets=_RESET in await _list_types(service, action_of(body, _SECURE_BOOT_KEYS_ACTION)),
        gaps=tuple(dict.fromkeys(f"{g.source}: {g.detail}"[:200] for g in walk.gaps))[:8],
    )


async def reset_secure_boot_keys(service: Service) -> Blocker | None:
    """Ask for the factory's keys; the boot that follows carries it out."""
    if (refused := await find_obstacle(service, "settings")) is not None:
        return refused
    system = await service.read_system()
    path = None if system is None else link(system.data, "SecureBoot")
    if path is None:
        return service.not_offered("SecureBoot", "SecureBoot resource")
    action = action_of(await service.get(path), _SECURE_BOOT_KEYS_ACTION)
    target = target_of(action)
    if target is None or _RESET not in await _list_types(service, action):
        return service.not_offered(
            "SecureBoot", f"{_SECURE_BOOT_KEYS_ACTION.strip('#')} with {_RESET}"
        )
    reply = await service.post(target, {_PARAMETER: _RESET}, "SecureBoot")
    return reply if isinstance(reply, Blocker) else None


async def _read_entries(walk: Walk, database: Resource) -> dict[str, str]:
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


# ------------------------------------------------------------------------------
# The UEFI set-up password: which one is in force, and the request for another one.
#
# `Bios.ChangePassword` answers with a yes before any BIOS has seen the old password, and what
# becomes
# of it at the boot is stated nowhere (Lenovo's guide of its TSM says so of itself). So it is asked
# for only where attributes prove the password in force afterwards: quirk `setup_password`.


SUBJECT = "set-up password"
_CHANGE_ACTION = "#Bios.ChangePassword"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SALT = re.compile(r"(?:[0-9a-f]{2}){0,64}")
_NONE = ("", "N/A")  # source: captured tree of an R750; dracclient's types of these attributes


async def read_setup_password(service: Service) -> SetupPasswordState | Blocker:
    """Return the digest of the password in force; a Blocker where nothing would prove a change."""
    rule = service.quirk.setup_password
    if rule is None:
        return _refuse_unproved(service)
    walk = service.walk()
    system = await service.read_system()
    path = None if system is None else link(system.data, "Bios")
    bios = (await walk.read(path)).data if path is not None else {}
    if not bios:
        raise_unread(walk.gaps)
        return service.not_offered(SUBJECT, "BIOS resource")
    target = target_of(action_of(bios, _CHANGE_ACTION))
    settings = link(bios, "@Redfish.Settings", "SettingsObject")
    if target is None or settings is None:
        return service.not_offered(SUBJECT, "Bios.ChangePassword")
    return _read_digest(service, as_object(bios.get("Attributes")), target, settings)


def _read_digest(
    service: Service, attributes: Json, target: str, settings: str
) -> SetupPasswordState | Blocker:
    rule = service.quirk.setup_password
    assert rule is not None, "asked for only where it is"
    digest_name = rule.sha256
    salt_name = rule.salt
    if digest_name not in attributes or salt_name not in attributes:
        return service.not_offered(
            SUBJECT, f"attribute {digest_name}, which proves the one in force"
        )
    shown = [attributes[name] for name in (digest_name, salt_name)]
    digest, salt = ("" if v is None or v in _NONE else str(v).lower() for v in shown)
    if digest and not (_DIGEST.fullmatch(digest) and _SALT.fullmatch(salt)):
        return Blocker(
            reason=Reason.MALFORMED,
            subject=SUBJECT,
            detail=f"{digest_name} is no SHA-256, or its salt is not hexadecimal",
            unblock="Look at the attributes of the BIOS; nothing is sent meanwhile.",
        )
    return SetupPasswordState(target=target, settings=settings, sha256=digest, salt=salt)


async def change_setup_password(
    service: Service, state: SetupPasswordState, old: Secret, new: Secret
) -> Blocker | None:
    """Have a new password in force from the next boot on. No job may be open.

    A password that waits already is replaced by this one. A death between request and job leaves
    one that waits without a job: no boot carries it out, and the request is repeated.
    """
    rule = service.quirk.setup_password
    assert rule is not None
    if (refused := await find_obstacle(service, "settings")) is not None:
        return refused
    manager = await service.read_manager()
    jobs = None if manager is None else link(manager.data, *rule.jobs)
    if jobs is None:
        return service.not_offered(SUBJECT, "list of jobs: without one no change is carried out")
    body = {"PasswordName": rule.name, "OldPassword": old.reveal(), "NewPassword": new.reveal()}
    reply = await service.call("POST", state.target, body)
    if not 200 <= reply.status < 300:
        return _refuse(reply, old, new)
    if any(True for _ in task_paths(reply)):
        return None  # the request made its job itself
    reply = await service.call("POST", jobs, {"TargetSettingsURI": state.settings})
    return None if 200 <= reply.status < 300 else _refuse(reply, old, new)


def _refuse(reply: Reply, old: Secret, new: Secret) -> Blocker:
    """Return the refusal without either password: services repeat what they refuse."""
    blocker = read_refusal(reply, SUBJECT, UNBLOCK, new.reveal())
    detail = blocker.detail
    if old.reveal():
        detail = detail.replace(old.reveal(), "(hidden)")
    return blocker.model_copy(update={"detail": detail})


def _refuse_unproved(service: Service) -> Blocker:
    return Blocker(
        reason=Reason.NOT_OFFERED,
        subject=SUBJECT,
        detail=f"nothing that {service.quirk.title} shows proves the set-up password in force "
        "after a boot, so that a change which its BIOS drops would lose it",
        unblock="Change it by the vendor's own means, or switch `credential_setup_password` off.",
    )


_SETUP_MODE = "SetupMode"
_REFUSED = re.compile(
    r"NotUpdated|NotInList|OutOfRange|Unknown|ReadOnly|NotWritable|Dependency|Conflict|Failed"
)
_GRAVE = frozenset({"Warning", "Critical"})


class SettingsSent(Record):
    """The attributes that wait for the next boot, and the job that carries them out, if one was
    made.
    """

    attributes: dict[str, Value]
    job: str = ""


async def set_bios(
    service: Service, settings: Mapping[str, str], own: Collection[str] = ()
) -> SettingsSent | Blocker:
    """Have these settings run from the next boot on. Those that run already are not sent.

    `own`: attributes that may wait for the boot by another request of ours.
    """
    if (refused := await find_obstacle(service, "settings")) is not None:
        return refused
    system = await service.read_system()
    if system is None:
        return service.not_offered("BIOS", "system")
    walk = service.walk()
    bios = await read_bios(service, walk, await walk.read_root(), system.data)
    raise_unread_bios(walk, bios)
    if bios is None or (not bios.target and _has_bios(settings)):
        return service.not_offered("BIOS", "BIOS attributes that can be written")
    resolution = resolve(settings, bios, service.quirk.meanings)
    if resolution.refused:
        return resolution.refused[0]
    secure = await _plan_secure_boot(service, link(system.data, "SecureBoot"), settings)
    if isinstance(secure, Blocker):
        return secure
    waiting = {n: v for n, v in resolution.changes.items() if not _waits(bios, n, v)}
    foreign = sorted(set(bios.pending) - set(resolution.target) - set(own))
    if foreign:
        return _refuse_foreign(bios, foreign)
    job = ""
    if waiting:
        if (busy := await find_open_job(service, "BIOS")) is not None:
            return busy
        sent = await _send(service, bios, resolution.changes)
        if isinstance(sent, Blocker):
            return sent
        job = next(iter(task_paths(sent)), "")
        if (dropped := await _check_pending(service, bios, resolution.changes)) is not None:
            return dropped
    for path, change in secure.items():
        if (refused := await service.patch(path, change, "secure_boot")) is not None:
            return refused
    return SettingsSent(attributes=resolution.changes, job=job)


def _has_bios(settings: Mapping[str, str]) -> bool:
    return any(is_attribute(name) for name in settings)


def _waits(bios: BiosSettings, name: str, value: Value) -> bool:
    return name in bios.pending and is_same(bios.pending[name], value)


async def _send(
    service: Service, bios: BiosSettings, changes: Mapping[str, Value]
) -> Reply | Blocker:
    """Send all changes at once, to be applied at the next boot where the service asks when."""
    body: dict[str, Any] = {"Attributes": dict(changes)}
    listed = "OnReset" if "OnReset" in bios.apply_times else ""
    if when := listed or service.quirk.settings_apply_time:
        body["@Redfish.SettingsApplyTime"] = {"ApplyTime": when}
    rule = service.quirk.settings_if_match
    reply = await service.send_patch(bios.target.rstrip("/"), body, "BIOS", if_match=rule)
    if isinstance(reply, Blocker):
        return reply
    graves = [m for m in collect_messages(body_of(reply)) if _is_grave(m)]
    if not graves:
        return reply
    return _refuse_partly(graves, await _list_dropped(service, bios, changes))


def _is_grave(message: Message) -> bool:
    return message.severity in _GRAVE or bool(_REFUSED.search(message.key))


async def _check_pending(
    service: Service, bios: BiosSettings, changes: Mapping[str, Value]
) -> Blocker | None:
    """Read again what waits; some services accept a value and keep nothing of it."""
    missing = await _list_dropped(service, bios, changes)
    if not missing:
        return None
    return Blocker(
        reason=Reason.REFUSED,
        subject=missing[0],
        detail=f"the request was accepted, and {', '.join(missing[:4])} does not wait for the boot",
        unblock="Look at the BMC's event log; the BIOS may refuse the value, or a licence is "
        "missing.",
    )


async def _list_dropped(
    service: Service, bios: BiosSettings, changes: Mapping[str, Value]
) -> list[str]:
    """Return the attributes that neither wait nor run; none where the service shows no pending
    values, so that only the boot can tell.
    """
    later = (await service.get(bios.target.rstrip("/"))).get("Attributes")
    if not isinstance(later, dict):
        return []
    now = (await service.get(bios.source)).get("Attributes")
    running = now if isinstance(now, dict) else {}
    return [
        name
        for name, value in changes.items()
        if not is_same(later.get(name), value) and not is_same(running.get(name), value)
    ]


async def _plan_secure_boot(
    service: Service, path: str | None, settings: Mapping[str, str]
) -> dict[str, dict[str, bool]] | Blocker:
    """Return the request, by its path, that switches Secure Boot from the next boot on.

    source: DMTF SecureBoot 1.1 (SecureBootEnable, SecureBootMode); UEFI 2.10, 32.3: in setup mode
    no platform key is enrolled, and nothing is verified
    """
    if "secure_boot" not in settings:
        return {}
    state = await service.get(path) if path is not None else {}
    if path is None or "SecureBootEnable" not in state:
        return service.not_offered("secure_boot", "SecureBoot resource")
    enable = settings["secure_boot"] == "on"
    if truth(state.get("SecureBootEnable")) is enable:
        return {}
    if enable and text(state.get("SecureBootMode")) == _SETUP_MODE:
        return Blocker(
            reason=Reason.PRECONDITION,
            subject="secure_boot",
            detail="it is in setup mode: no platform key is enrolled, and nothing is verified",
            unblock="Enrol the keys (SecureBoot.ResetKeys, ResetAllKeysToDefault), then retry.",
        )
    return {path: {"SecureBootEnable": enable}}


def _refuse_foreign(bios: BiosSettings, foreign: list[str]) -> Blocker:
    listed = ", ".join(f"{name} = {bios.pending[name]}" for name in foreign[:4])
    return Blocker(
        reason=Reason.PRECONDITION,
        subject="BIOS",
        detail=f"another change waits for the next boot: {listed}",
        unblock="Boot the host, or take the change back in the BMC, then retry.",
    )


def _refuse_partly(messages: list[Message], dropped: list[str]) -> Blocker:
    """Name the culprits: what the BMC took waits already, and what it did not take does not."""
    detail = "; ".join(dict.fromkeys(m.said or m.key for m in messages[:4]))
    named = f"; {', '.join(dropped[:4])} does not wait for the boot" if dropped else ""
    return Blocker(
        reason=Reason.REFUSED,
        subject=dropped[0] if dropped else "BIOS",
        detail=f"the BMC took the request and reports: {detail}"[:300] + named,
        unblock="Take the named attribute out of the set, or correct its value.",
    )
