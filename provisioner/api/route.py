"""What a route is: declared as data, so that the server, the document and the tests read the same.

Rule: a handler decides nothing about access. Its route names the roles, and `Ask` gives it only
what the caller may see.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web
from pydantic import Field

from provisioner.api.problem import missing, no
from provisioner.model.access import STAFF, Caller, Role
from provisioner.model.base import Record
from provisioner.model.node import Node
from provisioner.model.tenant import Tenant

if TYPE_CHECKING:
    from provisioner.api.parts import ApiParts

MATCH = re.compile(r'\*|"[!#-~]{1,60}"')  # one entity tag; lists of them make no sense here
PREFIX = "/v1"
LIMIT_MAX = 500  # rows of one page: some 300 KB of nodes

ANYBODY = frozenset(Role)
VIEWERS = STAFF
OPERATORS = frozenset({Role.OPERATOR})
APPROVERS = frozenset({Role.APPROVER})
OPERATORS_AND_TENANTS = frozenset({Role.OPERATOR, Role.TENANT})


class Nothing(Record):
    """A query without parameters."""


class Paging(Record):
    """Which part of a list. A page may hold fewer than `limit` while `next` is given."""

    limit: int = Field(100, ge=1, le=LIMIT_MAX, description="Rows of one page.")
    cursor: str = Field("", max_length=400, description="`next` of the page before.")


@dataclass
class Ask:
    """One request, read and checked, and what its handler may use."""

    parts: ApiParts
    request: web.Request
    caller: Caller
    query: Any
    body: Any
    now: float

    def word(self, name: str) -> str:
        """A variable part of the path."""
        return self.request.match_info[name]

    def may_see(self, node: Node) -> bool:
        """The staff sees all, a tenant what is allocated to it now."""
        return self.caller.staff or (bool(self.caller.tenant) and node.tenant == self.caller.tenant)

    async def node(self, name: str = "") -> Node:
        """The node of the path; Refused as missing if there is none, or it is somebody else's."""
        found = await self.parts.store.node(name or self.word("node"))
        if found is None or not self.may_see(found):
            raise missing("node")
        return found

    async def tenant(self) -> Tenant:
        """The tenant of the path, by the same rule."""
        name = self.word("tenant")
        found = next((t for t in await self.parts.store.tenants() if t.name == name), None)
        if found is None or not (self.caller.staff or self.caller.tenant == name):
            raise missing("tenant")
        return found

    def check_match(self, tag: str) -> None:
        """If-Match (RFC 9110 section 13.1.1): Refused if the caller decided on something older."""
        wanted = self.request.headers.get("If-Match", "*").strip()
        if not MATCH.fullmatch(wanted):
            raise no(400, "match", "If-Match is not readable", "Send the ETag as it was given.")
        if wanted not in ("*", tag):
            raise no(
                412, "changed", "It changed since you read it", "Read it again, then decide anew."
            )


@dataclass
class Reply:
    """What a handler answers; `etag` in quotes, or "" for one that is made of the body."""

    body: Record
    status: int = 200
    etag: str = ""
    location: str = ""


Handler = Callable[[Ask], Awaitable[Reply | web.StreamResponse]]


@dataclass(frozen=True)
class Route:
    """One verb of one path. `roles` empty: open to anybody, without a token."""

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
    refusals: Mapping[int, str] = field(default_factory=dict)  # status -> when
    example: Mapping[str, Any] | None = None  # of the body
    entity: bool = False  # has an ETag of its own: takes If-Match where it changes
    media: str = "application/json"

    @property
    def changes(self) -> bool:
        """Whether it changes something."""
        return self.verb != "GET"


Item = TypeVar("Item", bound=Record)


def tag_of(generation: int) -> str:
    """The ETag of a record that counts its changes."""
    return f'"g{generation}"'
