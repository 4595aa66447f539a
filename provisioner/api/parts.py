"""A request in the form for its handler, and the parts of the daemon that a handler may use.

Rule: a handler decides nothing about access. `Ask` gives it only the nodes and tenants that the
caller may see.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from aiohttp import web

from provisioner.access.identity import Identity
from provisioner.access.oidc_sign_in import DeviceOffer, OidcSignIn
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.dry_run import StandingClock
from provisioner.api.callers import Callers
from provisioner.api.fleet_atlas import Atlas, Feed
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.checks.threshold_data import Limits
from provisioner.control.context import Context
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.control.node.observing import SiteObserver
from provisioner.execution.actions.once import blocked
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.execution.artifacts.uploads import Uploads
from provisioner.execution.plan_requests import NodeBmcs
from provisioner.model.access import Caller, ChangeKind, ChangeRequest, Role, Scope
from provisioner.model.alert import WatchStatus
from provisioner.model.base import Record
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind, State
from provisioner.model.outcome import Blocker
from provisioner.model.tenant import Tenant
from provisioner.planning.path.planner import PlanCache
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports import BmcTransport, Clock, Credentials, PortError, PortReader
from provisioner.ports.inband import RunRepository
from provisioner.ports.store import Rehearsals
from provisioner.runtime import permit
from provisioner.settings import Settings
from provisioner.store.signing import Signer
from provisioner.store.sql_store import SqlStore

MATCH = re.compile(r'\*|"[!#-~]{1,60}"')  # one entity tag; lists of them have no meaning here


@dataclass
class Reply:
    """A handler's answer; `etag` in quotes, or "" for one that is computed from the body."""

    body: Record
    status: int = 200
    etag: str = ""
    location: str = ""


class Verb(NamedTuple):
    """A command of the command line, and the roles that may give it."""

    name: str
    about: str
    roles: frozenset[Role]


class ChangeRunner(Protocol):
    """Records and carries out changes; `changes.Works` in the daemon."""

    async def submit_change(
        self, ask: Ask, kind: ChangeKind, subject: str, tenant: str, arguments: Mapping[str, Any]
    ) -> Reply: ...

    def reserve_place(self, ask: Ask, kind: ChangeKind) -> ExitStack: ...

    async def run(self, ask: Ask, asked: ChangeRequest, place: ExitStack) -> Reply: ...

    async def forecast_change(self, ask: Ask, asked: ChangeRequest) -> Reply: ...

    async def close(self) -> None: ...


class MatrixReloads(Protocol):
    """Reads the matrix's files again, as they were named at the daemon's start."""

    async def read(self) -> tuple[Matrix, Sequence[tuple[str, str]]]:
        """Return the matrix as the files have it now. Raises InputError for a fault in them."""
        ...

    def take(self, matrix: Matrix, texts: Sequence[tuple[str, str]]) -> None: ...


@dataclass(frozen=True)
class ApiParts:
    """The parts of the daemon for handlers; one record per process."""

    store: SqlStore
    context: Context
    identity: Identity
    keeper: TenantKeeper
    matrix: Matrix
    artifacts: Path
    plans: PlanCache
    works: ChangeRunner
    feed: Feed
    callers: Callers
    static: Mapping[str, tuple[str, bytes]]  # path -> (type, content) of pages
    write_document: Callable[[], bytes]  # the OpenAPI document; the first call takes a second
    vault: Credentials | None = None  # None: nothing that needs a login is done here
    sign_in: OidcSignIn | None = None  # None: browsers sign in with a token only
    device_offer: DeviceOffer | None = None  # None: command lines need a token's file
    signer: Signer | None = None  # None: archives are only served as they are stored
    rehearsals: Rehearsals | None = None  # None: there is no simulator in this process
    plan: AddressPlan | None = None  # of the fabric's addresses: it has the switches' planes
    # None: devices pull from us, or the server is not configured here
    outside: OutsideArtifacts | None = None
    transport: BmcTransport | None = None  # None: no BMC is reached, and nothing is taken in
    port_reader: PortReader | None = None  # None: no leaf is reached
    directory: Path | None = None  # the data directory
    read_watch: Callable[[], tuple[WatchStatus, float]] | None = None  # newest report, age in s
    exchange_key: Callable[[float, bool], Awaitable[str]] | None = None  # (now, compromised): key
    thresholds: Mapping[str, Limits] = field(default_factory=dict)  # the site's own
    matrix_texts: Sequence[tuple[str, str]] = ()  # (path, text) that the matrix was read from
    reloads: MatrixReloads | None = None  # None: the matrix is read at the start alone
    observer: SiteObserver | None = None  # None: this daemon acts
    runs: RunRepository | None = None  # None: no playbook runs from this data directory
    list_verbs: Callable[[], Sequence[Verb]] = tuple  # commands, for the search
    atlas: Atlas = field(default_factory=Atlas)  # of the console's map
    uploads: Uploads = field(default_factory=Uploads)  # of files into the artifact store

    @property
    def clock(self) -> Clock:
        return self.context.clock

    @property
    def settings(self) -> Settings:
        return self.context.settings


@dataclass
class Ask:
    """One request, read and validated, and the parts that its handler may use."""

    parts: ApiParts
    request: web.Request
    caller: Caller
    query: Any
    body: Any
    now: float
    scopes: tuple[Scope, ...]  # within which the caller's roles may change things; (): everywhere
    tag: str = ""  # of the record that is to be changed, once `check_match` compared it

    @property
    def dry_run(self) -> bool:
        """Return whether the caller only asks for the effects."""
        return getattr(self.query, "dry_run", "false") == "true"

    def read_word(self, name: str) -> str:
        return self.request.match_info[name]

    def may_see(self, node: Node) -> bool:
        """Return whether the caller may see a node: the staff all, a tenant its own."""
        return self.caller.staff or (bool(self.caller.tenant) and node.tenant == self.caller.tenant)

    def list_power_actions(self, node: Node) -> tuple[str, ...]:
        """Return what the caller may do with a host's power: a tenant what the site lets it do."""
        if node.kind is not NodeKind.HOST or node.state is State.RETIRED:
            return ()
        if Role.OPERATOR in self.caller.roles:
            return ("on", "off", "cycle")
        serves = Role.TENANT in self.caller.roles and node.state is State.RELEASED
        return tuple(self.parts.settings.api_tenant_power) if serves else ()

    async def read_node(self, name: str = "") -> Node:
        """Return the node of the path.

        Raises Refused as missing if there is none for this caller.
        """
        stored = await self.parts.store.nodes.get(name or self.read_word("node"))
        if stored is None or not self.may_see(stored):
            raise refuse_missing("node")
        return stored

    async def read_tenant(self) -> Tenant:
        """Return the tenant of the path, by the same rule."""
        name = self.read_word("tenant")
        stored = next((t for t in await self.parts.store.tenants.list() if t.name == name), None)
        if stored is None or not (self.caller.staff or self.caller.tenant == name):
            raise refuse_missing("tenant")
        return stored

    def check_match(self, tag: str) -> None:
        """Check If-Match (RFC 9110 section 13.1.1).

        Raises Refused if the caller read an older state.
        """
        self.tag = tag
        condition = self.request.headers.get("If-Match", "*").strip()
        if not MATCH.fullmatch(condition):
            raise build_refusal(
                400, "match", "If-Match is not readable", "Send the ETag as it was given."
            )
        if condition not in ("*", tag):
            raise build_refusal(
                412, "changed", "It changed since you read it", "Read it again, then decide anew."
            )


def get_vault(parts: ApiParts) -> Credentials:
    """Return the vault. Raises Refused in a process without one."""
    if parts.vault is None:
        raise build_refusal(409, "vault", "This process has no credentials", "Ask the daemon.")
    return parts.vault


# ------------------------------------------------------------------------------
# A reading of one BMC of a node during a request; the BMC is only read.


T = TypeVar("T")


async def read_bmc(
    ask: Ask, node: Node, name: str, read: Callable[[Redfish], Awaitable[T | Blocker]]
) -> T:
    """Return the answer of `read`; raises `Refused` where the BMC cannot be reached or read."""
    parts = ask.parts
    if parts.vault is None or parts.transport is None:
        raise build_refusal(409, "bmc", "This process reaches no BMC", "Ask the daemon.")
    reach = NodeBmcs(node, parts.transport, parts.vault, StandingClock())
    try:
        with permit.allow_reads():
            bmc = await reach.open_bmc(name)
            answer = bmc if isinstance(bmc, Blocker) else await read(bmc.client)
    except PortError as error:
        answer = blocked(error, f"{node.id}/{name}")
    if isinstance(answer, Blocker):
        staff = ask.caller.staff  # the detail may have the address of the BMC
        unblock = answer.unblock if staff else "Ask again later, or ask the operators of the site."
        detail = answer.detail if staff else ""
        raise build_refusal(503, "bmc", "The BMC does not answer", unblock, detail)
    return answer
