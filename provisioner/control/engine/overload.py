"""Detect an overload of the daemon, report it with its cause, and suspend work that can wait.

Each user of suspended work asks first: the scheduler before it begins an operation, the watch
before a routine look. Work under way is never interrupted.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import shutil
from pathlib import Path

from provisioner.model.events.fleet_events import (
    DaemonNoticed,
    DaemonNoticesEnded,
    DaemonOverloaded,
    DaemonRelieved,
)
from provisioner.model.node import Node, State
from provisioner.planning.lifecycle.admission import (
    Level,
    Load,
    Strain,
    find_strains,
    highest_level,
)
from provisioner.ports import Clock
from provisioner.runtime import permit
from provisioner.store.database import waits
from provisioner.store.database.database import directory_of
from provisioner.store.sql_store import SqlStore

log = logging.getLogger(__name__)

SAMPLE_S = 2.0
CALM_SAMPLES = 5  # in a row, before suspended work resumes: no flapping at a limit
DESCRIPTORS = Path("/proc/self/fd")
ESSENTIAL = frozenset({State.DRAINING})  # a tenant's node is taken back, whatever the load


class Overload:
    """One per process. `run` measures for ever; the rest is asked at any time."""

    def __init__(self, store: SqlStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._calm = 0
        self._noticed: tuple[str, ...] = ()
        self.found: tuple[Strain, ...] = ()

    @property
    def level(self) -> Level:
        return highest_level(self.found)

    def may_begin(self, node: Node) -> bool:
        """Return whether a new operation may be opened for this node."""
        return self.level < Level.SEVERE or node.state in ESSENTIAL

    def may_watch(self) -> bool:
        """Return whether routine looks may be begun."""
        return self.level < Level.STRAINED

    async def run(self) -> None:
        """Measure until cancelled. The lag is of the real loop, whatever the clock's speed."""
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(SAMPLE_S)
            lag_s = max(loop.time() - began - SAMPLE_S, 0.0)
            await self.take(measure_load(self._store, lag_s))
            await self.notice(list_notices())

    async def notice(self, found: tuple[str, ...]) -> None:
        """Write notices that are new, and their end, into the journal: webhooks carry them on."""
        if found == self._noticed:
            return
        self._noticed = found
        event = DaemonNoticed(notices=found) if found else DaemonNoticesEnded(notices=())
        await self._store.journal.append(event, self._clock.now())

    async def take(self, load: Load) -> None:
        """Take one measurement; log and journal a change of the overloaded resources."""
        strains = find_strains(load)
        if highest_level(strains) < self.level:
            self._calm += 1
            if self._calm < CALM_SAMPLES:
                return
        self._calm = 0
        before = {(s.by, s.level) for s in self.found}
        self.found = strains
        if {(s.by, s.level) for s in strains} == before:
            return
        for strain in strains:
            log.warning("overloaded (%s) by %s: %s", strain.level.name, strain.by, strain.detail)
        if not strains:
            log.warning("no longer overloaded")
        event_class = DaemonOverloaded if strains else DaemonRelieved
        short = tuple(s.model_dump(mode="json") for s in strains)
        await self._store.journal.append(
            event_class(level=self.level.name, by=short), self._clock.now()
        )


def list_notices() -> tuple[str, ...]:
    """Return this process's own notices: a clock that differs, a change that rolls out."""
    by_subject = permit.get_scope().notices
    return tuple(notice for subject in sorted(by_subject) for notice in by_subject[subject])


def measure_load(store: object, lag_s: float) -> Load:
    """Return the present load of this process, including the store's own figures."""
    engine = getattr(store, "_engine", None)  # its engine, if it is a database
    directory = None if engine is None else directory_of(engine)
    return Load(
        lag_s=lag_s,
        descriptors=_descriptors(),
        descriptors_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        waiting=int(getattr(getattr(store, "writer", None), "waiting", 0)),
        disk_free_bytes=None if directory is None else _free(directory),
        database_wait_s=waits.longest()[1],
    )


def _descriptors() -> int | None:
    """Return the number of open descriptors; None where the system does not report it."""
    try:
        # Linux 6.2 and later tell the number; listing 20,000 of them holds the loop for 0.3 s
        return DESCRIPTORS.stat().st_size or sum(1 for _ in DESCRIPTORS.iterdir())
    except OSError as error:
        if error.errno in (errno.ENFILE, errno.EMFILE):  # not even one for this look is left
            return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return None


def _free(directory: Path) -> int | None:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None
