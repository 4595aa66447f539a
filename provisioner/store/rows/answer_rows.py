"""Rows of answers that are kept, so that a change that is asked for twice is made once.

The row is written before the change begins. One without an answer means that the change may or may
not have been made: it is never made again under the same key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from provisioner.model.kept_answer import KeptAnswer, TooManyKeys
from provisioner.store.rows.records import clean, parse_object
from provisioner.store.schema.access_schema import answers

DELETED_MAX = 1000  # old rows that one change clears away, so that none takes long


def begin(
    connection: Connection,
    caller: str,
    key: str,
    fingerprint: str,
    now: float,
    keep_s: float,
    keys_max: int,
) -> KeptAnswer | None:
    """Return the answer stored under this key; None: it is new, and taken from now on.

    Raises `TooManyKeys` for a new key of a caller that has `keys_max` of them.
    """
    old = select(answers.c.caller, answers.c.key).where(answers.c.asked_at < now - keep_s)
    for row in connection.execute(old.limit(DELETED_MAX)).all():
        connection.execute(delete(answers).where(_is(row.caller, row.key)))
    stored = connection.execute(select(answers).where(_is(caller, key))).first()
    if stored is not None:
        headers = {str(k): str(v) for k, v in parse_object(stored.headers, "answers").items()}
        return KeptAnswer(stored.fingerprint, stored.status, headers, stored.body)
    counted = select(func.count(), func.min(answers.c.asked_at)).where(answers.c.caller == caller)
    count, oldest_at = connection.execute(counted).one()
    if count >= keys_max:
        raise TooManyKeys(max(1.0, oldest_at + keep_s - now))
    connection.execute(
        insert(answers).values(
            caller=caller,
            key=key,
            fingerprint=fingerprint,
            asked_at=now,
            status=0,
            headers="{}",
            body="",
        )
    )
    return None


def finish(
    connection: Connection,
    caller: str,
    key: str,
    status: int,
    headers: Mapping[str, str],
    body: str,
) -> None:
    """Record the answer; the same is returned from now on."""
    row = {"status": status, "headers": json.dumps(dict(headers)), "body": clean(body)}
    connection.execute(update(answers).where(_is(caller, key)).values(**row))


def release(connection: Connection, caller: str, key: str) -> None:
    """Free a key under which nothing was begun."""
    connection.execute(delete(answers).where(_is(caller, key) & (answers.c.status == 0)))


def _is(caller: str, key: str) -> ColumnElement[bool]:
    return (answers.c.caller == caller) & (answers.c.key == key)
