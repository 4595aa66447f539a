"""Rows of what people asked for through the API. One function is one part of a transaction."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, func, insert, select, update

from provisioner.model.access import ChangeRequest, RequestState
from provisioner.model.events.request_events import ChangeAsked
from provisioner.ports.errors import StaleWrite
from provisioner.store.rows import journal as chain
from provisioner.store.rows.damage import parse_each
from provisioner.store.rows.records import canonical, clean, parse
from provisioner.store.schema.access_schema import requests

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
    """Record the outcome of a request; `StaleWrite` if another writer was faster since it was
    read.
    """
    stored = asked.model_copy(update={"generation": asked.generation + 1})
    mine = (requests.c.id == asked.id) & (requests.c.generation == asked.generation)
    if connection.execute(update(requests).where(mine).values(**_columns(stored))).rowcount != 1:
        raise StaleWrite(f"request {asked.id} is no longer at generation {asked.generation}")
    _note(connection, stored, by, now)
    return stored


def read_request(connection: Connection, number: int) -> ChangeRequest | None:
    """Return one request, or None."""
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
        blockers=tuple(str(b) for b in asked.blockers),
    )
    chain.append(connection, event, now)
