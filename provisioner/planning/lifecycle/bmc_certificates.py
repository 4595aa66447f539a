"""Which BMCs of a node get a certificate of the site's authority now. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.model.machine.certificate_pins import split_pins
from provisioner.model.node import BmcRef, Node
from provisioner.model.outcome import Blocker
from provisioner.planning.lifecycle.credential_rotation import list_logins
from provisioner.planning.lifecycle.decide import PASSING

WANT = "bmc certificates"  # of the operation that exchanges them
PASSING_RETRY_S = 1800.0
RETRY_S = 86400.0  # a refusal of the BMC or of the authority needs a person, or another day
DAY_S = 86400.0


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
    return len(split_pins(bmc.pin)) > 1


def compute_certificate_retry(problem: Blocker) -> float:
    """Return the seconds until an exchange that failed is tried again."""
    return PASSING_RETRY_S if problem.reason in PASSING else RETRY_S


def parse_subject(text: str) -> Mapping[str, str]:
    """Return the parts of `C=DE,ST=...`, whose form the settings have checked."""
    return dict(part.split("=", 1) for part in text.split(",") if part)
