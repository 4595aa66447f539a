"""Rows of logins' ages and demands. A demand of all logins is one statement, whatever their
number.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    or_,
    select,
)
from sqlalchemy import update as update_rows

from provisioner.model.certificate import SigningKey
from provisioner.model.credential import (
    URGENCY,
    CredentialStanding,
    CredentialSummary,
    DueLogin,
    RotationCause,
)
from provisioner.ports.errors import DamagedRow
from provisioner.store.rows import records
from provisioner.store.schema.schema import credential_standings as rows
from provisioner.store.schema.schema import signing_keys
from provisioner.store.signing import key_id

# ------------------------------------------------------------------------------
# The public keys that sign or signed certificates, and which of them are believed.


PUBLIC_BYTES = 32


def read_keys(connection: Connection) -> tuple[SigningKey, ...]:
    """Return every key that ever signed here, the newest first; a damaged one is left out and
    recorded: nothing is believed by it.
    """
    query = select(signing_keys).order_by(signing_keys.c.created_at.desc(), signing_keys.c.key_id)
    keys = []
    for row in connection.execute(query):
        problem = _find_problem(row)
        if problem:
            where = f"signing_keys, {row.key_id}"
            records.record(connection.engine, "", DamagedRow(where, problem))
            continue
        keys.append(
            SigningKey(
                key_id=row.key_id,
                public=row.public,
                created_at=row.created_at,
                signs=row.private is not None,
                withdrawn_at=row.withdrawn_at,
            )
        )
    return tuple(keys)


def _find_problem(row: Any) -> str:
    """Return why a key is not believed: its name is the digest of what it must be."""
    if not isinstance(row.public, bytes) or len(row.public) != PUBLIC_BYTES:
        return "its public half is no Ed25519 key"
    if key_id(row.public) != row.key_id:
        return f"its public half is that of key {key_id(row.public)}"
    times = (row.created_at, row.withdrawn_at if row.withdrawn_at is not None else 0.0)
    return "" if all(isinstance(t, float) for t in times) else "its times are no numbers"


def believed(connection: Connection) -> Mapping[str, bytes]:
    """Return every key whose signatures are believed: key id -> 32 bytes."""
    return {k.key_id: k.public for k in read_keys(connection) if k.withdrawn_at is None}


SETUP = "setup"  # behind the node's name: the login to its UEFI set-up
IN_MAX = 500  # names in one statement
_CAUSES = {place: cause for cause, place in URGENCY.items()}
_FRESH = {
    "due_at": 0.0,
    "urgency": 0,
    "shown_to": "[]",
    "failures": 0,
    "retry_at": 0.0,
    "problem": "",
}
# made once: an emergency runs these for each login of the site
_ONE = select(rows).where(rows.c.name == bindparam("wanted"))
_MINE = update_rows(rows).where(rows.c.name == bindparam("wanted"))
_CHANGED = _MINE.values({column: bindparam(column) for column in ("node", "changed_at", *_FRESH)})
_BEGUN = _MINE.values(retry_at=bindparam("retry_at"))


def enroll(connection: Connection, names: Mapping[str, str], changed_at: float) -> None:
    """Add logins that have no row."""
    for part in _parts(names):
        stored = set(connection.scalars(select(rows.c.name).where(rows.c.name.in_(part))))
        new = [
            {"name": name, "node": names[name], "changed_at": changed_at, **_FRESH}
            for name in part
            if name not in stored
        ]
        if new:
            connection.execute(insert(rows), new)


def remove(connection: Connection, names: Collection[str]) -> None:
    for part in _parts(names):
        connection.execute(delete(rows).where(rows.c.name.in_(part)))


def read(connection: Connection, name: str) -> CredentialStanding | None:
    row = connection.execute(_ONE, {"wanted": name}).one_or_none()
    return None if row is None else _standing(row)


def read_node(connection: Connection, node: str) -> Sequence[CredentialStanding]:
    query = select(rows).where(rows.c.node == node).order_by(rows.c.name)
    return tuple(_standing(row) for row in connection.execute(query))


def read_names(connection: Connection) -> Mapping[str, str]:
    return {row.name: row.node for row in connection.execute(select(rows.c.name, rows.c.node))}


def read_page(
    connection: Connection, after: str, limit: int, node: str, due_by: float | None
) -> Sequence[CredentialStanding]:
    """Return rows by name, behind `after`; of a damaged one its name, and that it is damaged."""
    query = select(rows).where(rows.c.name > after)
    if node:
        query = query.where(rows.c.node == node)
    if due_by is not None:
        query = query.where(rows.c.urgency > 0, rows.c.due_at <= due_by)
    page = connection.execute(query.order_by(rows.c.name).limit(limit))
    return tuple(_standing_or_problem(row) for row in page)


def read_due(
    connection: Connection, now: float, changed_before: float, limit: int
) -> Sequence[DueLogin]:
    """Return logins to change now: demanded ones by urgency, then those of age.

    Set-up passwords are left out: they change with a boot of their host, between two tenants.
    """
    may = and_(
        or_(rows.c.retry_at <= now, rows.c.failures == 0), rows.c.name.not_like(f"%/{SETUP}")
    )
    due = select(rows.c.name, rows.c.node, rows.c.urgency).where(may)
    demanded = due.where(rows.c.urgency > 0, rows.c.due_at <= now)
    order = (rows.c.urgency, rows.c.due_at, rows.c.name)
    listed = _list_due(connection, demanded.order_by(*order).limit(limit))
    if changed_before <= 0.0 or len(listed) >= limit:
        return listed
    aged = due.where(
        rows.c.changed_at < changed_before, or_(rows.c.urgency == 0, rows.c.due_at > now)
    )
    aged = aged.order_by(rows.c.changed_at, rows.c.name).limit(limit - len(listed))
    return [*listed, *_list_due(connection, aged)]


def _list_due(connection: Connection, query: Select[Any]) -> list[DueLogin]:
    listed = connection.execute(query).all()
    return [DueLogin(row.name, row.node, _CAUSES.get(row.urgency)) for row in listed]


def demand(
    connection: Connection,
    cause: RotationCause,
    due_at: float,
    nodes: Collection[str],
    names: Collection[str],
    shown_to: str,
) -> int:
    """Demand a change of all logins, or of those selected; return how many."""
    if shown_to:
        return _demand(connection, cause, due_at, rows.c.name.in_(read_shown(connection, shown_to)))
    if not nodes and not names:
        return _demand(connection, cause, due_at, rows.c.name != "")
    by_node = sum(
        _demand(connection, cause, due_at, rows.c.node.in_(part)) for part in _parts(nodes)
    )
    return by_node + sum(
        _demand(connection, cause, due_at, rows.c.name.in_(part)) for part in _parts(names)
    )


def read_shown(connection: Connection, person: str) -> Sequence[str]:
    """Return the names of logins whose password in force a person was shown."""
    shown = select(rows.c.name, rows.c.shown_to).where(rows.c.shown_to != "[]")
    person = person.casefold()
    return [
        row.name
        for row in connection.execute(shown)
        if person in (p.casefold() for p in json.loads(row.shown_to))
    ]


def record_shown(connection: Connection, name: str, person: str, due_at: float) -> bool:
    """Record that a person is shown the password in force, which ends at `due_at`."""
    standing = read(connection, name)
    if standing is None:
        return False
    people = sorted({*standing.shown_to, person})
    shown = update_rows(rows).where(rows.c.name == name).values(shown_to=json.dumps(people))
    connection.execute(shown)
    _demand(connection, RotationCause.SHOWN, due_at, rows.c.name == name)
    return True


def record_change(connection: Connection, name: str, node: str, now: float) -> None:
    """Begin the row's age anew; every demand is met."""
    values = {"node": node, "changed_at": now, **_FRESH}
    if connection.execute(_CHANGED, {"wanted": name, **values}).rowcount == 0:
        connection.execute(insert(rows).values(name=name, **values))


def begin_attempt(
    connection: Connection, name: str, node: str, retry_at: float
) -> CredentialStanding | None:
    """Record that an attempt begins, which is over at `retry_at` at the latest; return the row of
    before.
    """
    before = read(connection, name)
    if connection.execute(_BEGUN, {"wanted": name, "retry_at": retry_at}).rowcount == 0:
        values = {**_FRESH, "retry_at": retry_at}
        connection.execute(insert(rows).values(name=name, node=node, changed_at=0.0, **values))
    return before


def record_failure(connection: Connection, name: str, problem: str, retry_at: float) -> None:
    failed = update_rows(rows).where(rows.c.name == name)
    connection.execute(
        failed.values(failures=rows.c.failures + 1, problem=problem, retry_at=retry_at)
    )


def summarize(connection: Connection, now: float) -> CredentialSummary:
    known = rows.c.changed_at > 0

    def number(holds: ColumnElement[bool]) -> ColumnElement[int]:
        return func.coalesce(func.sum(case((holds, 1), else_=0)), 0)

    query = select(
        func.count(),
        number(rows.c.changed_at == 0),
        number(and_(rows.c.urgency > 0, rows.c.due_at <= now)),
        number(rows.c.failures > 0),
        number(rows.c.shown_to != "[]"),
        func.min(case((known, rows.c.changed_at))),
    )
    row = connection.execute(query).one()
    return CredentialSummary(
        count=row[0],
        unknown_age=row[1],
        due=row[2],
        failing=row[3],
        shown=row[4],
        oldest_at=row[5] or 0.0,
    )


def _demand(
    connection: Connection, cause: RotationCause, due_at: float, which: ColumnElement[bool]
) -> int:
    """Keep an earlier demand's time and a more urgent one's cause; together they come sooner."""
    place = URGENCY[cause]
    none = rows.c.urgency == 0
    values = {
        "due_at": case((or_(none, rows.c.due_at > due_at), due_at), else_=rows.c.due_at),
        "urgency": case((or_(none, rows.c.urgency > place), place), else_=rows.c.urgency),
    }
    return connection.execute(update_rows(rows).where(which).values(**values)).rowcount


def _standing(row: Row[tuple[object, ...]]) -> CredentialStanding:
    values = row._asdict()
    where = f"credential_standings, {values['name']}"
    try:
        shown_to = tuple(json.loads(values.pop("shown_to")))
        cause = _CAUSES.get(values.pop("urgency"))
        return CredentialStanding(cause=cause, shown_to=shown_to, **values)
    except (TypeError, ValueError) as error:
        raise DamagedRow(where, type(error).__name__) from None


def _standing_or_problem(row: Row[tuple[object, ...]]) -> CredentialStanding:
    try:
        return _standing(row)
    except DamagedRow:
        problem = "its row is damaged: see `provisioner doctor`"
        return CredentialStanding(name=row.name, node=str(row.node), problem=problem)


def _parts(names: Collection[str]) -> Iterator[Sequence[str]]:
    ordered = sorted(names)
    for begin in range(0, len(ordered), IN_MAX):
        yield ordered[begin : begin + IN_MAX]
