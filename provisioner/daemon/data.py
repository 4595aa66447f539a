"""Opens a command's files: the data directory, the matrix, the settings."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from provisioner.checks.threshold_data import Limits
from provisioner.control.watch.watch_standing import iterate_nodes, read_summary
from provisioner.control.watch.watcher import ALONE, PortWatches, Watcher
from provisioner.execution.observe.intake import Secrets
from provisioner.model.alert import WatchedNode, WatchStatus
from provisioner.model.expected import Expected
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.planning.intake import expected_text
from provisioner.planning.matrix import matrix_text, thresholds_text
from provisioner.planning.matrix.located_yaml import LIST_SIZE_MAX, Located, load
from provisioner.ports import Clock, Secret
from provisioner.runtime.event_loop import end_tasks
from provisioner.runtime.integrations import open_key_service
from provisioner.runtime.shipped import read_text
from provisioner.runtime.wall_clock import WallClock, read_clock
from provisioner.settings import Settings
from provisioner.store.database.backup import copier
from provisioner.store.database.data_directory import lock_data_directory, lock_database
from provisioner.store.database.postgres import is_postgres, postgres_url
from provisioner.store.repositories.key_exchange import KeyRing, prepare_keys
from provisioner.store.repositories.signing_keys import ENVIRONMENT, open_signer, open_wrapped_key
from provisioner.store.repositories.vault import Vault
from provisioner.store.signing import Signer
from provisioner.store.sql_store import SqlStore, open_store

# ------------------------------------------------------------------------------
# The watch's standing as a file of the data directory, for `provisioner watch status`.
#
# The standing is in the daemon's memory, and the database is written only when something changes.
# So one file shows it on this machine, twice a minute and less often for large fleets, to the
# readers of the directory.


log = logging.getLogger(__name__)

STATUS_FILE = "watch.json"
EVERY_S = 30.0  # real seconds, whatever the clock's speed
# BMCs; a larger site is written less often: of 65,536 nodes a write takes seconds
BMCS_PER_S = 2400.0
NODES_AT_ONCE = 64  # then other tasks run: after some 10 ms
STALE = 3  # periods without a new file after which the daemon counts as silent
SIZE_MAX = 256 * 1024 * 1024  # 65,536 nodes with 11 BMCs each are some 60 MB


@asynccontextmanager
async def kept_status(
    directory: Path, clock: Clock
) -> AsyncIterator[Callable[[Watcher, PortWatches], None]]:
    """Yield a function that takes the watcher and from then on writes its standing."""
    file = directory / STATUS_FILE
    writing: list[asyncio.Task[None]] = []

    def begin(watcher: Watcher, beside: PortWatches = ALONE) -> None:
        writing.append(asyncio.create_task(_write_for_ever(file, watcher, clock, beside)))
        writing[-1].add_done_callback(_ended)

    try:
        yield begin
    finally:
        await end_tasks(*writing)
        for file_left in (file, _new(file)):
            file_left.unlink(missing_ok=True)


def _ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.error("the watch's standing is not written any more", exc_info=task.exception())


async def _write_for_ever(file: Path, watcher: Watcher, clock: Clock, beside: PortWatches) -> None:
    while True:
        bmcs = sum(len(node.bmcs) for node, _ in watcher.list_watched())
        every_s = max(EVERY_S, bmcs / BMCS_PER_S)
        try:
            status = read_summary(watcher, clock.now(), beside)
            status = status.model_copy(update={"every_s": every_s})
            await write_status(file, status, iterate_nodes(watcher))
        except OSError as error:  # a full disk does not stop the watch
            log.warning("%s: it cannot be written: %s", file, error)
        await asyncio.sleep(every_s)


async def write_status(file: Path, about: WatchStatus, nodes: Iterable[WatchedNode]) -> None:
    """Write the whole file or none of it, for its owner only. Raises OSError.

    `about` has no nodes: they are written one by one, so that the event loop is not held.
    """
    new = _new(file)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(about.model_dump_json(exclude={"nodes"})[:-1] + ',"nodes":[')
        for number, node in enumerate(nodes):
            opened.write(f"{',' if number else ''}{node.model_dump_json()}")
            if number % NODES_AT_ONCE == NODES_AT_ONCE - 1:
                await asyncio.sleep(0)
        opened.write("]}")
    new.replace(file)


def _new(file: Path) -> Path:
    return file.with_name(f"{file.name}.new")


def read_status(directory: Path) -> tuple[WatchStatus, float]:
    """Return the newest standing, and the age of the file in real seconds.

    Raises `InputError` if no daemon writes it.
    """
    file = directory / STATUS_FILE
    remedy = "`provisioner serve` watches, and writes this file every half minute."
    try:
        with file.open("rb") as opened:
            text = opened.read(SIZE_MAX)
            age = time.time() - os.fstat(opened.fileno()).st_mtime
        return WatchStatus.model_validate_json(text), age
    except FileNotFoundError:
        raise InputError(str(file), "", "no daemon watches from here", remedy) from None
    except (OSError, ValidationError) as error:
        problem = f"it cannot be read ({type(error).__name__})"
        raise InputError(str(file), "", problem, remedy) from None


DATABASE = "provisioner.db"
DATABASE_VARIABLE = "PROVISIONER_DATABASE"


@dataclass(frozen=True)
class Keys:
    """The master key, and the stores that need it."""

    master: KeyRing
    vault: Vault
    signer: Signer


@dataclass(frozen=True)
class Data:
    """A data directory's contents. Reading `store` needs no key; the other parts do.

    `vault`, `signer` and `master` raise the `InputError` that says why there is no master key.
    """

    store: SqlStore
    clock: WallClock  # the clock of its daemon; a simulated site's may run fast
    keys: Keys | InputError

    @property
    def vault(self) -> Vault:
        return self._opened_keys().vault

    @property
    def signer(self) -> Signer:
        return self._opened_keys().signer

    @property
    def master(self) -> KeyRing:
        return self._opened_keys().master

    def _opened_keys(self) -> Keys:
        if isinstance(self.keys, InputError):
            raise self.keys
        return self.keys


def database_of(directory: Path, option: str = "") -> str:
    """Return the database: `option`, else PROVISIONER_DATABASE, else a file of the directory.

    Raises InputError for a password on the command line, which every process here could read.
    """
    named = option or os.environ.get(DATABASE_VARIABLE, "")
    if not named:
        return str(directory / DATABASE)
    source = "--database" if option else DATABASE_VARIABLE
    if not is_postgres(named):
        problem = "is no PostgreSQL database"
        raise InputError(source, "", problem, "Write postgresql://USER@HOST:PORT/NAME.")
    if option and postgres_url(option).password is not None:
        remedy = f"Put it into a password file (PGPASSFILE), PGPASSWORD or {DATABASE_VARIABLE}."
        raise InputError(source, "", "holds a password, which `ps` shows to everybody", remedy)
    return named


def has_data(directory: Path) -> bool:
    """Return whether there is a database already: a file, or one that the environment names."""
    return bool(os.environ.get(DATABASE_VARIABLE)) or (directory / DATABASE).is_file()


@contextmanager
def held_data(directory: Path, database: str = "", program: str = "") -> Iterator[None]:
    """Hold a data directory and its database for this process; the end releases both.

    `program`: digest of the code of a daemon that holds several master keys.

    On PostgreSQL each daemon has a seat instead, and the directory alone is held. Raises InputError
    if another process holds one of them.
    """
    named = database or database_of(directory)
    with ExitStack() as held:
        held.enter_context(lock_data_directory(directory, program))
        if not is_postgres(named):
            held.enter_context(lock_database(Path(named)))
        yield


@asynccontextmanager
async def open_data(
    directory: Path,
    now: float,
    database: str = "",
    *,
    migrates: bool = False,
    needs_key: bool = True,
) -> AsyncIterator[Data]:
    """Open (and make, if need be) a data directory, and close it at the end.

    `database` has the form that `database_of` accepts. `migrates`: a database of an older version
    is copied into the directory and then migrated; it is refused otherwise. `needs_key`: False
    opens the rest also where the master key is missing.
    """
    database = database or database_of(directory)
    copy_first = copier(database, directory) if migrates else None
    store = open_store(database, copy_first=copy_first)
    try:
        keys: Keys | InputError
        try:
            keys = await _open_keys(store, directory, now)
        except InputError as error:
            if needs_key:
                raise
            keys = error
        yield Data(store, read_clock(directory), keys)
    finally:
        await store.close()


async def _open_keys(store: SqlStore, directory: Path, now: float) -> Keys:
    master = await open_master_key(store, directory)
    signer = await open_signer(store, master, now)
    return Keys(master, Vault(store, master), signer)


async def open_master_key(store: SqlStore, directory: Path) -> KeyRing:
    """Return the master keys: of the environment, a key service, or the directory."""
    unwrapped = None
    if ENVIRONMENT not in os.environ:
        unwrapped = await open_wrapped_key(directory, open_key_service)
    return await prepare_keys(store, directory, os.environ, unwrapped)


def read_matrix(paths: Sequence[Path]) -> Matrix:
    """Return the matrix with its overlays, in order."""
    return matrix_text.parse([(str(p), read_text(p)) for p in paths])


def read_expected(path: Path) -> Expected:
    return expected_text.parse(str(path), read_text(path, LIST_SIZE_MAX))


def read_thresholds(path: Path | None) -> Mapping[str, Limits]:
    """Return a site's own thresholds; none without a file."""
    return thresholds_text.parse(str(path), read_text(path)) if path is not None else {}


def read_settings(path: Path | None, **overrides: object) -> Settings:
    """Return the settings of a YAML file with the command line's values over them."""
    located = Located({}, {(): ("settings", 1)})
    if path is not None:
        located = load(str(path), read_text(path))
    if not isinstance(located.tree, dict):
        raise located.build_error((), "these are not settings", "Write lines of `name: value`.")
    chosen = {k: v for k, v in overrides.items() if v is not None}
    try:
        return Settings.model_validate({**located.tree, **chosen})
    except ValidationError as error:
        raise located.build_model_error(error, "See docs/settings.md.") from None


def read_secrets(expected: Expected, environ: Mapping[str, str]) -> Secrets:
    """Resolve the passwords that the list refers to. Raises InputError for a missing one."""
    factory = {}
    for vendor, c in expected.factory_credentials.items():
        sources = (c.password, c.password_env, c.password_file)
        factory[vendor] = (c.username, _secret(f"factory_credentials.{vendor}", *sources, environ))
    switches = {}
    for n in (n for n in expected.nodes if n.username):
        sources = (n.password, n.password_env, n.password_file)
        switches[n.name] = (n.username, _secret(n.name, *sources, environ))
    return Secrets(factory=factory, switches=switches)


def _secret(
    where: str, password: str, variable: str, file: str, environ: Mapping[str, str]
) -> Secret:
    if variable:
        if not environ.get(variable):
            remedy = f"Run: export {variable}=..."
            raise InputError(where, "password_env", f"{variable} is not set or empty", remedy)
        return Secret(environ[variable])
    if file:
        try:
            content = read_text(Path(file)).strip()
        except InputError as error:
            problem = f"{file}: {error.problem}"
            raise InputError(where, "password_file", problem, error.remedy) from None
        if not content:
            raise InputError(where, "password_file", f"{file} is empty", "Write the password.")
        return Secret(content)
    return Secret(password)
