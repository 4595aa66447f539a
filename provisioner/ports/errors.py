"""The only exceptions that a port may raise; each carries a reason from the closed list."""

from __future__ import annotations

from provisioner.model.outcome import Blocker, Reason


class PortError(Exception):
    """The outside world failed. `reason` is from the closed list."""

    reason: Reason = Reason.UNREACHABLE


class Unreachable(PortError):
    """No usable answer. `maybe_executed` is False only if the request provably never left."""

    def __init__(self, detail: str, *, maybe_executed: bool) -> None:
        super().__init__(detail)
        self.maybe_executed = maybe_executed


class LoginRefused(PortError):
    """Credentials were not accepted; the governor will not try them again by itself."""

    reason = Reason.LOGIN_REFUSED


class AccountLocked(PortError):
    """Logins are held back until `retry_after_s` has passed, so that no account is locked."""

    reason = Reason.ACCOUNT_LOCKED

    def __init__(self, detail: str, retry_after_s: float) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class CertificateChanged(PortError):
    """The TLS certificate is not the pinned one, or (`CertificateUntrusted`) nobody vouches."""

    reason = Reason.CERTIFICATE_CHANGED


class CertificateUntrusted(CertificateChanged):
    """Nothing is pinned, and no authority that we trust signed the certificate: a first contact."""

    reason = Reason.CERTIFICATE_UNTRUSTED


class Malformed(PortError):
    """The peer broke the protocol: not HTTP, not the announced length, not JSON."""

    reason = Reason.MALFORMED


class TooLarge(PortError):
    """The answer is over its limit; what was read is thrown away."""

    reason = Reason.TOO_LARGE


class Busy(PortError):
    """The device does something else and took nothing on; it may be asked again."""

    reason = Reason.BUSY


class LookOnly(PortError):
    """Nothing may be written to any device now, and this would have been; it did not leave."""

    reason = Reason.LOOK_ONLY


class StaleWrite(Exception):
    """Somebody changed the row since it was read: read again, decide again."""


class Fenced(Exception):
    """Another driver has taken this operation over; this one must stop at once."""


class StoreFailed(Exception):
    """The store cannot keep its promises (disk full, I/O error, damaged file): stop the daemon.

    Nothing of the failed write was kept. It is not `PortError`: no single node is to blame.
    """


class DamagedRow(StoreFailed):
    """One row cannot be read, the others can. `where` names it: "nodes, n7".

    A row that belongs to a `node` parks that node. One that the whole fleet depends on (a tenant, a
    pin of a release) stops the daemon as `StoreFailed` does: to leave it out could move ports.
    """

    def __init__(self, where: str, problem: str, node: str = "") -> None:
        super().__init__(f"a stored row cannot be read ({where}): {problem}; {DAMAGED_REMEDY}")
        self.where, self.problem, self.node = where, problem, node

    def blocker(self) -> Blocker:
        """Return what stands in the way of the node that the row belongs to."""
        return Blocker(
            reason=Reason.DAMAGED_ROW,
            subject=self.where,
            detail=f"this row of the database cannot be read: {self.problem}",
            unblock="Run `provisioner doctor`, which reads every row. Restore the row or the "
            "database from a backup, restart the daemon, then retry the node.",
        )


DAMAGED_REMEDY = "run `provisioner doctor`, then restore the database from its backup"
