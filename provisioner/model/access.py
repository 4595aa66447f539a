"""Who may ask, and what was asked: tokens, callers, and requests that may wait for a second person.

Rule: a token itself is in no record, only its SHA-256; a person is a `subject`, so that two tokens
of one person are not two people.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.outcome import Blocker


class Role(StrEnum):
    """What a caller may do. Operators and approvers see what viewers see."""

    VIEWER = "viewer"  # sees everything, changes nothing
    OPERATOR = "operator"  # asks for changes
    APPROVER = "approver"  # says yes or no to what another person asked for
    TENANT = "tenant"  # sees and touches the nodes of one tenant, and nothing else


STAFF = frozenset({Role.VIEWER, Role.OPERATOR, Role.APPROVER})


class Token(Record):
    """A local token. Times are seconds since the epoch."""

    id: str  # shown in lists and logs: no secret
    sha256: str  # of the token, hex
    subject: str  # the person or program that has it
    role: Role
    tenant: str = ""  # of the role tenant: whose nodes it is for
    made_at: float
    expires_at: float
    revoked_at: float = 0.0  # 0: it was not

    def good(self, now: float) -> bool:
        """Whether it lets its holder in."""
        return not self.revoked_at and self.made_at <= now < self.expires_at


class Caller(Record):
    """Who sent a request, as proved by a token."""

    subject: str
    roles: frozenset[Role]
    tenant: str = ""  # set exactly for the role tenant, which stands alone
    via: str = ""  # "token 3f2a9c" or the issuer of an OIDC token: for the audit

    @property
    def staff(self) -> bool:
        """Whether it sees the whole site."""
        return bool(self.roles & STAFF)


class ChangeKind(StrEnum):
    """What may be asked for. `docs/access.md` lists who may, and what can need a second person."""

    NODE_RETRY = "node.retry"
    NODE_RECLAIM = "node.reclaim"
    TENANT_PUT = "tenant.put"
    TENANT_SHRINK = "tenant.shrink"
    TENANT_DELETE = "tenant.delete"
    TENANT_SETTLE = "tenant.settle"
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
    TOKEN_REVOKE = "token.revoke"  # noqa: S105 (a kind of change, not a token)


class RequestState(StrEnum):
    WAITING = "waiting"  # for another person's approval
    RUNNING = "running"
    UNDER_WAY = "under_way"  # written down as asked; the node is on its way
    UNFINISHED = "unfinished"  # written down, not yet so everywhere: settle, or ask again
    DONE = "done"
    FAILED = "failed"  # something stood in the way; `blockers` say what
    REFUSED = "refused"  # an approver said no
    EXPIRED = "expired"  # nobody approved it in time
    LOST = "lost"  # the daemon ended while it was under way: look, then ask again


class ChangeRequest(Record):
    """Something that a person asked for through the API, and what became of it."""

    id: int = 0  # given by the store, from 1
    kind: ChangeKind
    subject: str  # the node or tenant that it is about
    tenant: str = ""  # that may see it, beside the staff
    arguments: dict[str, Any] = Field(default_factory=dict)
    asked_by: str
    asked_at: float
    state: RequestState = RequestState.RUNNING
    decided_by: str = ""  # who approved or refused it
    decided_at: float = 0.0
    ended_at: float = 0.0
    note: str = ""
    blockers: tuple[Blocker, ...] = ()
    result: dict[str, Any] | None = None
    generation: int = 0  # grows by one with every change
