"""Changes a host's UEFI set-up password while it is in the maintenance image, and proves it.

A BIOS takes a new one at a boot, and only if it is shown the old one; no answer says what it did.
So the new password is stored as pending before the BMC hears of it, and becomes the stored one when
the BMC's digest proves that it is in force. Until then both are stored. The state of the BMC and
the two passwords say how far a daemon came that died: nothing else is kept.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from pathlib import Path

from provisioner.adapters.redfish.service import Service
from provisioner.adapters.redfish.settings import setup_password
from provisioner.adapters.redfish.settings.setup_password import SUBJECT
from provisioner.adapters.redfish.task_list import list_running_tasks
from provisioner.execution.actions.once import blocked
from provisioner.execution.observe.rotation import new_password
from provisioner.execution.steps.maintenance_boot import Stay
from provisioner.model.credential import RotationCause
from provisioner.model.events.node_events import CredentialReplaced
from provisioner.model.machine.setup_password import SetupPasswordState
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.credential_rotation import SETUP, compute_retry
from provisioner.ports import Credentials, CredentialStandings, PortError, Secret

BOOTS_MAX = 2  # one that carries the change out, and one where a predecessor's job was in the way
_FILE_MAX = 4096


class Progress(Enum):
    """How far a change is."""

    SETTLED = "settled"  # the stored password is proved to be in force
    BOOT = "boot"  # the next boot carries the change out


async def change_setup_password(stay: Stay, standings: CredentialStandings) -> Blocker | None:
    """Change the password once in a stay. A Blocker: the BMC is silent, or the boot failed.

    A refusal of the BMC or the BIOS is in the row of the login, and blocks nothing: it is tried
    again when the host comes back the next time.
    """
    site = stay.site
    name = f"{stay.node.id}/{SETUP}"
    standing = await standings.get(name)
    if standing is not None and await _is_over(stay, name, standing.changed_at, standing.retry_at):
        return None
    await standings.begin_attempt(name, stay.node.id, site.clock.now())
    try:
        host = await site.reach.redfish(stay.node, "host")
        if isinstance(host, Blocker):
            return host
        given = await _read_given(site.settings.credential_setup_password_file)
        problem: Blocker | None = _refuse_dropped()
        for _ in range(BOOTS_MAX + 1):
            progress = await advance(site.reach.credentials, host.service, name, given)
            if isinstance(progress, Blocker):
                problem = progress
                break
            if progress is Progress.SETTLED:
                problem = None
                break
            stay.since = site.clock.now()
            agent = await stay.enter_image()
            if isinstance(agent, Blocker):
                return agent
    except PortError as error:
        return blocked(error, name)
    now = site.clock.now()
    if problem is not None:
        failures = 0 if standing is None else standing.failures
        retry_at = now + compute_retry(problem, failures + 1)
        await standings.record_failure(name, problem.detail, retry_at)
        return None
    cause = (standing and standing.cause) or RotationCause.TENANT
    event = CredentialReplaced(about=stay.node.id, bmc=SETUP, pin="", cause=cause.value)
    await standings.record_change(name, stay.node.id, now, event)
    return None


async def advance(
    credentials: Credentials, service: Service, name: str, given: Secret | None
) -> Progress | Blocker:
    """Go on with the change as far as it goes without a boot. Raises `PortError` for silence."""
    state = await setup_password.read_setup_password(service)
    if isinstance(state, Blocker):
        return state
    pending = await credentials.pending(name)
    if pending is not None and state.proves(pending[1].reveal()):
        await credentials.confirm(name)
        return Progress.SETTLED
    current = await credentials.current(name)
    known = [Secret(""), *([] if current is None else [current[1]])]
    known += [] if given is None else [given]
    old = next((secret for secret in known if state.proves(secret.reveal())), None)
    if old is None:
        return _refuse_unknown(state, is_pending=pending is not None)
    if running := await list_running_tasks(service):
        return Progress.BOOT if pending is not None else _refuse_busy(running)
    assert service.quirk.setup_password is not None
    new = pending or (service.quirk.setup_password.name, new_password())
    await credentials.begin(name, *new)
    refused = await setup_password.change_setup_password(service, state, old, new[1])
    # the job that a predecessor made waits for the boot: a second one is refused
    waits = refused is not None and refused.reason is Reason.BUSY and pending is not None
    return Progress.BOOT if waits or refused is None else refused


async def _is_over(stay: Stay, name: str, changed_at: float, retry_at: float) -> bool:
    """Return whether this stay has changed it, or has tried in vain."""
    credentials = stay.site.reach.credentials
    if retry_at > stay.site.clock.now():
        return True
    kept = await credentials.current(name) is not None and await credentials.pending(name) is None
    return kept and changed_at >= stay.node.fenced_at


async def _read_given(path: str) -> Secret | None:
    """Return the password that the site's hosts have today; None: no file names one."""
    if not path:
        return None

    def read() -> str:
        with Path(path).open("rb") as file:
            return file.read(_FILE_MAX).decode("utf-8", "replace").strip("\r\n")

    try:
        text = await asyncio.to_thread(read)
    except OSError:
        return None  # then the one in force is unknown, which is named
    return Secret(text) if text else None


def _refuse_unknown(state: SetupPasswordState, *, is_pending: bool) -> Blocker:
    assert state.is_set, "an empty password proves that none is set"
    both = " and not the one that was to follow it" if is_pending else ""
    return Blocker(
        reason=Reason.LOGIN_REFUSED,
        subject=SUBJECT,
        detail=f"the set-up password in force is not one that is stored{both}",
        unblock="Name it in `credential_setup_password_file`, or clear it in the set-up.",
    )


def _refuse_busy(running: tuple[str, ...]) -> Blocker:
    return Blocker(
        reason=Reason.BUSY,
        subject=SUBJECT,
        detail=f"the BMC has an open job: {', '.join(running[:4])}",
        unblock="It is tried again when the host comes back; a stale job is deleted by a person.",
    )


def _refuse_dropped() -> Blocker:
    return Blocker(
        reason=Reason.REFUSED,
        subject=SUBJECT,
        detail="the BMC took the change, and after the boots the old password is still in force",
        unblock="Look at the BMC's job queue; the old one stays stored, and the new one beside it.",
    )
