"""The key of a data directory, prepared at a start, and exchanged for a new one while daemons run.

The exchange is a walk over the rows, in short transactions: every secret that is sealed with
another key than the newest is opened and sealed anew. `master.key.next` is on disk before the first
of them, and daemons seal with it from then on, so that the walk ends. Only when no row is left
under the old key does the new one take its place. A death anywhere leaves files that open every
row, and the next call goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sqlalchemy import Connection, func, select, update

from provisioner.model.input_error import InputError
from provisioner.ports.errors import StoreFailed
from provisioner.runtime.whole_files import sync_directory, write_private
from provisioner.store.database.data_directory import (
    SealedFile,
    prepare_directory,
    remove_secret,
)
from provisioner.store.database.transactions import Transactions
from provisioner.store.repositories.signing_keys import (
    ENVIRONMENT,
    KEY_FILE,
    NEXT_FILE,
    MasterKey,
    Sealing,
    read_key_file,
    read_key_ids,
)
from provisioner.store.schema.schema import credentials, signing_keys

# ------------------------------------------------------------------------------
# The master keys of a data directory: one, or two while the old one is exchanged for a new one.
#
# Which key is in force is said by files alone: `master.key.next` exists while the exchange is under
# way, and from the moment that it does everything is sealed with it. So a daemon needs no message
# and no restart: it looks at the files before each seal, and before it gives up on a secret. A key
# that was in force stays in memory, since secrets that were read before open with it.


LOOKS_MAX = 4  # at files that change meanwhile
Stamp = tuple[int, int, int]


class KeyRing:
    """Seals with the newest key, and opens with any of them; it has what `MasterKey` has."""

    def __init__(self, keys: Sequence[MasterKey], directory: Path | None = None) -> None:
        """`keys`: the newest first. `directory`: where its files are; None: keys never change."""
        assert keys
        self._keys = list(keys)
        self._directory = directory
        self._stamps: tuple[Stamp | None, ...] = ()

    @property
    def id(self) -> str:
        """Return the name of the key that seals now."""
        return self.newest().id

    def newest(self) -> MasterKey:
        """Return the key that seals now; its files are looked at."""
        self._refresh()
        return self._keys[0]

    def list_ids(self) -> tuple[str, ...]:
        """Return the names of the keys that open secrets now."""
        self._refresh()
        return tuple(key.id for key in self._keys)

    def seal(self, plain: bytes, name: str) -> bytes:
        """Encrypt a text, bound to `name`, with the newest key."""
        return self.newest().seal(plain, name)

    def open(self, sealed: bytes, name: str) -> bytes:
        """Return the inverse; `StoreFailed` if no key of the ring fits."""
        for _ in range(2):
            for key in self._keys:
                try:
                    return key.open(sealed, name)
                except StoreFailed:
                    continue
            self._refresh()  # another process may have begun an exchange since
        return self._keys[0].open(sealed, name)

    def _refresh(self) -> None:
        """Read the files again if one of them is another than it was."""
        if self._directory is None:
            return
        files = [self._directory / name for name in (NEXT_FILE, KEY_FILE)]
        for _ in range(LOOKS_MAX):
            stamps = tuple(_stamp(file) for file in files)
            if stamps == self._stamps:
                return
            try:
                there = zip(files, stamps, strict=True)
                read = [read_key_file(file) for file, stamp in there if stamp is not None]
            except InputError:
                continue  # it was put into force between the two looks, or is being written
            if stamps == tuple(_stamp(file) for file in files):
                break
        else:
            return
        self._stamps = stamps
        ids = {key.id for key in read}
        self._keys = [*read, *(key for key in self._keys if key.id not in ids)]

    def __repr__(self) -> str:
        return f"KeyRing(ids={tuple(key.id for key in self._keys)!r})"


def _stamp(file: Path) -> Stamp | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


log = logging.getLogger(__name__)
OLD_FILE = "master.key.old"  # of the last exchange, until a start finds no secret under it
BATCH = 500  # rows of one transaction: some 20 ms, in which a daemon's writes wait
Report = Callable[[int, int], None]  # rows that are done, and all that there were


async def prepare_keys(
    transactions: Transactions,
    directory: Path,
    environ: Mapping[str, str],
    unwrapped: MasterKey | None = None,
) -> KeyRing:
    """Return the keys that the store's secrets are sealed with; one is made and kept (0600) at the
    first start.

    PROVISIONER_KEY wins over `unwrapped`, which a key service opened, and that over the files. An
    exchange that ended in the rows is brought to its end; one that is under way stays so, and both
    keys are in the ring. Raises `InputError` if a key is missing: none is made while secrets exist.
    """
    key_ids = await transactions.read(read_key_ids)
    if ENVIRONMENT in environ:
        key = MasterKey.parse(environ[ENVIRONMENT], ENVIRONMENT)
        return _fitting([key], key_ids, ENVIRONMENT)
    if unwrapped is not None:
        return _fitting([unwrapped], key_ids, "the key service")
    prepare_directory(directory)
    file = directory / KEY_FILE
    following = directory / NEXT_FILE
    if following.exists() and key_ids == {read_key_file(following).id}:
        both = [read_key_file(f) for f in (following, file) if f.exists()]
        SealedFile(directory, KeyRing(both)).renew()
        _promote(directory)
    keys = [read_key_file(f) for f in (following, file) if f.exists()]
    if following.exists():
        log.warning("the master key is being exchanged: `provisioner db reseal` ends it")
    keys += _keep_old(directory, key_ids)
    if keys:
        return _fitting(keys, key_ids, str(file), directory)
    if key_ids:
        raise InputError(
            str(file),
            "",
            f"is missing, and the credentials are sealed with key {min(key_ids)}",
            f"Restore the file, or set {ENVIRONMENT}.",
        )
    key = MasterKey.generate()
    SealedFile(directory, key).read()  # raises: a key that is missing is not made anew
    write_private(file, key.text().encode() + b"\n")
    return KeyRing([key], directory)


async def prepare_key(
    transactions: Transactions,
    directory: Path,
    environ: Mapping[str, str],
    unwrapped: MasterKey | None = None,
) -> MasterKey:
    """Return the only key of `prepare_keys`; `InputError` while it is being exchanged."""
    ring = await prepare_keys(transactions, directory, environ, unwrapped)
    if len(ring.list_ids()) > 1:
        remedy = "Run `provisioner db reseal` to its end first."
        raise InputError(str(directory), "", "the master key is being exchanged", remedy)
    return ring.newest()


def begin_exchange(directory: Path) -> MasterKey:
    """Put the next key beside the one in force, and return it; one that is there is gone on with.

    From here on every daemon of this directory seals with it.
    """
    following = directory / NEXT_FILE
    if following.exists():
        return read_key_file(following)
    new = MasterKey.generate()
    writing = directory / f"{NEXT_FILE}.part"
    writing.unlink(missing_ok=True)
    write_private(writing, new.text().encode() + b"\n")
    writing.replace(following)
    sync_directory(directory)
    return new


async def walk(transactions: Transactions, keys: Sealing, new: MasterKey, report: Report) -> int:
    """Seal every secret with `new` that is not; return how many. It may be begun again."""
    done = 0
    total = await transactions.read(lambda c: _count_left(c, new))
    report(0, total)
    while True:
        count = await transactions.write(lambda c: _reseal_part(c, keys, new))
        done += count
        report(done, max(total, done))
        if not count and not await transactions.write(lambda c: _count_left_alone(c, new)):
            return done


def end_exchange(directory: Path) -> None:
    """Put the next key in the place of the one in force, which is kept aside until the next start
    finds that no secret needs it.
    """
    file = directory / KEY_FILE
    both = [read_key_file(f) for f in (directory / NEXT_FILE, file) if f.exists()]
    SealedFile(directory, KeyRing(both)).renew()
    if file.exists():
        aside = directory / f"{OLD_FILE}.part"
        aside.unlink(missing_ok=True)
        write_private(aside, file.read_bytes())
        aside.replace(directory / OLD_FILE)
    _promote(directory)


async def rekey(transactions: Transactions, old: MasterKey, new: MasterKey) -> int:
    """Seal every secret anew, in one transaction; how many. For a key that is in no file.

    `Vault` and `Signer` are then opened again with the new key.
    """
    ring = KeyRing([new, old])

    def reseal(connection: Connection) -> int:
        count = 0
        while part := _reseal_part(connection, ring, new):
            count += part
        return count

    return await transactions.write(reseal)


def _fitting(
    keys: list[MasterKey], wanted: frozenset[str], source: str, directory: Path | None = None
) -> KeyRing:
    missing = wanted - {key.id for key in keys}
    if not missing:
        return KeyRing(keys, directory)
    raise InputError(
        source,
        "",
        f"is key {keys[-1].id}, and the credentials are sealed with key {min(missing)}",
        "Give the key that this database was used with.",
    )


def _keep_old(directory: Path, key_ids: frozenset[str]) -> list[MasterKey]:
    """Return the key of the last exchange if a secret still needs it; else it is removed."""
    file = directory / OLD_FILE
    if not file.exists():
        return []
    key = read_key_file(file)
    if key.id in key_ids:
        return [key]
    remove_secret(file)
    return []


def _promote(directory: Path) -> None:
    (directory / NEXT_FILE).replace(directory / KEY_FILE)
    sync_directory(directory)


def _count_left(connection: Connection, new: MasterKey) -> int:
    rows = select(func.count()).select_from(credentials).where(credentials.c.key_id != new.id)
    held = select(func.count()).select_from(signing_keys)
    held = held.where(signing_keys.c.private.is_not(None), signing_keys.c.master_key_id != new.id)
    return int(connection.scalar(rows) or 0) + int(connection.scalar(held) or 0)


def _count_left_alone(connection: Connection, new: MasterKey) -> int:
    """Count while nothing else writes secrets: one that is about to be committed is waited for."""
    if connection.dialect.name == "postgresql":
        names = f"{credentials.name}, {signing_keys.name}"
        connection.exec_driver_sql(f"LOCK TABLE {names} IN SHARE MODE")
    return _count_left(connection, new)


def _reseal_part(connection: Connection, keys: Sealing, new: MasterKey) -> int:
    """Seal some rows anew; 0: none is left."""
    part = select(credentials).where(credentials.c.key_id != new.id)
    rows = connection.execute(part.order_by(credentials.c.name).limit(BATCH).with_for_update())
    count = 0
    for row in rows.all():
        name = f"credential {row.name}"
        sealed = {
            column: None if value is None else new.seal(keys.open(value, name), name)
            for column, value in (("current", row.current), ("pending", row.pending))
        }
        changed = update(credentials).where(credentials.c.name == row.name)
        connection.execute(changed.values(**sealed, key_id=new.id))
        count += 1
    held = select(signing_keys).where(
        signing_keys.c.private.is_not(None), signing_keys.c.master_key_id != new.id
    )
    for row in connection.execute(held.with_for_update()).all():
        name = f"signing key {row.key_id}"
        private = new.seal(keys.open(row.private, name), name)
        changed = update(signing_keys).where(signing_keys.c.key_id == row.key_id)
        connection.execute(changed.values(private=private, master_key_id=new.id))
        count += 1
    return count
