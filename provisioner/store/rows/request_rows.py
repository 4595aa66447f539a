"""Rows of what people asked for through the API. One function is one part of a transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from provisioner.model.access import ChangeRequest, RequestState, Session, SessionLimits, Token
from provisioner.model.events.request_events import (
    ChangeAsked,
    RequestCarriedOut,
    SessionChanged,
    SessionFacts,
    TokenChanged,
    TokenFacts,
)
from provisioner.model.node import Node
from provisioner.model.operation import Operation, OperationStatus, parse_public_id
from provisioner.planning.lifecycle.requested_ends import end_request
from provisioner.ports.errors import DamagedRow, StaleWrite
from provisioner.store.rows import evidence_rows, journal
from provisioner.store.rows.records import canonical, clean, parse, parse_each, record
from provisioner.store.schema.schema import console_sessions as table
from provisioner.store.schema.schema import operations, requests, tokens

# ------------------------------------------------------------------------------
# Changes that a person asked for, written with the journal's row of them in one transaction.


def write_revocation(
    connection: Connection,
    certificate: str,
    node: str,
    reason: str,
    by: str,
    now: float,
    change: int | None = None,
) -> None:
    """Revoke a certificate for good as a person asked; `change` is the API's number of it."""
    evidence_rows.revoke(connection, certificate, reason, now)
    event = RequestCarriedOut(
        about=node, request="revoke", certificate=certificate, reason=reason, by=by
    )
    if change is not None:
        event = event.model_copy(update={"id": change})
    journal.append(connection, event, now)


# ------------------------------------------------------------------------------
# Rows of browsers' sessions. Each function is one part of a transaction on `connection`.
#
# When a session was used and ended stands in columns, so that a use never writes over an end.


KEPT_S = 3600.0  # an ended session's row: sign-ins of the last minute are counted by rows
DELETED_MAX = 1000  # old rows that one sign-in clears away, so that none takes long
BEGUN_S = 60.0
BEGUN_MAX = 20  # sign-ins of one person within BEGUN_S: a person makes one or two


def begin_session(
    connection: Connection, session: Session, limits: SessionLimits, replaces: str = ""
) -> bool:
    """Keep a new session and end the one that it replaces; False: too many in a short time."""
    now = session.made_at
    old = select(table.c.id).where(_is_over(limits, now) & (table.c.made_at < now - KEPT_S))
    ids = connection.scalars(old.limit(DELETED_MAX)).all()
    connection.execute(delete(table).where(table.c.id.in_(ids)))
    person = clean(session.person)
    of_person = table.c.person == person
    young = of_person & (table.c.made_at > now - BEGUN_S)
    if (connection.scalar(select(func.count()).where(young)) or 0) >= BEGUN_MAX:
        return False
    end_sessions(connection, (table.c.id == replaces) & of_person, "it signed in again", now)
    living = select(table.c.id).where(of_person & ~_is_over(limits, now))
    ids = connection.scalars(living.order_by(table.c.used_at.desc(), table.c.id)).all()
    over = ids[limits.per_person - 1 :]
    end_sessions(connection, table.c.id.in_(over), "the person has too many", now)
    connection.execute(
        insert(table).values(
            id=session.id,
            digest=session.sha256,
            person=person,
            token=session.token,
            made_at=now,
            used_at=now,
            ended_at=0.0,
            body=session.model_dump_json(),
        )
    )
    journal.append(connection, SessionChanged(begun=_describe(session)), now)
    return True


def find_session(connection: Connection, digest: str) -> Session | None:
    """Return the session with this digest, good or not; one that cannot be read is none."""
    row = connection.execute(select(table).where(table.c.digest == digest)).first()
    return None if row is None else _read(connection, row)


def use_session(connection: Connection, session_id: str, now: float) -> None:
    """Write down that it was used; an older time never replaces a newer one."""
    older = (table.c.id == session_id) & (table.c.used_at < now)
    connection.execute(update(table).where(older).values(used_at=now))


def read_sessions(
    connection: Connection, limits: SessionLimits, now: float, limit: int = 10_000
) -> tuple[Session, ...]:
    """Return the sessions that are not over, the one that was used last first."""
    query = select(table).where(~_is_over(limits, now)).limit(limit)
    rows = connection.execute(query.order_by(table.c.used_at.desc(), table.c.id)).all()
    sessions = (_read(connection, row) for row in rows)
    return tuple(s for s in sessions if s is not None and s.is_valid(limits, now))


def end_session(connection: Connection, session_id: str, why: str, now: float) -> bool:
    end_sessions(connection, table.c.id == session_id, why, now)
    return connection.scalar(select(table.c.id).where(table.c.id == session_id)) is not None


def end_sessions_of_subject(
    connection: Connection, subject: str, why: str, now: float
) -> Sequence[str]:
    """End every session of a person, whatever tokens began them; return their ids."""
    living = select(table.c.person).where(table.c.ended_at == 0.0).distinct()
    name = clean(subject.casefold())
    people = [p for p in connection.scalars(living) if p.rpartition("\n")[2] == name]
    return end_sessions(connection, table.c.person.in_(people), why, now)


def end_sessions_of_token(
    connection: Connection, token_id: str, why: str, now: float
) -> Sequence[str]:
    """End every session that a local token began; return their ids."""
    return end_sessions(connection, table.c.token == token_id, why, now)


def end_sessions(
    connection: Connection, which: ColumnElement[bool], why: str, now: float
) -> Sequence[str]:
    """End those of them that are not ended, with a row of the journal each; return their ids."""
    living = select(table).where(which & (table.c.ended_at == 0.0)).order_by(table.c.id)
    rows = connection.execute(living).all()
    for row in rows:
        connection.execute(update(table).where(table.c.id == row.id).values(ended_at=now or 1.0))
        session = _read(connection, row)
        was = None if session is None else _describe(session)
        journal.append(connection, SessionChanged(ended=row.id, was=was, why=why), now)
    return [row.id for row in rows]


def _is_over(limits: SessionLimits, now: float) -> ColumnElement[bool]:
    """Return whether its columns say that it is over; its token may have ended it before."""
    idle = table.c.used_at <= now - limits.idle_s
    old = table.c.made_at <= now - limits.whole_s
    return (table.c.ended_at != 0.0) | idle | old


def _read(connection: Connection, row: Row[Any]) -> Session | None:
    try:
        session = parse(Session, row.body, f"console_sessions, {row.id}")
    except DamagedRow as error:
        record(connection.engine, "", error)
        return None
    times = {"used_at": row.used_at, "ended_at": row.ended_at}
    return session.model_copy(update=times)


def _describe(session: Session) -> SessionFacts:
    return SessionFacts(**session.model_dump(include=set(SessionFacts.model_fields)))


# ------------------------------------------------------------------------------
# Rows of local tokens. Each function is one part of a transaction on `connection`.


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
    journal.append(connection, TokenChanged(made=_describe_token_rows(token)), now)


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
    journal.append(connection, TokenChanged(revoked=_describe_token_rows(revoked)), now)
    end_sessions_of_token(connection, token_id, "its token was revoked", now)
    return revoked


def _describe_token_rows(token: Token) -> TokenFacts:
    return TokenFacts(**token.model_dump(include=set(TokenFacts.model_fields)))


WAITING_MAX = 5000  # rows that are looked at: each person has a hundred at most
OPEN = frozenset({RequestState.WAITING, RequestState.RUNNING})


def add_request(connection: Connection, asked: ChangeRequest) -> ChangeRequest:
    """Return a new row with the next number, and a row of the journal."""
    number = (connection.scalar(select(func.max(requests.c.id))) or 0) + 1
    stored = asked.model_copy(update={"id": number})
    row = insert(requests).values(id=number, subject=clean(asked.subject), kind=str(asked.kind))
    connection.execute(row.values(**_columns(stored)))
    _note(connection, stored, stored.asked_by, stored.asked_at)
    return stored


def save_request(
    connection: Connection, asked: ChangeRequest, by: str, now: float
) -> ChangeRequest:
    """Record the outcome of a request; `StaleWrite` if another writer was faster."""
    stored = asked.model_copy(update={"generation": asked.generation + 1})
    mine = (requests.c.id == asked.id) & (requests.c.generation == asked.generation)
    if connection.execute(update(requests).where(mine).values(**_columns(stored))).rowcount != 1:
        raise StaleWrite(f"request {asked.id} is no longer at generation {asked.generation}")
    _note(connection, stored, by, now)
    own = (stored.result or {}).get("operation")
    if stored.state is RequestState.UNDER_WAY and isinstance(own, str):  # it may be over by now
        query = select(operations.c.status, operations.c.note)
        found = connection.execute(query.where(operations.c.id == parse_public_id(own))).first()
        if found is not None and found.status != OperationStatus.ACTIVE:
            return save_request(connection, _end_carried(stored, *found, now), "provisioner", now)
    return stored


def end_requests(connection: Connection, node: Node) -> None:
    """End the requests on a node that has come to rest, or was quarantined."""
    for asked in _read_under_way(connection, node.id):
        ended = end_request(asked, node)
        if ended is not None and "operation" not in (asked.result or {}):
            save_request(connection, ended, "provisioner", node.entered_at)


def end_carried(connection: Connection, operation: Operation, now: float) -> None:
    """End the request that an operation carried out, as that has ended."""
    for asked in _read_under_way(connection, operation.node):
        if (asked.result or {}).get("operation") == operation.public_id:
            ended = _end_carried(asked, operation.status, operation.note, now)
            save_request(connection, ended, "provisioner", now)


def _end_carried(asked: ChangeRequest, status: str, note: str, now: float) -> ChangeRequest:
    state = RequestState.DONE if status == OperationStatus.DONE else RequestState.FAILED
    return asked.model_copy(update={"state": state, "ended_at": now, "note": note})


def _read_under_way(connection: Connection, node: str) -> tuple[ChangeRequest, ...]:
    under_way = requests.c.state == str(RequestState.UNDER_WAY)
    query = select(requests.c.id, requests.c.body).where(requests.c.subject == node, under_way)
    rows = ((str(r.id), node, r.body) for r in connection.execute(query))
    return parse_each(connection, ChangeRequest, "requests", rows)


def read_request(connection: Connection, number: int) -> ChangeRequest | None:
    body = connection.scalar(select(requests.c.body).where(requests.c.id == number))
    return None if body is None else parse(ChangeRequest, body, f"requests, {number}")


def read_requests(
    connection: Connection,
    *,
    before: int = 0,
    limit: int = 100,
    states: Collection[RequestState] = (),
    tenant: str | None = None,
) -> tuple[ChangeRequest, ...]:
    """Return requests, the newest first; `before` 0: from the newest. `tenant`: only those visible
    to it.
    """
    query = select(requests.c.id, requests.c.body).order_by(requests.c.id.desc()).limit(limit)
    if before:
        query = query.where(requests.c.id < before)
    if states:
        query = query.where(requests.c.state.in_(sorted(str(s) for s in states)))
    if tenant is not None:
        query = query.where(requests.c.tenant == tenant)
    rows = ((str(r.id), "", r.body) for r in connection.execute(query))
    return parse_each(connection, ChangeRequest, "requests", rows)


def count_waiting(connection: Connection, asked_by: str, asked_after: float) -> int:
    """Return how many changes of one person wait for an approval; of the newest that do."""
    waiting = read_requests(connection, limit=WAITING_MAX, states=[RequestState.WAITING])
    return sum(r.asked_by == asked_by and r.asked_at > asked_after for r in waiting)


def give_up(
    connection: Connection, now: float, *, asked_before: float = float("inf")
) -> tuple[ChangeRequest, ...]:
    """Give up the former process's requests at a start. A person finds out whether each happened.

    `asked_before`: with peers, later requests may be under way in one of them.
    """
    note = "the daemon ended while it was under way; look at it, then ask again"
    lost = read_requests(connection, limit=10_000, states=[RequestState.RUNNING])
    return tuple(
        save_request(
            connection,
            row.model_copy(update={"state": RequestState.LOST, "ended_at": now, "note": note}),
            "provisioner",
            now,
        )
        for row in lost
        if row.asked_at < asked_before
    )


def _columns(asked: ChangeRequest) -> dict[str, object]:
    return {
        "tenant": asked.tenant,
        "state": str(asked.state),
        "generation": asked.generation,
        "body": canonical(asked.model_dump(mode="json")),
    }


def _note(connection: Connection, asked: ChangeRequest, by: str, now: float) -> None:
    """Journal a request with its author and outcome, for the audit."""
    event = ChangeAsked(
        about=asked.subject if asked.kind.startswith(("node.", "alert.", "case.")) else "",
        id=asked.id,
        change=asked.kind.value,
        subject=asked.subject,
        state=asked.state,
        by=by,
        asked_by=asked.asked_by,
        source=asked.source,
        agent=asked.agent,
        arguments=asked.arguments,
        before=asked.before,
        blockers=tuple(str(b) for b in asked.blockers),
    )
    journal.append(connection, event, now)
