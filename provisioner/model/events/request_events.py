"""Events of people: their requests, who approved them, and the results."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from provisioner.model.access import RequestState, Role, Scope
from provisioner.model.adoption.capability import Capability, Grant
from provisioner.model.base import Record
from provisioner.model.directory import EntryKind, Standing
from provisioner.model.events.event import Event, EventKind
from provisioner.model.times.instant import Instant

# ------------------------------------------------------------------------------
# Events of capabilities: decisions on them, and acts that were not sent for want of one.


class CapabilityDecided(Event):
    """A person granted or withdrew a capability over adopted nodes."""

    KIND: ClassVar = EventKind.CAPABILITY
    grant: Grant = Field(description="The decision.")


class ActWithheld(Event):
    """An act on an adopted node would have been sent, and its capability is not granted."""

    KIND: ClassVar = EventKind.WOULD
    act: str = Field(description="The act, as it would have been sent.")
    needs: Capability = Field(description="The capability that it needs.")
    why: str = Field(description="The capability that is lacking.")


class TokenFacts(Record):
    """A token without its secret."""

    id: str
    subject: str
    role: Role
    tenant: str
    scope: Scope = Scope()
    expires_at: Instant


class TokenChanged(Event):
    """An API token was made or revoked."""

    KIND: ClassVar = EventKind.TOKEN
    made: TokenFacts | None = None
    revoked: TokenFacts | None = None


class SessionFacts(Record):
    """A browser's session without its secret."""

    id: str
    subject: str
    tenant: str
    token: str = Field(description="Id of the local token that began it, or empty.")
    issuer: str = Field(description="Issuer of the provider's token that began it, or empty.")
    expires_at: Instant


class SessionChanged(Event):
    """A browser signed in (`begun`), or its session ended (the id in `ended`)."""

    KIND: ClassVar = EventKind.SESSION
    begun: SessionFacts | None = None
    ended: str = ""
    was: SessionFacts | None = Field(None, description="The session that ended; null: unreadable.")
    why: str = ""


class DirectoryChanged(Event):
    """The provider's directory told of a person or group (SCIM), and what that ended here."""

    KIND: ClassVar = EventKind.DIRECTORY
    entry: str = Field(description="Id of the person or group here.")
    kind_of_entry: EntryKind = Field(description="Person or group.")
    name: str = Field(description="Name of the person or group in the directory.")
    was: Standing | None = Field(None, description="Standing before; null: it is new.")
    standing: Standing = Field(description="Standing from now on.")
    by: str
    sessions: tuple[str, ...] = Field((), description="Ids of sessions that ended with it.")
    tokens: tuple[str, ...] = Field((), description="Ids of tokens that were revoked with it.")
    requests: tuple[int, ...] = Field((), description="Numbers of requests that were refused.")


class CallerLimited(Event):
    """Changes or logins of a caller were refused for a minute because of a rate."""

    KIND: ClassVar = EventKind.LIMITED
    verb: str
    refused: int
    caller: str = ""
    by_address: dict[str, int] = Field({}, description="Failed logins by the peer's address.")


class JournalArchived(Event):
    """Rows of the journal were written to a signed archive."""

    KIND: ClassVar = EventKind.JOURNAL_ARCHIVED
    by: str
    file: str
    first: int
    last: int
    head: str = Field(description="Digest of the last row.")
    sha256: str = Field(description="Of the file.")


class JournalPruned(Event):
    """Rows of the journal that an archive holds were removed."""

    KIND: ClassVar = EventKind.JOURNAL_PRUNED
    by: str
    first: int
    last: int
    removed: int
    kept: int = Field(description="Rows that live decisions still need.")
    archive_sha256: str


class ChangeAsked(Event):
    """A change that a person asked for through the API reached another state."""

    KIND: ClassVar = EventKind.ASKED
    id: int
    change: str = Field(alias="kind")
    subject: str
    state: RequestState
    by: str
    asked_by: str
    source: str = Field("", description="Address of the client that sent it.")
    agent: str = Field("", description="The client's own word for its program (User-Agent).")
    arguments: dict[str, Any]
    before: dict[str, Any] = Field(
        {}, description="Fields of its object as they were before it; empty: not carried out yet."
    )
    blockers: tuple[str, ...]


class RequestCarriedOut(Event):
    """A person's request was carried out. Which other fields there are depends on `request`."""

    KIND: ClassVar = EventKind.REQUEST
    request: str
    by: str = ""
    id: int | str = Field(0, description="Number of the change, or the alert's id.")
    approved: str = Field("", description="Who approved it.")
    why: str = ""
    reason: str = ""
    target: str = ""
    case: str = ""
    certificate: str = ""
    key: str = ""
    compromised: bool = False


class CredentialShown(Event):
    """A person was shown the password of a BMC, which another person had approved."""

    KIND: ClassVar = EventKind.CREDENTIAL_SHOWN
    login: str = Field(description="Node and BMC: su0-n03/host.")
    by: str
    approved: str = Field(description="Who approved it.")
    id: int = Field(description="Number of the request.")
    why: str = ""
    expires_at: Instant = Field(description="When the password is changed, at the latest.")


class FactoryLoginsKept(Event):
    """Factory logins of BMCs were sealed in the vault, or forgotten."""

    KIND: ClassVar = EventKind.FACTORY_LOGINS
    vendors: tuple[str, ...]
    forgotten: bool


class ClockAccepted(Event):
    """A person confirmed that the machine's clock is right."""

    KIND: ClassVar = EventKind.CLOCK_ACCEPTED
    by: str
    clock: str
