"""A route, declared as data, so that the server, the document and the tests read the same.

Rule: a handler decides nothing about access. Its route names the roles, and `Ask` gives it only the
records that the caller may see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
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


class Effect(StrEnum):
    """What is left of a request once its session is over.

    LASTING, unless one of the other two is certain: what the daemon, its callers or a tenant's
    machines go by afterwards (access, keys, settings, plans, what is believed of the world), data
    that is gone, and a decision on another person's request. A stolen cookie must not reach that.
    MOMENTARY is an act that the site's settings allow at any time, and that ends by itself, or is
    reversed by the next request: a look again, a power cycle, a pause.
    """

    READS = "reads"
    MOMENTARY = "momentary"
    LASTING = "lasting"  # a session alone does not permit it: see `require_proof`


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
    # a GET reads; every other verb states it (READS: its question is too long for a query)
    effect: Effect | None = None
    # fields of the body with which a momentary change is a lasting one
    lasting_with: frozenset[str] = frozenset()
    secret: bool = False  # its answer has a secret: it is never stored, not under a key either
    streamed: bool = False  # its handler reads the body itself, in pieces, and bounds it
    body_max: int = 256 * 1024  # bytes; 64 sessions of 512 prefixes are some 500 KB

    def __post_init__(self) -> None:
        """Check the effect; give every recorded change a dry run. Raises ValueError."""
        if self.verb == "GET":
            if self.effect not in (None, Effect.READS):
                raise ValueError(f"{self.name}: a GET only reads")
            object.__setattr__(self, "effect", Effect.READS)
        if self.effect is None:
            raise ValueError(f"{self.name}: state its effect")
        fields = set() if self.body is None else set(self.body.model_fields)
        momentary = self.effect is Effect.MOMENTARY
        if self.lasting_with - (fields if momentary else set()):
            raise ValueError(f"{self.name}: `lasting_with` names fields of a momentary change")
        if self.recorded and self.query is Nothing:
            object.__setattr__(self, "query", Dry)

    @property
    def endless(self) -> bool:
        return self.media == "text/event-stream"

    @property
    def changes(self) -> bool:
        return self.effect is not Effect.READS

    def is_lasting(self, body: Record | None) -> bool:
        """Return whether a request with this body changes something that outlives its session."""
        if self.effect is not Effect.MOMENTARY:
            return self.changes
        if body is None:
            return False
        fields = type(body).model_fields
        return any(getattr(body, n) != fields[n].get_default() for n in self.lasting_with)

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
