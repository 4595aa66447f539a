"""The UEFI set-up password: which one is in force, and the request for another one.

`Bios.ChangePassword` answers with a yes before any BIOS has seen the old password, and what becomes
of it at the boot is stated nowhere (Lenovo's guide of its TSM says so of itself). So it is asked
for only where attributes prove the password in force afterwards: quirk `setup_password`.
"""

from __future__ import annotations

import re

from provisioner.adapters.redfish.messages import read_refusal, task_paths
from provisioner.adapters.redfish.obstacles import find_obstacle
from provisioner.adapters.redfish.parsing import Json, as_object, link
from provisioner.adapters.redfish.service import (
    UNBLOCK,
    Service,
    action_of,
    not_offered,
    raise_unread,
    target_of,
)
from provisioner.model.machine.setup_password import SetupPasswordState
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Reply, Secret

SUBJECT = "set-up password"
_ACTION = "#Bios.ChangePassword"
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
        return not_offered(SUBJECT, "BIOS resource")
    target = target_of(action_of(bios, _ACTION))
    settings = link(bios, "@Redfish.Settings", "SettingsObject")
    if target is None or settings is None:
        return not_offered(SUBJECT, "Bios.ChangePassword")
    return _read_digest(as_object(bios.get("Attributes")), rule.sha256, rule.salt, target, settings)


def _read_digest(
    attributes: Json, digest_name: str, salt_name: str, target: str, settings: str
) -> SetupPasswordState | Blocker:
    if digest_name not in attributes or salt_name not in attributes:
        return not_offered(SUBJECT, f"attribute {digest_name}, which proves the one in force")
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
        return not_offered(SUBJECT, "list of jobs: without one no change is carried out")
    body = {
        "PasswordName": rule.name,
        "OldPassword": old.reveal(),
        "NewPassword": new.reveal(),
    }
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
