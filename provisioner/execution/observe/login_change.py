"""Changes the login of a BMC that is in use, and records its new age.

The vault has the old and the new password from before the BMC hears of the change until it was seen
to accept the new one; a daemon that died in between tries both. While the change is under way, no
other part of this daemon logs in to the BMC: with the old password it would count as a failed login
at the device.
"""

from __future__ import annotations

import logging

from provisioner.execution.actions.once import blocked
from provisioner.execution.actions.work import Site
from provisioner.execution.observe.rotation import rotate
from provisioner.execution.observe.switch_rotation import change_switch_login
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
from provisioner.ports import AccountLocked, CredentialStandings, PortError

log = logging.getLogger(__name__)


async def change_login(
    site: Site, standings: CredentialStandings, node: Node, bmc: BmcRef, cause: RotationCause
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
        problem = await _change(site, node, bmc, renew=renew)
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
    site: Site, standings: CredentialStandings, node: Node
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


async def _change(site: Site, node: Node, bmc: BmcRef, *, renew: bool) -> Blocker | None:
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
