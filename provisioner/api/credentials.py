"""Routes of local tokens: list them, revoke one. They are made by the command line only, so that no
token is ever in an answer that is kept or logged."""

from __future__ import annotations

from functools import partial

from provisioner.api.changes import Outcome, objection
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import missing
from provisioner.api.route import OPERATORS, VIEWERS, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState, Role
from provisioner.model.base import Record
from provisioner.store.rows import token_rows


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
    rows = await ask.parts.store.read(token_rows.read_tokens)
    items = tuple(TokenView(**t.model_dump(exclude={"sha256"}), good=t.good(ask.now)) for t in rows)
    return Reply(TokenList(items=items))


async def revoke(ask: Ask) -> Reply:
    """It lets nobody in any more."""
    name = ask.word("token")
    rows = await ask.parts.store.read(token_rows.read_tokens)
    if not any(t.id == name for t in rows):
        raise missing("token")
    return await ask.parts.works.ask(ask, ChangeKind.TOKEN_REVOKE, name, "", {})


async def change_token(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry it out."""
    work = partial(token_rows.revoke_token, token_id=asked.subject, now=parts.clock.now())
    if await parts.store.write(work) is None:
        return objection(asked.subject, "there is no such token", "Look at the list of them.")
    return Outcome(RequestState.DONE, {"token": asked.subject})


ROUTES = (
    Route("GET", "/tokens", "list_tokens", "access", "Local tokens, without what opens anything.",
          VIEWERS, list_all, {200: TokenList}),
    Route("POST", "/tokens/{token}/revoke", "revoke_token", "access",
          "From now on this token lets nobody in.", OPERATORS, revoke,
          {200: OperationView, 202: OperationView}),
)  # fmt: skip
