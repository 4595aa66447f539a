"""A request as its handler sees it, and the parts of the daemon that a handler may reach.

Rule: a handler decides nothing about access. `Ask` gives it only the nodes and tenants that the
caller may see.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from provisioner.access.identity import Identity
from provisioner.api.callers import Callers
from provisioner.api.feed import Feed
from provisioner.api.fleet_atlas import Atlas
from provisioner.api.problem import missing, no
from provisioner.checks.threshold_data import Limits
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.model.access import Caller, ChangeKind, ChangeRequest
from provisioner.model.base import Record
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node
from provisioner.model.tenant import Tenant
from provisioner.model.watch import WatchStatus
from provisioner.planning.path.planner import PlanCache
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import BmcTransport, Clock, Credentials
from provisioner.ports.rehearsals import Rehearsals
from provisioner.settings import Settings
from provisioner.store.signing import Signer
from provisioner.store.sql_store import SqlStore

MATCH = re.compile(r'\*|"[!#-~]{1,60}"')  # one entity tag; lists of them make no sense here


@dataclass
class Reply:
    """What a handler answers; `etag` in quotes, or "" for one that is made of the body."""

    body: Record
    status: int = 200
    etag: str = ""
    location: str = ""


class ChangeRunner(Protocol):
    """Records and carries out changes; `changes.Works` in the daemon."""

    async def ask(
        self, ask: Ask, kind: ChangeKind, subject: str, tenant: str, arguments: Mapping[str, Any]
    ) -> Reply: ...

    def reserve(self, ask: Ask, kind: ChangeKind) -> ExitStack: ...

    async def run(self, ask: Ask, asked: ChangeRequest, place: ExitStack) -> Reply: ...

    async def foresee(
        self, ask: Ask, kind: ChangeKind, subject: str, arguments: Mapping[str, Any]
    ) -> Reply: ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class ApiParts:
    """One per process."""

    store: SqlStore
    clock: Clock
    settings: Settings
    identity: Identity
    keeper: TenantKeeper
    matrix: Matrix
    artifacts: Path
    plans: PlanCache
    works: ChangeRunner
    feed: Feed
    callers: Callers
    static: Mapping[str, tuple[str, bytes]]  # path -> (type, content) of pages
    vault: Credentials | None = None  # None: nothing that needs a login is done here
    signer: Signer | None = None  # None: archives are only given as they are stored
    rehearsals: Rehearsals | None = None  # None: there is no simulator in this process
    plan: AddressPlan | None = None  # of the fabric's addresses: tells switches' planes
    outside: OutsideArtifacts | None = None  # None: devices pull from us, or we do not know
    transport: BmcTransport | None = None  # None: no BMC is reached, and nothing is taken in
    directory: Path | None = None  # the data directory
    read_watch: Callable[[], tuple[WatchStatus, float]] | None = None  # newest report, age in s
    exchange_key: Callable[[float, bool], Awaitable[str]] | None = None  # (now, compromised): key
    thresholds: Mapping[str, Limits] = field(default_factory=dict)  # the site's own
    atlas: Atlas = field(default_factory=Atlas)  # of the console's map


@dataclass
class Ask:
    """One request, read and checked, and what its handler may use."""

    parts: ApiParts
    request: web.Request
    caller: Caller
    query: Any
    body: Any
    now: float
    tag: str = ""  # of the thing that is to be changed, once `check_match` compared it

    @property
    def dry_run(self) -> bool:
        """Whether the caller only wants to know what would be done."""
        return getattr(self.query, "dry_run", "false") == "true"

    def word(self, name: str) -> str:
        """A variable part of the path."""
        return self.request.match_info[name]

    def may_see(self, node: Node) -> bool:
        """The staff sees all, a tenant what is allocated to it now."""
        return self.caller.staff or (bool(self.caller.tenant) and node.tenant == self.caller.tenant)

    async def node(self, name: str = "") -> Node:
        """The node of the path; Refused as missing if there is none, or it is somebody else's."""
        found = await self.parts.store.nodes.get(name or self.word("node"))
        if found is None or not self.may_see(found):
            raise missing("node")
        return found

    async def tenant(self) -> Tenant:
        """The tenant of the path, by the same rule."""
        name = self.word("tenant")
        found = next((t for t in await self.parts.store.tenants.list() if t.name == name), None)
        if found is None or not (self.caller.staff or self.caller.tenant == name):
            raise missing("tenant")
        return found

    def check_match(self, tag: str) -> None:
        """If-Match (RFC 9110 section 13.1.1): Refused if the caller decided on something older."""
        self.tag = tag
        wanted = self.request.headers.get("If-Match", "*").strip()
        if not MATCH.fullmatch(wanted):
            raise no(400, "match", "If-Match is not readable", "Send the ETag as it was given.")
        if wanted not in ("*", tag):
            raise no(
                412, "changed", "It changed since you read it", "Read it again, then decide anew."
            )
