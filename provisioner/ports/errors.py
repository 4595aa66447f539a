"""The only exceptions that a port may raise; each carries a reason from the closed list."""

from __future__ import annotations

from provisioner.model.outcome import Blocker, Reason


class PortError(Exception):
    """A failure of something outside of the daemon. `reason` is from the closed list."""

    reason: Reason = Reason.UNREACHABLE


class Unreachable(PortError):
    """No usable answer. `maybe_executed` is False only if the request provably never left."""

    def __init__(self, detail: str, *, maybe_executed: bool) -> None:
        super().__init__(detail)
        self.maybe_executed = maybe_executed


class LoginRefused(PortError):
    """Credentials were not accepted; the governor does not retry them by itself."""

    reason = Reason.LOGIN_REFUSED


class AccountLocked(PortError):
    """No login is attempted until `retry_after_s` has passed, so that the BMC locks no account."""

    reason = Reason.ACCOUNT_LOCKED

    def __init__(self, detail: str, retry_after_s: float) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class CertificateChanged(PortError):
    """The TLS certificate differs from the pinned one, or is untrusted (`CertificateUntrusted`)."""

    reason = Reason.CERTIFICATE_CHANGED


class CertificateUntrusted(CertificateChanged):
    """First contact: no certificate is pinned, and no trusted authority signed the presented
    one.
    """

    reason = Reason.CERTIFICATE_UNTRUSTED


class HostKeyUnknown(CertificateChanged):
    """First contact: no SSH host key of the host is pinned, and keys are not learned."""

    reason = Reason.HOST_KEY_UNKNOWN


class Malformed(PortError):
    """The peer broke the protocol: the answer is not HTTP, not of the announced length, or not
    JSON.
    """

    reason = Reason.MALFORMED


class TooLarge(PortError):
    """The answer is over its size limit; the part that was read is discarded."""

    reason = Reason.TOO_LARGE


class Busy(PortError):
    """The device is busy and accepted nothing; the request may be sent again."""

    reason = Reason.BUSY


class LookOnly(PortError):
    """A write to a device was withheld, because no device may be written to at present."""

    reason = Reason.LOOK_ONLY


class NotGranted(LookOnly):
    """An act on an adopted node was withheld: no person granted the capability that it needs."""

    reason = Reason.NOT_GRANTED


class StaleWrite(Exception):
    """Another writer changed the row since it was read: read again, decide again."""


class Fenced(Exception):
    """Another driver has taken over this operation; this one must stop at once."""


class StoreFailed(Exception):
    """The store cannot keep its promises (disk full, I/O error, damaged file): stop the daemon.

    The failed write was rolled back completely. This is not a `PortError`, because no single node
    caused it.
    """


class DamagedRow(StoreFailed):
    """One row cannot be read, while the others can. `where` names it: "nodes, n7".

    A row that belongs to a `node` parks that node. A row that the whole fleet depends on (a tenant,
    a pin of a release) stops the daemon as `StoreFailed` does, because leaving it out could move
    ports.
    """

    def __init__(self, where: str, problem: str, node: str = "") -> None:
        super().__init__(f"a stored row cannot be read ({where}): {problem}; {DAMAGED_REMEDY}")
        self.where = where
        self.problem = problem
        self.node = node

    def blocker(self) -> Blocker:
        return Blocker(
            reason=Reason.DAMAGED_ROW,
            subject=self.where,
            detail=f"this row of the database cannot be read: {self.problem}",
            unblock="Run `provisioner doctor`, which reads every row. Restore the row or the "
            "database from a backup, restart the daemon, then retry the node.",
        )


DAMAGED_REMEDY = "run `provisioner doctor`, then restore the database from its backup"
