"""Rows of local tokens. Each function is one part of a transaction on `connection`."""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, update

from provisioner.model.access import Token
from provisioner.model.events.request_events import TokenChanged, TokenFacts
from provisioner.ports.errors import StaleWrite
from provisioner.store.rows import journal as chain
from provisioner.store.rows.damage import parse_each
from provisioner.store.rows.records import parse
from provisioner.store.rows.session_rows import end_sessions_of_token
from provisioner.store.schema.access_schema import tokens


def add_token(connection: Connection, token: Token, now: float) -> None:
    """Add a token and journal it; `StaleWrite` if the id is taken."""
    if connection.scalar(select(tokens.c.id).where(tokens.c.id == token.id)) is not None:
        raise StaleWrite(f"there is a token {token.id} already")
    connection.execute(
        insert(tokens).values(
            id=token.id,
            digest=token.sha256,
            expires_at=token.expires_at,
            body=token.model_dump_json(),
        )
    )
    chain.append(connection, TokenChanged(made=_describe(token)), now)


def find_token(connection: Connection, digest: str) -> Token | None:
    """Return the token with this digest, good or not."""
    body = connection.scalar(select(tokens.c.body).where(tokens.c.digest == digest))
    return None if body is None else parse(Token, body, "tokens")


def read_token(connection: Connection, token_id: str) -> Token | None:
    """Return the token with this id, good or not."""
    body = connection.scalar(select(tokens.c.body).where(tokens.c.id == token_id))
    return None if body is None else parse(Token, body, f"tokens, {token_id}")


def read_tokens(connection: Connection) -> tuple[Token, ...]:
    """Return every token, the one that expires last first."""
    query = select(tokens.c.id, tokens.c.body).order_by(tokens.c.expires_at.desc(), tokens.c.id)
    rows = ((r.id, "", r.body) for r in connection.execute(query))
    return parse_each(connection, Token, "tokens", rows)


def revoke_token(connection: Connection, token_id: str, now: float) -> Token | None:
    """Revoke a token; None if there is no such token. The first time stays.

    The browser sessions that it began end in the same transaction.
    """
    token = read_token(connection, token_id)
    if token is None or token.revoked_at:
        return token
    revoked = token.model_copy(update={"revoked_at": now})
    written = update(tokens).where(tokens.c.id == token_id)
    connection.execute(written.values(body=revoked.model_dump_json()))
    chain.append(connection, TokenChanged(revoked=_describe(revoked)), now)
    end_sessions_of_token(connection, token_id, "its token was revoked", now)
    return revoked


def _describe(token: Token) -> TokenFacts:
    return TokenFacts(**token.model_dump(include=set(TokenFacts.model_fields)))
