"""The site's certificate authority, which signs the requests of BMCs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from provisioner.model.credential import (
    CredentialStanding,
    CredentialSummary,
    DueLogin,
    RotationCause,
)
from provisioner.model.events.event import Event
from provisioner.model.integrations.wrapped_key import KeyService
from provisioner.model.outcome import Blocker
from provisioner.ports.wire import Secret

# ------------------------------------------------------------------------------
# The store of logins' ages and of the events that demand their change.


class CredentialStandings(Protocol):
    """Standings by the login's name. Every method is one short transaction."""

    async def enroll(self, names: Mapping[str, str], changed_at: float) -> None:
        """Add logins that have no row, as (name, node); rows that exist stay."""
        ...

    async def remove(self, names: Collection[str]) -> None: ...

    async def get(self, name: str) -> CredentialStanding | None: ...

    async def list_node(self, node: str) -> Sequence[CredentialStanding]: ...

    async def list_names(self) -> Mapping[str, str]: ...

    async def list_page(
        self, after: str, limit: int, *, node: str = "", due_by: float | None = None
    ) -> Sequence[CredentialStanding]:
        """Return rows by name, behind `after`; `due_by`: those that an event demands by then."""
        ...

    async def list_due(self, now: float, changed_before: float, limit: int) -> Sequence[DueLogin]:
        """Return logins to change now, the most urgent first, then the oldest.

        `changed_before`: a login of that age is due without an event; 0: none is. A row whose last
        attempt failed is left out until its time; one whose attempt was cut off is not.
        """
        ...

    async def demand(
        self,
        cause: RotationCause,
        due_at: float,
        *,
        nodes: Collection[str] = (),
        names: Collection[str] = (),
        shown_to: str = "",
    ) -> int:
        """Demand a change of all logins, or of those selected; return how many.

        An earlier or more urgent demand stays in force. The pause after a failed attempt stays as
        well: it protects the account.
        """
        ...

    async def list_shown(self, person: str) -> Sequence[str]:
        """Return the names of logins whose password in force this person was shown."""
        ...

    async def record_shown(
        self, name: str, person: str, due_at: float, event: Event, now: float
    ) -> bool:
        """Record that a person is shown the password, and when it ends; False: no such row."""
        ...

    async def record_change(self, name: str, node: str, now: float, event: Event) -> None:
        """Record a change that the device has confirmed; it ends every demand."""
        ...

    async def begin_attempt(
        self, name: str, node: str, retry_at: float
    ) -> CredentialStanding | None:
        """Record that an attempt begins; return the row of before, None if there was none.

        Until `retry_at` a request of it may be under way.
        """
        ...

    async def record_failure(self, name: str, problem: str, retry_at: float) -> None: ...

    async def summarize(self, now: float) -> CredentialSummary: ...


# ------------------------------------------------------------------------------
# A service that seals the master key, so that it is on no disk of ours.


class KeyWrapping(Protocol):
    """Seals and opens one text. Raises InputError with the service's reason."""

    async def wrap(self, key: Secret) -> str: ...

    async def unwrap(self, ciphertext: str) -> Secret: ...


OpenKeyService = Callable[[KeyService], KeyWrapping]


class CertificateAuthority(Protocol):
    """Signs. A request may be signed twice: nothing is revoked here."""

    async def sign(self, bmc: str, host: str, request: str) -> str | Blocker:
        """Return the certificate (PEM, the BMC's own first) for a request (PKCS#10, PEM).

        `bmc` is "node/bmc", `host` the name or address in the BMC's URL. Raises `PortError`
        subclasses only.
        """
        ...
