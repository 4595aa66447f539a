"""Routes of local tokens: list them, create one, revoke one.

Rule: a token is made where it is used. A request brings only its SHA-256, so that no token is ever
in a request, a row, an answer that is kept, or a log.
"""

from __future__ import annotations

from pydantic import Field

from provisioner.access.tokens import DAYS_MAX, new_record
from provisioner.api.changes import Forecast, Outcome, objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import missing, no
from provisioner.api.route import OPERATORS, VIEWERS, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState, Role
from provisioner.model.base import Record
from provisioner.model.input_error import InputError


class TokenView(Record):
    """A local token, without what opens anything."""

    id: str
    subject: str
    role: Role
    tenant: str
    made_at: float
    expires_at: float
    revoked_at: float
    good: bool


class TokenList(Record):
    """All of them; the one that expires last comes first."""

    items: tuple[TokenView, ...]


async def list_all(ask: Ask) -> Reply:
    """All local tokens."""
    rows = await ask.parts.store.tokens.list()
    items = tuple(
        TokenView(**t.model_dump(exclude={"sha256"}), good=t.is_valid(ask.now)) for t in rows
    )
    return Reply(TokenList(items=items))


class NewToken(Record):
    """The body of a new token, without the token."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="Of the token, hex.")
    subject: str = Field(min_length=1, max_length=100, description="The person or program.")
    role: Role = Field(description="What it may do (docs/access.md).")
    tenant: str = Field("", max_length=64, description="With the role tenant: whose.")
    days: float = Field(90.0, gt=0, le=DAYS_MAX, description="Until it expires.")


async def create(ask: Ask) -> Reply:
    """Ask for a new token."""
    wanted: NewToken = ask.body
    try:
        new_record(wanted.sha256, wanted.subject, wanted.role, wanted.tenant, wanted.days, ask.now)
    except InputError as error:
        raise no(400, "body", error.problem, error.remedy, error.source) from None
    tenants = {t.name for t in await ask.parts.store.tenants.list()}
    if wanted.tenant and wanted.tenant not in tenants:
        raise missing("tenant")
    told = wanted.model_dump(mode="json")
    kind = ChangeKind.TOKEN_CREATE
    return await ask.parts.works.ask(ask, kind, wanted.subject, "", told)


async def revoke(ask: Ask) -> Reply:
    """It lets nobody in any more."""
    name = ask.word("token")
    rows = await ask.parts.store.tokens.list()
    if not any(t.id == name for t in rows):
        raise missing("token")
    return await ask.parts.works.ask(ask, ChangeKind.TOKEN_REVOKE, name, "", {})


async def change_token(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out."""
    now = parts.clock.now()
    if asked.kind is ChangeKind.TOKEN_CREATE:
        wanted = NewToken.model_validate(asked.arguments, strict=False)
        record = new_record(
            wanted.sha256, wanted.subject, wanted.role, wanted.tenant, wanted.days, now
        )
        await parts.store.tokens.add(record, now)
        return Outcome(RequestState.DONE, {"token": record.id, "expires_at": record.expires_at})
    if await parts.store.tokens.revoke(asked.subject, now) is None:
        return objection(asked.subject, "there is no such token", "Look at the list of them.")
    return Outcome(RequestState.DONE, {"token": asked.subject})


async def foresee_revocation(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return whose token ends."""
    rows = await parts.store.tokens.list()
    lines = [
        f"Token {t.id} of {t.subject} ({t.role}) lets nobody in any more; its event streams end."
        for t in rows
        if t.id == asked.subject
    ]
    return Forecast(tuple(lines))


ROUTES = (
    Route("POST", "/tokens", "create_token", "access",
          "Let a person or program in by a new token, of which only the SHA-256 is sent.",
          OPERATORS, create, {200: OperationView, 202: OperationView}, body=NewToken,
          example={"sha256": "0" * 64, "subject": "ada", "role": "viewer", "days": 90},
          refusals={404: "There is no such tenant."}),
    Route("GET", "/tokens", "list_tokens", "access", "Local tokens, without what opens anything.",
          VIEWERS, list_all, {200: TokenList}),
    Route("POST", "/tokens/{token}/revoke", "revoke_token", "access",
          "From now on this token lets nobody in.", OPERATORS, revoke,
          {200: OperationView, 202: OperationView}),
)  # fmt: skip
