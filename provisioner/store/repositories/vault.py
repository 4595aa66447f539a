"""`Credentials`: user names and passwords of BMCs and switches, sealed, with crash-safe change.

A change is stored as pending before the device hears of it, and becomes current once the device
took it. After a crash in between, either one may be in force, and both are here. A pending
credential is never written over by another one: it may be the only one that still opens the BMC.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sqlalchemy import Connection, bindparam, delete, select, update

from provisioner.model.credential import CredentialStanding, RotationCause
from provisioner.model.events.event import Event
from provisioner.ports.errors import StaleWrite
from provisioner.ports.wire import Secret
from provisioner.store.database.transactions import Transactions, reads, writes
from provisioner.store.repositories.key_exchange import prepare_keys
from provisioner.store.repositories.signing_keys import MasterKey, Sealing
from provisioner.store.rows import credential_rows, journal
from provisioner.store.rows.statements import insert_row, update_rows
from provisioner.store.schema.schema import credentials

# ------------------------------------------------------------------------------
# Ages of logins, and the events that demand their change.


class SqlCredentialStandings:
    """Standings by the login's name. Every method is one short transaction."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    # Add logins that have no row, as (name, node); rows that exist stay.
    enroll = writes(credential_rows.enroll)
    remove = writes(credential_rows.remove)
    get = reads(credential_rows.read)
    list_node = reads(credential_rows.read_node)
    list_names = reads(credential_rows.read_names)

    async def list_page(
        self, after: str, limit: int, *, node: str = "", due_by: float | None = None
    ) -> Sequence[CredentialStanding]:
        """Return rows by name, behind `after`; `due_by`: those that an event demands by then."""
        return await self._transactions.read(
            lambda c: credential_rows.read_page(c, after, limit, node, due_by)
        )

    # Return logins to change now, the most urgent first, then the oldest. `changed_before`: a
    # login of that age is due without an event; 0: none is. A row whose last attempt failed is
    # left out until its time; one whose attempt was cut off is not.
    list_due = reads(credential_rows.read_due)

    async def demand(
        self,
        cause: RotationCause,
        due_at: float,
        *,
        nodes: Collection[str] = (),
        names: Collection[str] = (),
        shown_to: str = "",
    ) -> int:
        """Demand a change of all logins, or of those selected; return how many.

        An earlier or more urgent demand stays in force. The pause after a failed attempt stays as
        well: it protects the account.
        """
        return await self._transactions.write(
            lambda c: credential_rows.demand(c, cause, due_at, nodes, names, shown_to)
        )

    # Return the names of logins whose password in force this person was shown.
    list_shown = reads(credential_rows.read_shown)

    async def record_shown(
        self, name: str, person: str, due_at: float, event: Event, now: float
    ) -> bool:
        """Record that a person is shown the password, and when it ends; False: no such row."""

        def record(connection: Connection) -> bool:
            shown = credential_rows.record_shown(connection, name, person, due_at)
            if shown:
                journal.append(connection, event, now)
            return shown

        return await self._transactions.write(record)

    async def record_change(self, name: str, node: str, now: float, event: Event) -> None:
        """Record a change that the device has confirmed; it ends every demand."""

        def record(connection: Connection) -> None:
            credential_rows.record_change(connection, name, node, now)
            journal.append(connection, event, now)

        await self._transactions.write(record)

    # Record that an attempt begins; return the row of before, None if there was none. Until
    # `retry_at` a request of it may be under way.
    begin_attempt = writes(credential_rows.begin_attempt)
    record_failure = writes(credential_rows.record_failure)
    summarize = reads(credential_rows.summarize)


Login = tuple[str, Secret]
LIKELY = "likely"  # after the password of a pending credential: it is the one to try first
# made once: every turn of every operation needs some logins
_ROW = (
    select(credentials.c.current, credentials.c.pending)
    .where(credentials.c.name == bindparam("wanted"))
    .with_for_update()
)
_SEALED = {
    column: select(credentials.c[column]).where(credentials.c.name == bindparam("wanted"))
    for column in ("current", "pending")
}
_MINE = update(credentials).where(credentials.c.name == bindparam("wanted"))
_CONFIRMED = _MINE.where(credentials.c.pending.is_not(None)).values(
    current=credentials.c.pending, pending=None
)


async def open_vault(
    transactions: Transactions, directory: Path, environ: Mapping[str, str]
) -> Vault:
    """Return the store's vault with the keys of `prepare_keys`, whose `InputError` it raises."""
    return Vault(transactions, await prepare_keys(transactions, directory, environ))


class Vault:
    """See `ports.Credentials`. Every method may raise `StoreFailed`, for a row that was changed."""

    def __init__(self, transactions: Transactions, key: Sealing) -> None:
        self._transactions = transactions
        self._key = key

    @property
    def keys(self) -> Sealing:
        return self._key

    async def current(self, name: str) -> Login | None:
        return self._open(name, await self._transactions.recall(_read_sealed, name, "current"))

    async def pending(self, name: str) -> Login | None:
        return self._open(name, await self._transactions.recall(_read_sealed, name, "pending"))

    async def is_pending_likely(self, name: str) -> bool:
        sealed = await self._transactions.recall(_read_sealed, name, "pending")
        return sealed is not None and len(self._read(name, sealed)) > 2

    async def expect_pending(self, name: str) -> None:
        """Note that the pending credential is the likelier one; without one nothing changes."""
        await self._transactions.write(lambda c: self._expect(c, name))

    async def begin(self, name: str, username: str, secret: Secret) -> None:
        """Store a pending credential; with the same one again nothing changes.

        `StaleWrite` if another one is pending: find out first which one the device accepts, then
        `confirm` the pending one or `put` the current one.
        """
        await self._transactions.write(lambda c: self._begin(c, name, (username, secret)))

    async def confirm(self, name: str) -> None:
        """Put the pending credential in force; without one nothing changes, so that it may be
        repeated.
        """
        await self._transactions.write(lambda c: _confirm(c, name))

    async def put(self, name: str, username: str, secret: Secret) -> None:
        """Store a credential that is in force; a pending one is dropped."""
        await self._transactions.write(lambda c: self._put(c, name, (username, secret)))

    async def remove(self, name: str) -> None:
        await self._transactions.write(lambda c: _remove(c, name))

    async def names(self) -> Sequence[str]:
        """Return every name that has a credential, sorted."""
        query = select(credentials.c.name).order_by(credentials.c.name)
        return await self._transactions.read(lambda c: tuple(c.scalars(query)))

    def _put(self, connection: Connection, name: str, login: Login) -> None:
        key = self._key.newest()
        sealed = _seal(key, name, login)
        self._write(connection, name, key, {"current": sealed, "pending": None})

    def _begin(self, connection: Connection, name: str, login: Login) -> None:
        pending = self._open(name, _read_sealed(connection, name, "pending"))
        if pending is not None and pending != login:
            raise StaleWrite(f"a change of the credential {name!r} is not finished")
        if pending is None:
            key = self._key.newest()
            self._write(connection, name, key, {"pending": _seal(key, name, login)})

    def _expect(self, connection: Connection, name: str) -> None:
        pending = self._open(name, _read_sealed(connection, name, "pending"))
        if pending is not None:
            key = self._key.newest()
            self._write(connection, name, key, {"pending": _seal(key, name, pending, LIKELY)})

    def _write(
        self, connection: Connection, name: str, key: MasterKey, columns: dict[str, bytes | None]
    ) -> None:
        """Write columns that `key` has sealed.

        A row is under one key. While the master key is exchanged, the other column may be under the
        old one: it is sealed anew with this one.
        """
        if update_rows(connection, credentials, {"name": name, "key_id": key.id}, columns):
            return
        values = {**columns, "key_id": key.id}
        row = connection.execute(_ROW, {"wanted": name}).one_or_none()
        if row is None:
            insert_row(connection, credentials, {"name": name, **values})
            return
        place = f"credential {name}"
        for column, kept in (("current", row.current), ("pending", row.pending)):
            if column not in columns and kept is not None:
                values[column] = key.seal(self._key.open(kept, place), place)
        update_rows(connection, credentials, {"name": name}, values)

    def _open(self, name: str, sealed: bytes | None) -> Login | None:
        if sealed is None:
            return None
        username, password, *_ = self._read(name, sealed)
        return username, Secret(password)

    def _read(self, name: str, sealed: bytes) -> list[str]:
        fields: list[str] = json.loads(self._key.open(sealed, f"credential {name}"))
        return fields

    def _seal(self, name: str, login: Login) -> bytes:
        return _seal(self._key.newest(), name, login)


def _seal(key: MasterKey, name: str, login: Login, *marks: str) -> bytes:
    plain = json.dumps([login[0], login[1].reveal(), *marks]).encode()
    return key.seal(plain, f"credential {name}")


def _read_sealed(connection: Connection, name: str, column: str) -> bytes | None:
    sealed: bytes | None = connection.scalar(_SEALED[column], {"wanted": name})
    return sealed


def _remove(connection: Connection, name: str) -> None:
    connection.execute(delete(credentials).where(credentials.c.name == name))


def _confirm(connection: Connection, name: str) -> None:
    connection.execute(_CONFIRMED, {"wanted": name})
