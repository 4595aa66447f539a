"""Which logins of a node are changed by a rotation, and when a failed one is tried again. Pure.

A rotation is an operation of the node, so that nothing else writes to its BMCs meanwhile, and the
next daemon goes on with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.model.credential import CredentialStanding
from provisioner.model.inventory import Inventory
from provisioner.model.machine.settings import split_pins
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Plan
from provisioner.model.tenant import MAINTENANCE_VRF, PortPlacement
from provisioner.planning.lifecycle.decide import (
    PASSING,
    Certify,
    Enter,
    Execute,
    Fence,
    Identify,
    Mend,
    Prove,
    Release,
    Sanitize,
    Turn,
    Validate,
    View,
    decide,
)
from provisioner.planning.release import entitlement
from provisioner.planning.release.port_isolation import find_misplaced_ports, placement_of

WANT = "credentials"  # of the operation that changes logins
# no request of an attempt that began so long ago is under way: one that times out ends its attempt
RETRY_S = 1800.0
# beyond every lockout window seen in the field (docs/sources/bmc-faults.md#s9)
REFUSED_RETRY_S = 7200.0
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


# ------------------------------------------------------------------------------
# Which BMCs of a node get a certificate of the site's authority now. Pure.


BMC_CERTIFICATES_WANT = "bmc certificates"  # of the operation that exchanges them
PASSING_RETRY_S = 1800.0
BMC_CERTIFICATES_RETRY_S = (
    86400.0  # a refusal of the BMC or of the authority needs a person, or another day
)


def list_due_certificates(node: Node, now: float, renew_days: float) -> tuple[BmcRef, ...]:
    """Return the BMCs whose certificate is exchanged now; a parked node waits for a person.

    Only a BMC whose login the daemon set, and whose certificate is pinned: the site's own are its.
    """
    if node.is_parked:
        return ()
    return tuple(b for b in list_logins(node) if _is_due(b, now, renew_days))


def _is_due(bmc: BmcRef, now: float, renew_days: float) -> bool:
    if not bmc.pin or bmc.certificate_retry_at > now:
        return False
    return is_unsettled(bmc) or bmc.certificate_ends_at - now < renew_days * DAY_S


def is_unsettled(bmc: BmcRef) -> bool:
    """Return whether an exchange began whose outcome was not recorded."""
    return "," in bmc.pin and len(split_pins(bmc.pin)) > 1  # mostly none: asked of a whole fleet


def compute_certificate_retry(problem: Blocker) -> float:
    """Return the seconds until an exchange that failed is tried again."""
    return PASSING_RETRY_S if problem.reason in PASSING else BMC_CERTIFICATES_RETRY_S


def parse_subject(text: str) -> Mapping[str, str]:
    """Return the parts of `C=DE,ST=...`, whose form the settings have checked."""
    return dict(part.split("=", 1) for part in text.split(",") if part)


# ------------------------------------------------------------------------------
# The acts that a node's present state leads to, as sentences for people. Pure.
#
# A daemon that observes decides like any other, and shows the decision instead of carrying it out.


POLL_S = 60.0  # a pause is not shown
_PLANNED = frozenset({State.CONVERGING, State.VALIDATING})
_IDENTIFIED = frozenset({State.DISCOVERED, State.INTAKE})


def list_would_acts(
    node: Node, view: View, read: Sequence[PortPlacement], misplaced: Sequence[Blocker]
) -> tuple[str, ...]:
    """Return the acts that follow from one reading. `misplaced`: ports that are not as proved."""
    if node.state is State.RELEASED and node.kind is NodeKind.HOST:
        if not misplaced:
            return ()
        return (f"take {node.id} back: fence all its ports, then erase it ({misplaced[0]})",)
    if node.state in _IDENTIFIED and (blocker := entitlement.find_foreign_service(node, read)):
        return (f"quarantine {node.id} without moving its ports: {blocker[0]}",)
    if view.unseen and node.state is not State.DISCOVERED:
        return ()
    if node.state in _PLANNED and view.plan is None:
        return ()
    act = describe_turn(node, decide(node, view, POLL_S))
    return (act,) if act else ()


def describe_turn(node: Node, turn: Turn) -> str:
    """Return the act of a turn on devices or rows; "" for a wait."""
    match turn:
        case Identify():
            logins = sum(not bmc.rotated for bmc in node.bmcs)
            return f"set a password of its own on {logins} BMCs of {node.id}, then identify it"
        case Fence():
            return f"move {len(node.ports)} ports of {node.id} into {MAINTENANCE_VRF}"
        case Sanitize():
            return f"boot {node.id} into the maintenance image and erase its drives"
        case Execute():
            return f"{turn.step.title} on {node.id}: {turn.step.reason}"
        case Validate():
            return f"run the checks on {node.id}"
        case Prove():
            return f"record the tests of {node.id} with other nodes"
        case Certify():
            return f"issue a certificate for {node.id}"
        case Release():
            return f"move {len(node.ports)} ports of {node.id} into VRF {turn.vrf}"
        case Mend():
            return f"carry out a step of the repair case of {node.id}"
        case Enter():
            return f"enter {turn.state} with {node.id}: {turn.why}"
        case _:
            return ""


def judge_ports(
    node: Node, read: Sequence[PortPlacement], vrf_of: dict[str, str]
) -> tuple[Blocker, ...]:
    """Return the ports that are elsewhere than the node's row, and its tenant's, entitle them."""
    if node.kind is not NodeKind.HOST or not node.ports:
        return ()
    if node.state is State.RELEASED and node.vrf:
        return find_misplaced_ports(node.ports, read, node.vrf)
    return tuple(
        Blocker(
            reason=Reason.TRESPASS,
            subject=f"{p.switch}/{p.interface}",
            detail=f"it stands in VRF {p.vrf}, and no handover of {node.id} is recorded",
            unblock="Adopt the node as that tenant's, or move the port.",
        )
        for p in entitlement.find_isolation_violations(node, read, vrf_of)
    )


def build_view(
    node: Node, inventory: Inventory | None, plan: Plan | None, read: Sequence[PortPlacement] | None
) -> View:
    placed: tuple[Placement | None, str] = (None, "")
    if node.kind is NodeKind.SWITCH:
        placed = (Placement.NONE, "")
    elif read is not None:
        placed = placement_of(node.ports, read)
    return View(
        inventory=inventory,
        plan=plan,
        placement=placed[0],
        vrf=placed[1],
        identified=bool(node.profile) and inventory is not None,
    )
