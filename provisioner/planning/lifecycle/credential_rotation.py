"""Which logins of a node are changed by a rotation, and when a failed one is tried again. Pure.

A rotation is an operation of the node, so that nothing else writes to its BMCs meanwhile, and the
next daemon goes on with it.
"""

from __future__ import annotations

from provisioner.model.credential import CredentialStanding
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.model.outcome import Blocker, Reason

WANT = "credentials"  # of the operation that changes logins
# no request of an attempt that began so long ago is under way: one that times out ends its attempt
RETRY_S = 1800.0
REFUSED_RETRY_S = 7200.0  # beyond every lockout window seen in the field (facts: S9)
RETRY_MAX_S = 86400.0
DAY_S = 86400.0
SWITCH = "switch"  # kind of a management API
SETUP = "setup"  # name and kind of the login to a host's UEFI set-up, which is no BMC's


def list_logins(node: Node, *, switches: bool = False, setup: bool = False) -> tuple[BmcRef, ...]:
    """Return the BMCs whose login the daemon has set, and therefore keeps.

    A login that the site handed over is the site's own: intake takes it over, or nothing does.
    `switches`: the site gave those of its switches over too; one without a stored login has none.
    `setup`: the passwords of UEFI set-ups too, which no rotation changes: a boot has to.
    """
    if node.kind is NodeKind.SWITCH and switches and node.state is not State.RETIRED:
        has_login = node.address.startswith("https:")  # over SSH a key of the site logs in
        return tuple(b for b in node.bmcs if b.rotated and b.kind == SWITCH and has_login)
    if node.kind is not NodeKind.HOST or node.state is State.RETIRED:
        return ()
    kept = tuple(bmc for bmc in node.bmcs if bmc.rotated and bmc.kind != SWITCH)
    own = next((bmc for bmc in kept if bmc.name == "host"), None)
    if not setup or own is None:
        return kept
    return (*kept, BmcRef(name=SETUP, kind=SETUP, url=own.url, rotated=True))


def may_rotate(node: Node, *, switches: bool = False) -> bool:
    """Return whether a rotation may begin; a parked node waits for a person."""
    return not node.is_parked and bool(list_logins(node, switches=switches))


def is_due(standing: CredentialStanding, now: float, changed_before: float) -> bool:
    """Return whether a login is to be changed now; the store's query selects by the same rule.

    A row without failures whose time is not over has an attempt that was cut off: it goes on.
    """
    if standing.failures and standing.retry_at > now:
        return False
    demanded = standing.cause is not None and standing.due_at <= now
    return demanded or standing.changed_at < changed_before


def compute_age_limit(now: float, days: float) -> float:
    """Return the time before which a change is too old; 0: no change is."""
    return now - days * DAY_S if days else 0.0


def compute_retry(problem: Blocker, failures: int, wait_s: float = 0.0) -> float:
    """Return the seconds until the next attempt, after `failures` in a row.

    Each attempt may cost the account one failed login at the device. Where a login was refused, the
    pause is longer than any lockout counts, so that attempts never add up to a lock.
    """
    refused = problem.reason is Reason.LOGIN_REFUSED
    first_s = REFUSED_RETRY_S if refused else RETRY_S
    return max(wait_s, min(RETRY_MAX_S, first_s * 2.0 ** min(failures - 1, 10)))


def needs_tenant_rotation(node: Node, changed_at: float) -> bool:
    """Return whether a login is still the one of the last tenancy, which `fenced_at` ended."""
    return changed_at < node.fenced_at or not changed_at
