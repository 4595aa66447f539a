"""The only exceptions that a port may raise; each carries a reason from the closed list."""

from __future__ import annotations

from provisioner.model.outcome import Reason


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
    """The TLS certificate is neither trusted nor the pinned one."""

    reason = Reason.CERTIFICATE_CHANGED


class Malformed(PortError):
    """The peer broke the protocol: not HTTP, not the announced length, not JSON."""

    reason = Reason.MALFORMED


class TooLarge(PortError):
    """The answer is over its limit; what was read is thrown away."""

    reason = Reason.TOO_LARGE


class Busy(PortError):
    """The device does something else and took nothing on; it may be asked again."""

    reason = Reason.BUSY


class StaleWrite(Exception):
    """Somebody changed the row since it was read: read again, decide again."""


class Fenced(Exception):
    """Another driver has taken this operation over; this one must stop at once."""


class StoreFailed(Exception):
    """The store cannot keep its promises (disk full, I/O error, damaged file): stop the daemon.

    Nothing of the failed write was kept. It is not `PortError`: no single node is to blame.
    """
