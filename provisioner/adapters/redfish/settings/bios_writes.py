"""Writes of BIOS attributes and Secure Boot: everything of one boot in one request.

Nothing runs before the host has booted, whatever `GET` shows until then. So a write ends with the
values that wait, read again from the object that took them; what runs is read after the boot.
A service with pending values of somebody else, or with an open job, is left alone: its next boot
would carry out both.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from provisioner.adapters.redfish.messages import Message, body_of, collect_messages, task_paths
from provisioner.adapters.redfish.obstacles import find_obstacle
from provisioner.adapters.redfish.parsing import link, text, truth
from provisioner.adapters.redfish.service import Service, not_offered
from provisioner.adapters.redfish.settings.reading import read_bios
from provisioner.adapters.redfish.task_list import find_open_job
from provisioner.model.base import Record
from provisioner.model.machine.settings import BiosSettings, Value
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.machine_settings.resolution import is_attribute, is_same, resolve
from provisioner.ports import Reply

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
        return not_offered("BIOS", "system")
    walk = service.walk()
    bios = await read_bios(service, walk, await walk.read_root(), system.data)
    if bios is None or (not bios.target and _has_bios(settings)):
        return not_offered("BIOS", "BIOS attributes that can be written")
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
        return not_offered("secure_boot", "SecureBoot resource")
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
