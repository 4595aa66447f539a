"""A route, declared as data, so that the server, the document and the tests read the same.

Rule: a handler decides nothing about access. Its route names the roles, and `Ask` gives it only the
records that the caller may see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from aiohttp import web
from pydantic import Field

from provisioner.api.parts import Ask, Reply
from provisioner.model.access import STAFF, Role
from provisioner.model.base import Record

# ------------------------------------------------------------------------------
# The bodies of requests on a node.


class Retry(Record):
    """The body of a retry."""

    new_board: bool = Field(
        default=False, description="Its board was exchanged: enrol the TPM anew."
    )
    admit_tpm: str = Field(
        default="",
        pattern="^([0-9a-f]{64})?$",
        description="You vouch for the TPM with this key (SHA-256), which no pinned maker does.",
    )
    tenant_data: str = Field(
        default="",
        pattern="^(keep|erase)?$",
        description="Of a node that was taken back because its ports were read elsewhere: `keep` "
        "its tenant's data, which the tenant has agreed to, or `erase` it.",
    )


class Reclaim(Record):
    """The body of a reclaim."""

    for_repair: bool = Field(
        default=False, description="It goes back to the same tenant when it is well."
    )
    accept_no_return: bool = Field(
        default=False, description="Also if it could not serve again once it is erased."
    )


PREFIX = "/v1"
STREAM_MEDIA = "application/octet-stream"  # of a body that its handler reads
LIMIT_MAX = 500  # rows of one page: some 300 KB of nodes

ANYBODY = frozenset(Role)
VIEWERS = STAFF
OPERATORS = frozenset({Role.OPERATOR})
APPROVERS = frozenset({Role.APPROVER})
OPERATORS_AND_TENANTS = frozenset({Role.OPERATOR, Role.TENANT})


class Nothing(Record):
    """A query without parameters."""


class Paging(Record):
    """The page of a list. A page may hold fewer than `limit` rows while `next` is set."""

    limit: int = Field(100, ge=1, le=LIMIT_MAX, description="Number of rows of one page.")
    cursor: str = Field("", max_length=400, description="`next` of the previous page.")


class Counted(Record):
    """A part of a list whose rows are counted."""

    total: int | None = Field(
        None, description="Rows of the whole list; null: they are not counted, as with `where`."
    )


class Dry(Record):
    """Whether a change is made, or only described."""

    dry_run: Literal["true", "false"] = Field(
        "false", description="true: answer what would be done, and do nothing."
    )


Handler = Callable[[Ask], Awaitable[Reply | web.StreamResponse]]


@dataclass(frozen=True)
class Route:
    """One verb of one path. `roles` empty: it needs no token."""

    verb: str
    path: str  # below PREFIX
    name: str  # operationId
    tag: str
    summary: str
    roles: frozenset[Role]
    handle: Handler
    answers: Mapping[int, type[Record]]  # status -> body
    query: type[Record] = Nothing
    body: type[Record] | None = None
    refusals: Mapping[int, str] = field(default_factory=dict)  # status -> condition
    example: Mapping[str, Any] | None = None  # of the body
    entity: bool = False  # has an ETag of its own: takes If-Match where it changes
    media: str = "application/json"
    heavy: bool = False  # expensive to compute: a caller has few of them at a time
    site: bool = False  # changes the whole site: refused to a role that has a scope
    reads: bool = False  # a POST that changes nothing: its question is too long for a query
    secret: bool = False  # its answer has a secret: it is never stored, not under a key either
    streamed: bool = False  # its handler reads the body itself, in pieces, and bounds it
    body_max: int = 256 * 1024  # bytes; 64 sessions of 512 prefixes are some 500 KB

    def __post_init__(self) -> None:
        """Give every recorded change a dry run."""
        if self.recorded and self.query is Nothing:
            object.__setattr__(self, "query", Dry)

    @property
    def endless(self) -> bool:
        """Return whether its answer is a stream of events."""
        return self.media == "text/event-stream"

    @property
    def changes(self) -> bool:
        """Return whether it changes something."""
        return self.verb != "GET" and not self.reads

    @property
    def recorded(self) -> bool:
        """Return whether it is a change that is recorded before it is made."""
        return self.changes and 202 in self.answers


Item = TypeVar("Item", bound=Record)


def list_media(verb: str) -> tuple[str, ...]:
    """Return the media types of the body that a verb takes; a PATCH is a merge patch (RFC 7396)."""
    patch = ("application/merge-patch+json",) if verb == "PATCH" else ()
    return (*patch, "application/json")


def format_etag(generation: int) -> str:
    """Return the ETag of a record that counts its changes."""
    return f'"g{generation}"'
