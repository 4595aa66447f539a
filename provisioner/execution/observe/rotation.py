"""Makes a BMC's credential ours and unique, so that a crash at any point leaves one that we know.

The new password is stored as pending before the BMC hears of it; afterwards either one may be in
force. The likelier one is tried first, since a wrong one costs a failed login each time: the
pending one once the BMC answered with a yes or refused the current one, and else the current one,
which a BMC that was busy, refused the request or never got it still has.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TypeVar

from provisioner.adapters.redfish.client import Redfish
from provisioner.execution.actions.once import blocked, pass_login_gate
from provisioner.execution.actions.reach import Reach, turn
from provisioner.execution.actions.work import Site
from provisioner.model.credential import CredentialStanding, RotationCause
from provisioner.model.events.node_events import CredentialReplaced
from provisioner.model.node import BmcRef, Node
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.lifecycle.credential_rotation import (
    RETRY_S,
    SWITCH,
    compute_retry,
    list_logins,
    needs_tenant_rotation,
)
from provisioner.ports import (
    AccountLocked,
    BmcAddress,
    BmcTransport,
    Credentials,
    LoginRefused,
    PortError,
    Secret,
    SwitchAddress,
)
from provisioner.ports import Switch as PortsSwitch
from provisioner.ports import SwitchRefused as PortsSwitchRefused
from provisioner.ports.switch import Switch, SwitchRefused
from provisioner.quirks import Quirk
from provisioner.store.repositories.vault import SqlCredentialStandings

# DGX accepts 20 at most, some BMCs refuse more than 16 (docs/sources/redfish.md#password-length)
PASSWORD_LENGTH = 16
_ALPHABETS = ("ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnopqrstuvwxyz", "23456789", "-_.+")


def new_password() -> Secret:
    """Return a password of four classes of characters, without look-alikes."""
    chosen = [secrets.choice(alphabet) for alphabet in _ALPHABETS]
    everything = "".join(_ALPHABETS[:3])
    chosen += [secrets.choice(everything) for _ in range(PASSWORD_LENGTH - len(chosen))]
    secrets.SystemRandom().shuffle(chosen)
    return Secret("".join(chosen))


async def rotate(
    transport: BmcTransport,
    credentials: Credentials,
    quirk: Quirk,
    name: str,
    address: BmcAddress,
    proof: Callable[[Redfish], Awaitable[bool]] = Redfish.admits,
    *,
    renew: bool = False,
) -> BmcAddress | Blocker:
    """Change the password at `address` to a new one, stored under `name`; return the new login.

    `proof` reads a resource that needs a login, which may be one that the caller needs next. Raises
    `PortError` while the BMC does not answer; the next try continues from the stored state.

    `renew`: a pending password that the BMC refuses, while it accepts the current one, is given up
    for another: an earlier attempt ended, so that no request with it is under way any more.
    """
    pending = await credentials.pending(name)
    if pending is not None:
        ours = replace(address, username=pending[0], secret=pending[1])
        taken = await _find_taken(transport, credentials, quirk, name, (address, ours), proof)
        if taken is ours:
            await credentials.confirm(name)  # a crash came between the BMC's yes and our note
            return ours
        if renew:
            assert address.secret is not None
            await credentials.put(name, address.username, address.secret)
            pending = None
    new = pending[1] if pending is not None else new_password()
    await credentials.begin(name, address.username, new)
    if (blocker := await pass_login_gate(credentials, name, new)) is not None:
        return blocker
    problem = await Redfish(transport, address, quirk).set_password(address.username, new)
    if problem is not None:
        return problem
    await credentials.expect_pending(name)
    await transport.forget(address)
    ours = replace(address, secret=new)
    if not await _accepts(Redfish(transport, ours, quirk), proof):
        return Blocker(
            reason=Reason.LOGIN_REFUSED,
            subject=name,
            detail="the BMC took a new password, but does not accept it",
            unblock="Reset the BMC's account by hand, then take it in again.",
        )
    await credentials.confirm(name)
    return ours


async def _find_taken(
    transport: BmcTransport,
    credentials: Credentials,
    quirk: Quirk,
    name: str,
    logins: tuple[BmcAddress, BmcAddress],
    proof: Callable[[Redfish], Awaitable[bool]],
) -> BmcAddress:
    """Return which of the current and the pending login the BMC accepts.

    Raises `LoginRefused` if it accepts neither: a third wrong login would lock some accounts.
    """
    current, pending = logins
    likely = await credentials.is_pending_likely(name)
    for address in (pending, current) if likely else (current, pending):
        if await opens_login(transport, address, quirk, proof):
            return address
        if address is current:
            await credentials.expect_pending(name)
    raise LoginRefused("it accepts neither of the two passwords that are stored")


async def opens_login(
    transport: BmcTransport,
    address: BmcAddress,
    quirk: Quirk,
    proof: Callable[[Redfish], Awaitable[bool]] = Redfish.admits,
) -> bool:
    """Return whether a new login with this password succeeds.

    A session that is open already proves nothing: it may outlive the password it was opened with.
    """
    await transport.forget(address)
    try:
        if await transport.password_change(address) is not None:
            return True  # the BMC knows it, and shows nothing before it is changed
        return await proof(Redfish(transport, address, quirk))
    except LoginRefused:
        return False


async def _accepts(client: Redfish, proof: Callable[[Redfish], Awaitable[bool]]) -> bool:
    try:
        return await proof(client)
    except LoginRefused:
        return False


# ------------------------------------------------------------------------------
# Changes the password of a switch's API for life, so that a crash at any point leaves one we know.
#
# As with a BMC: the new password is stored as pending before the switch hears of it, and becomes
# the one in force after the API accepted it and the configuration was saved, since a switch that
# restarts before that has the old one again. A switch sees two failed logins at most: it locks its
# user after five.


Login = tuple[str, Secret]


async def change_switch_login(site: Site, node: Node) -> Blocker | None:
    """Change the password; raises `PortError` while the switch does not answer."""
    name = f"{node.id}/api"
    address = await site.reach.switch(node)
    if isinstance(address, Blocker):
        return address
    if address.secret is None:
        detail = "it is reached with a key of the site: no password is stored"
        return _no(name, Reason.NOT_OFFERED, detail, "Exchange the key by the site's own means.")
    with site.reach.hold_login(name) as held:
        if not held:
            detail = "another change of its password is under way"
            return _no(name, Reason.BUSY, detail, "It is tried again by itself.")
        async with turn(node.id):
            return await _change(site, node, address)


async def _change(site: Site, node: Node, address: SwitchAddress) -> Blocker | None:
    name = f"{node.id}/api"
    credentials = site.reach.credentials
    assert address.secret is not None
    current: Login = (address.username, address.secret)
    pending = await credentials.pending(name)
    if pending is not None:
        taken = await _find_taken_switch_rotation(site, node, address, current, pending)
        if taken is None:
            raise LoginRefused("it accepts neither of the two passwords that are stored")
        if taken == pending:
            return await _settle(site, node, address, pending)
    new = pending or (address.username, new_password())
    await credentials.begin(name, *new)
    if (blocker := await pass_login_gate(credentials, name, new[1])) is not None:
        return blocker
    failed: PortError | None = None
    try:
        await _open(site, node, address, current).set_password(*new)
    except (LoginRefused, SwitchRefused) as error:  # the old password is void since this revision
        failed = error
    if await _accepts_switch_rotation(site, node, address, new):
        await credentials.expect_pending(name)
        return await _settle(site, node, address, new)
    if isinstance(failed, SwitchRefused) and failed.reason is not Reason.LOGIN_REFUSED:
        raise failed
    detail = "it took a new password, and its API does not accept it"
    remedy = "Reset the account at its console, then take it in again."
    return _no(name, Reason.LOGIN_REFUSED, detail, remedy)


async def _settle(site: Site, node: Node, address: SwitchAddress, login: Login) -> Blocker | None:
    """Make a password that is in force survive a restart; then it is the one that is stored."""
    switch = _open(site, node, address, login)
    if not await switch.is_saved():
        await switch.save_configuration()
    until = site.clock.now() + site.settings.switch_apply_limit_s
    while not await switch.is_saved():
        if site.clock.now() >= until:
            detail = "its API accepts the new password, and its configuration is not saved"
            return _no(f"{node.id}/api", Reason.SWITCH_REFUSED, detail, "It is tried again.")
        await site.clock.sleep(site.settings.switch_poll_s)
    await site.reach.credentials.confirm(f"{node.id}/api")
    return None


async def _find_taken_switch_rotation(
    site: Site, node: Node, address: SwitchAddress, current: Login, pending: Login
) -> Login | None:
    """Return the password that the API accepts, the likelier one first; None: neither."""
    likely = await site.reach.credentials.is_pending_likely(f"{node.id}/api")
    for login in (pending, current) if likely else (current, pending):
        if await _accepts_switch_rotation(site, node, address, login):
            return login
        if login == current:
            await site.reach.credentials.expect_pending(f"{node.id}/api")
    return None


async def _accepts_switch_rotation(
    site: Site, node: Node, address: SwitchAddress, login: Login
) -> bool:
    return (await _open(site, node, address, login).check_login()).status == "accepted"


def _open(site: Site, node: Node, address: SwitchAddress, login: Login) -> Switch:
    to = SwitchAddress(address.url, *login, address.pin, address.system)
    reach: Reach = site.reach
    return reach.switches.open(node.id, to, site.clock, site.settings)


def _no(subject: str, reason: Reason, detail: str, unblock: str) -> Blocker:
    return Blocker(reason=reason, subject=subject, detail=detail, unblock=unblock)


# ------------------------------------------------------------------------------
# Changes the login of a BMC that is in use, and records its new age.
#
# The vault has the old and the new password from before the BMC hears of the change until it was
# seen to accept the new one; a daemon that died in between tries both. While the change is under
# way, no other part of this daemon logs in to the BMC: with the old password it would count as a
# failed login at the device.


log = logging.getLogger(__name__)


async def change_login(
    site: Site, standings: SqlCredentialStandings, node: Node, bmc: BmcRef, cause: RotationCause
) -> Blocker | None:
    """Change one login; a failure is recorded with the time of the next attempt, and returned."""
    name = f"{node.id}/{bmc.name}"
    wait_s = 0.0
    begun_at = site.clock.now()
    before = await standings.begin_attempt(name, node.id, begun_at + RETRY_S)
    standing = before or CredentialStanding(name=name, node=node.id)
    # no request of an earlier attempt is under way any more, whichever daemon made it
    renew = standing.failures > 0 and begun_at >= standing.retry_at
    try:
        problem = await _change_login(site, node, bmc, renew=renew)
    except PortError as error:
        problem = blocked(error, name)
        wait_s = error.retry_after_s if isinstance(error, AccountLocked) else 0.0
    now = site.clock.now()
    if problem is None:
        event = CredentialReplaced(about=node.id, bmc=bmc.name, pin=bmc.pin, cause=cause.value)
        await standings.record_change(name, node.id, now, event)
        return None
    retry_at = now + compute_retry(problem, standing.failures + 1, wait_s)
    log.warning("the password of %s was not changed: %s", name, problem.detail)
    await standings.record_failure(name, problem.detail, retry_at)
    return problem


async def change_after_tenant(
    site: Site, standings: SqlCredentialStandings, node: Node
) -> tuple[Blocker, ...]:
    """Change the logins that a host's last tenancy began with; return what prevents it.

    A login that was changed since the host was fenced is left alone, so that a successor after a
    crash goes on with the rest.
    """
    ages = {s.name: s.changed_at for s in await standings.list_node(node.id)}
    problems = []
    for bmc in list_logins(node):
        if needs_tenant_rotation(node, ages.get(f"{node.id}/{bmc.name}", 0.0)):
            problem = await change_login(site, standings, node, bmc, RotationCause.TENANT)
            problems += [] if problem is None else [problem]
    return tuple(problems)


async def _change_login(site: Site, node: Node, bmc: BmcRef, *, renew: bool) -> Blocker | None:
    reach = site.reach
    name = f"{node.id}/{bmc.name}"
    if bmc.kind == SWITCH:
        return await change_switch_login(site, node)
    address = await reach.address(node, bmc)
    if isinstance(address, Blocker):
        return address
    quirk = await reach.quirk(address)
    with reach.hold_login(name) as held:
        if not held:
            detail = "another change of its password is under way"
            unblock = "It is tried again by itself."
            return Blocker(reason=Reason.BUSY, subject=name, detail=detail, unblock=unblock)
        changed = await rotate(
            reach.transport, reach.credentials, quirk, name, address, renew=renew
        )
    return changed if isinstance(changed, Blocker) else None


# ------------------------------------------------------------------------------
# Opens one node's switch for a single piece of work, and returns its refusals as values.


T = TypeVar("T")


async def open_switch(site: Site, node: Node) -> PortsSwitch | Blocker:
    address = await site.reach.switch(node)
    if isinstance(address, Blocker):
        return address
    try:
        return site.reach.switches.open(node.id, address, site.clock, site.settings)
    except PortsSwitchRefused as refused:
        return describe(node, refused)


async def ask(node: Node, asked: Awaitable[T]) -> T | Blocker:
    """Return the answer, or the refusal. Raises `PortError` while the switch does not answer."""
    try:
        return await asked
    except PortsSwitchRefused as refused:
        return describe(node, refused)


def turn_of(node: Node) -> AbstractAsyncContextManager[None]:
    """Return the switch's turn, within which it is written to."""
    return turn(node.id)


def describe(node: Node, refused: PortsSwitchRefused) -> Blocker:
    return Blocker(
        reason=refused.reason,
        subject=f"{node.id}/switch.os",
        detail=str(refused),
        unblock="Look at the switch's own log, then retry the node.",
    )
