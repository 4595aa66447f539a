"""Access records: tokens, callers, browser sessions, and requests that may need a second person.

No record contains a token, only its SHA-256. A person is identified by `subject`, so that two
tokens of one person do not count as two people when a change needs a second approval.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.outcome import Blocker
from provisioner.model.times.instant import Instant


class Role(StrEnum):
    """The permissions of a caller. Operators and approvers see everything that viewers see."""

    VIEWER = "viewer"  # sees everything, changes nothing
    OPERATOR = "operator"  # asks for changes
    APPROVER = "approver"  # approves or refuses what another person asked for
    TENANT = "tenant"  # sees and touches the nodes of one tenant, and nothing else


STAFF = frozenset({Role.VIEWER, Role.OPERATOR, Role.APPROVER})
SCOPED = frozenset({Role.OPERATOR, Role.APPROVER})  # a scope bounds changes: others make none

Pattern = Annotated[str, Field(pattern=r"^[^\s,;=@]{1,64}$")]  # a name, or a glob of names
PATTERNS_MAX = 64


class Concern(Record):
    """One thing that a change acts on. None: it is not confined to one rack, release or tenant."""

    name: str  # for people
    rack: str | None = None
    release: str | None = None
    tenant: str | None = None


class Scope(Record):
    """The part of a site that a role is for. Lists are globs; an empty one bounds nothing."""

    racks: tuple[Pattern, ...] = Field(
        (), max_length=PATTERNS_MAX, description="Racks that it is for; globs. Empty: all."
    )
    releases: tuple[Pattern, ...] = Field(
        (), max_length=PATTERNS_MAX, description="Releases that it is for; globs. Empty: all."
    )
    tenants: tuple[Pattern, ...] = Field(
        (), max_length=PATTERNS_MAX, description="Tenants that it is for; globs. Empty: all."
    )

    @property
    def whole(self) -> bool:
        """Return whether it bounds nothing."""
        return not (self.racks or self.releases or self.tenants)

    def covers(self, concern: Concern) -> bool:
        """Return whether each of its lists has the name that the change is confined to."""
        named = (
            (self.racks, concern.rack),
            (self.releases, concern.release),
            (self.tenants, concern.tenant),
        )
        return all(
            not globs or (name and any(fnmatchcase(name, glob) for glob in globs))
            for globs, name in named
        )

    def __str__(self) -> str:
        parts = (("rack", self.racks), ("release", self.releases), ("tenant", self.tenants))
        lists = [f"{noun} {' or '.join(globs)}" for noun, globs in parts if globs]
        return " and ".join(lists) or "the whole site"


class Bound(Record):
    """A scope of one of a caller's roles."""

    role: Role
    scope: Scope


def find_uncovered(scopes: Sequence[Scope], concerns: Sequence[Concern]) -> tuple[Concern, ...]:
    """Return the concerns that none of the scopes covers; without scopes a role is for all."""
    if not scopes:
        return ()
    return tuple(c for c in concerns if not any(scope.covers(c) for scope in scopes))


class Token(Record):
    """A local token. Times are Unix seconds."""

    id: str  # shown in lists and logs: no secret
    sha256: str  # of the token, hex
    subject: str  # the person or program that holds it
    role: Role
    tenant: str = ""  # set for the role tenant: the tenant whose nodes it may see
    scope: Scope = Scope()  # of an operator or approver: the part of the site that it may change
    made_at: float
    expires_at: float
    revoked_at: float = 0.0  # 0: not revoked

    def is_valid(self, now: float) -> bool:
        """Return whether the token is in force at `now`: not revoked, begun, not expired."""
        return not self.revoked_at and self.made_at <= now < self.expires_at


class Caller(Record):
    """The sender of a request, as proved by a token or by a session that a token began."""

    subject: str
    roles: frozenset[Role]
    also: tuple[str, ...] = ()  # other names that the provider's token has for it
    tenant: str = ""  # set exactly for the role tenant, which has no second role
    bounds: tuple[Bound, ...] = ()  # a role without one is for the whole site
    via: str = (
        ""  # "token 3f2a9c", "session 81c2d07e" or the issuer of an OIDC token: for the audit
    )
    token: str = ""  # id of the local token; "" for a token of a provider
    issuer: str = ""  # of a provider's token
    expires_at: float = 0.0  # of a provider's token; that of a local one is in its row
    session: str = ""  # id of the browser's session; "" for a request with a token
    signed_in_at: float = 0.0  # when the session's holder presented a token

    @property
    def staff(self) -> bool:
        """Return whether the caller sees the whole site."""
        return bool(self.roles & STAFF)

    def list_scopes(self, roles: frozenset[Role]) -> tuple[Scope, ...]:
        """Return the scopes within which the caller acts by these roles; (): the whole site."""
        own = self.roles & roles
        bounded = frozenset(b.role for b in self.bounds)
        return () if own - bounded else tuple(b.scope for b in self.bounds if b.role in own)


class SessionLimits(Record):
    """Limits on the duration of a browser session and on the number of sessions per person."""

    whole_s: float  # from its beginning
    idle_s: float  # without a request made by a person
    proof_s: float  # a destructive change must follow the sign-in within this time
    per_person: int


class Session(Record):
    """A signed-in browser. Its secret is in its cookie; only the secret's SHA-256 is stored.

    With a local token, roles, tenant and bounds are read from the token's row at each request.
    Those of a provider's token are stored here until that token expires.
    """

    id: str  # shown in lists and logs: no secret
    sha256: str  # of the secret, hex
    subject: str
    also: tuple[str, ...] = ()  # other names that the provider's token had for it
    roles: frozenset[Role]
    tenant: str = ""
    bounds: tuple[Bound, ...] = ()
    token: str = ""  # id of the local token that began it
    issuer: str = ""  # of the provider's token that began it
    made_at: float
    expires_at: float
    used_at: float  # at most a minute behind the last request
    ended_at: float = 0.0  # 0: not ended

    @property
    def person(self) -> str:
        """Return the identity by which sessions per person are counted, the same for all tokens."""
        return f"{self.issuer}\n{self.tenant}\n{self.subject.casefold()}"

    def is_valid(self, limits: SessionLimits, now: float) -> bool:
        """Whether the session is in force at `now`: not ended, expired or idle for too long."""
        end = min(self.expires_at, self.made_at + limits.whole_s)
        idle = now - self.used_at >= limits.idle_s
        return not self.ended_at and self.made_at <= now < end and not idle


class ChangeKind(StrEnum):
    """Kinds of changes that a caller may request. `docs/access.md` lists who may request each one
    and which can need a second person.
    """

    NODE_RETRY = "node.retry"
    NODE_RETRY_GROUP = "node.retry_group"
    NODE_RECLAIM = "node.reclaim"
    NODE_POWER = "node.power"
    NODE_BMC_TIME = "node.bmc_time"
    NODE_GPU_RESET = "node.gpu_reset"
    NODE_BMC_ADDRESS = "node.bmc_address"
    NODE_TAG = "node.tag"
    NODE_DETACH = "node.detach"
    TENANT_PUT = "tenant.put"
    TENANT_SHRINK = "tenant.shrink"
    TENANT_DELETE = "tenant.delete"
    TENANT_SETTLE = "tenant.settle"
    TENANT_KEY_SET = "tenant.key_set"
    TENANT_KEY_REMOVE = "tenant.key_remove"
    TENANT_USER_DATA_SET = "tenant.user_data_set"
    TENANT_USER_DATA_REMOVE = "tenant.user_data_remove"
    CERTIFICATE_REVOKE = "certificate.revoke"
    ALERT_OVERRIDE = "alert.override"
    ALERT_CLEAR = "alert.clear"
    CAMPAIGN_CREATE = "campaign.create"
    CAMPAIGN_START = "campaign.start"
    CAMPAIGN_PAUSE = "campaign.pause"
    CAMPAIGN_RESUME = "campaign.resume"
    CAMPAIGN_ABORT = "campaign.abort"
    CAMPAIGN_ROLLBACK = "campaign.rollback"
    CAMPAIGN_DEFER = "campaign.defer"
    CAMPAIGN_SKIP = "campaign.skip"
    CAMPAIGN_AGAIN = "campaign.again"
    CAMPAIGN_ACCEPT = "campaign.accept"
    CAMPAIGN_REHEARSE = "campaign.rehearse"
    CASE_OPEN = "case.open"
    CASE_OPEN_RACK = "case.open_rack"
    CASE_ACCEPT = "case.accept"
    CASE_DEFER = "case.defer"
    CASE_RETURNED = "case.returned"
    CASE_REPLACE = "case.replace"
    CASE_RETIRE = "case.retire"
    CASE_CLOSE = "case.close"
    CASE_RMA = "case.rma"
    CASE_SPARE = "case.spare"
    CASE_TELL = "case.tell"
    NODE_TAKE = "node.take"
    NODE_INTAKE = "node.intake"
    NODE_ADOPT = "node.adopt"
    CAPABILITY_GRANT = "capability.grant"
    CAPABILITY_WITHDRAW = "capability.withdraw"
    PIN_SET = "pin.set"
    PIN_REMOVE = "pin.remove"
    POLICY_PUT = "policy.put"
    POLICY_DELETE = "policy.delete"
    IMAGE_PUT = "image.put"
    IMAGE_DESCRIBE = "image.describe"
    IMAGE_DELETE = "image.delete"
    WEBHOOK_ADD = "webhook.add"
    WEBHOOK_SET = "webhook.set"
    WEBHOOK_REMOVE = "webhook.remove"
    WEBHOOK_AGAIN = "webhook.again"
    WEBHOOK_DROP = "webhook.drop"
    WEBHOOK_PAUSE = "webhook.pause"
    WEBHOOK_RESUME = "webhook.resume"
    WEBHOOK_ROTATE = "webhook.rotate"
    RECOVERY_SETTLE = "recovery.settle"
    RECOVERY_FINISH = "recovery.finish"
    CLOCK_ACCEPT = "clock.accept"
    MATRIX_RELOAD = "matrix.reload"
    KEY_ROTATE = "key.rotate"
    FACTORY_KEEP = "factory.keep"
    CREDENTIAL_ROTATE = "credential.rotate"
    CREDENTIAL_SHOW = "credential.show"
    TOKEN_CREATE = "token.create"  # noqa: S105 (a kind of change, not a token)
    TOKEN_REVOKE = "token.revoke"  # noqa: S105 (a kind of change, not a token)
    SESSION_END = "session.end"
    AUDIT_ARCHIVE = "audit.archive"
    AUDIT_PRUNE = "audit.prune"
    BUNDLE_SEAL = "bundle.seal"


# another person has to approve these kinds at every site, whatever its settings
APPROVED_KINDS = frozenset({ChangeKind.CREDENTIAL_SHOW})


class RequestState(StrEnum):
    WAITING = "waiting"  # for another person's approval
    RUNNING = "running"
    UNDER_WAY = "under_way"  # recorded; the node is still on its way
    UNFINISHED = "unfinished"  # recorded, not yet in force everywhere: settle, or ask again
    DONE = "done"
    FAILED = "failed"  # something prevented it; `blockers` names it
    REFUSED = "refused"  # an approver refused it
    EXPIRED = "expired"  # not approved in time
    LOST = "lost"  # the daemon ended while it was under way: check the result, then ask again


class ChangeRequest(Record):
    """A change that a caller requested through the API, with its progress and result."""

    id: int = 0  # assigned by the store, from 1
    kind: ChangeKind
    subject: str  # the node or tenant that it concerns
    tenant: str = ""  # a tenant that may see it in addition to the staff
    arguments: dict[str, Any] = Field(default_factory=dict)
    scopes: tuple[Scope, ...] = ()  # of the role that asked; the change stays within them
    asked_by: str
    asked_at: float
    source: str = ""  # address of the client, as the daemon's socket has it; "": not recorded
    agent: str = ""  # the client's own word for its program (User-Agent), printable and short
    state: RequestState = RequestState.RUNNING
    decided_by: str = ""  # who approved or refused it
    decided_at: float = 0.0
    ended_at: float = 0.0
    note: str = ""
    blockers: tuple[Blocker, ...] = ()
    result: dict[str, Any] | None = None
    before: dict[str, Any] = Field(default_factory=dict)  # of its object, when it was carried out
    generation: int = 0  # grows by one with every change


class SavedView(Record):
    """An address of the console that a person keeps under a name. No decision reads it."""

    name: str = Field(
        min_length=1, max_length=80, pattern=r"^\S(.*\S)?$", description="Its name, of its owner's."
    )
    owner: str = Field(description="The person who keeps it.")
    address: str = Field(
        max_length=4000,
        pattern=r"^#/[!-~]*$",
        description="The console's address, from its # on: page, filter, colour, order.",
    )
    shared: bool = Field(
        default=False, description="Whether others of the same side see it in their list."
    )
    at: Instant = Field(description="When it was saved.")
