"""Routes of local tokens: list them, create one, revoke one.

Rule: a token is made where it is used. A request brings only its SHA-256, so that no token is ever
in a request, a row, a stored answer, or a log.
"""

from __future__ import annotations

from pydantic import Field

from provisioner.access.tokens import DAYS_MAX, new_record
from provisioner.api.changes import Forecast, Outcome, build_objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Effect, Route
from provisioner.model.access import (
    PATTERNS_MAX,
    ChangeKind,
    ChangeRequest,
    Pattern,
    RequestState,
    Role,
    Scope,
    Token,
)
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.times.instant import Instant, InstantOrNone


class TokenView(Record):
    """A local token, without its secret."""

    id: str
    subject: str
    role: Role
    tenant: str
    scope: Scope
    made_at: Instant
    expires_at: Instant
    revoked_at: InstantOrNone
    good: bool


class TokenList(Record):
    """All tokens; the one that expires last comes first."""

    items: tuple[TokenView, ...]


async def list_all(ask: Ask) -> Reply:
    rows = await ask.parts.store.tokens.list()
    items = tuple(
        TokenView(**t.model_dump(exclude={"sha256"}), good=t.is_valid(ask.now)) for t in rows
    )
    return Reply(TokenList(items=items))


class NewToken(Record):
    """The body of a new token, without the token."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the token, in hex.")
    subject: str = Field(min_length=1, max_length=100, description="Name of the person or program.")
    role: Role = Field(description="Role of the token (docs/access.md).")
    tenant: str = Field("", max_length=64, description="Tenant, for the role tenant.")
    days: float = Field(90.0, gt=0, le=DAYS_MAX, description="Days until it expires.")
    racks: tuple[Pattern, ...] = Field(
        (),
        max_length=PATTERNS_MAX,
        description="Racks that the role may change; globs. Empty: all.",
    )
    releases: tuple[Pattern, ...] = Field(
        (),
        max_length=PATTERNS_MAX,
        description="Releases that the role may change; globs. Empty: all.",
    )
    tenants: tuple[Pattern, ...] = Field(
        (),
        max_length=PATTERNS_MAX,
        description="Tenants that the role may change; globs. Empty: all.",
    )

    def build_record(self, now: float) -> Token:
        """Return the record of the token. Raises InputError."""
        scope = Scope(racks=self.racks, releases=self.releases, tenants=self.tenants)
        return new_record(self.sha256, self.subject, self.role, self.tenant, self.days, now, scope)


async def create(ask: Ask) -> Reply:
    body: NewToken = ask.body
    try:
        body.build_record(ask.now)
    except InputError as error:
        raise build_refusal(400, "body", error.problem, error.remedy, error.source) from None
    tenants = {t.name for t in await ask.parts.store.tenants.list()}
    if body.tenant and body.tenant not in tenants:
        raise refuse_missing("tenant")
    arguments = body.model_dump(mode="json")
    kind = ChangeKind.TOKEN_CREATE
    return await ask.parts.works.submit_change(ask, kind, body.subject, "", arguments)


async def revoke(ask: Ask) -> Reply:
    name = ask.read_word("token")
    rows = await ask.parts.store.tokens.list()
    if not any(t.id == name for t in rows):
        raise refuse_missing("token")
    return await ask.parts.works.submit_change(ask, ChangeKind.TOKEN_REVOKE, name, "", {})


async def change_token(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    now = parts.clock.now()
    if asked.kind is ChangeKind.TOKEN_CREATE:
        body = NewToken.model_validate(asked.arguments, strict=False)
        record = body.build_record(now)
        await parts.store.tokens.add(record, now)
        return Outcome(RequestState.DONE, {"token": record.id, "expires_at": record.expires_at})
    if await parts.store.tokens.revoke(asked.subject, now) is None:
        return build_objection(asked.subject, "there is no such token", "Look at the list of them.")
    return Outcome(RequestState.DONE, {"token": asked.subject})


async def foresee_revocation(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the holder of the token that would end."""
    rows = await parts.store.tokens.list()
    lines = [
        f"Token {t.id} of {t.subject} ({t.role}) lets nobody in any more; its event streams end."
        for t in rows
        if t.id == asked.subject
    ]
    return Forecast(tuple(lines))


ROUTES = (
    Route(
        "POST",
        "/tokens",
        "create_token",
        "access",
        "Create a token for a person or program; only its SHA-256 is sent.",
        OPERATORS,
        create,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=NewToken,
        example={"sha256": "0" * 64, "subject": "ada", "role": "viewer", "days": 90},
        refusals={404: "There is no such tenant."},
        site=True,
    ),
    Route(
        "GET",
        "/tokens",
        "list_tokens",
        "access",
        "List local tokens, without their secrets.",
        VIEWERS,
        list_all,
        {200: TokenList},
    ),
    Route(
        "POST",
        "/tokens/{token}/revoke",
        "revoke_token",
        "access",
        "Revoke a token: it is refused from now on.",
        OPERATORS,
        revoke,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        site=True,
    ),
)
