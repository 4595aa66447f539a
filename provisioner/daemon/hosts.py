"""Builds the access to hosts: the playbook runner and the shell, real or simulated."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from provisioner.adapters.ssh import SshShell
from provisioner.ports import Clock, HostShell, PlaybookRunner, Remote
from provisioner.ports.agents import SimulatedSite
from provisioner.runtime.integrations import open_playbooks
from provisioner.runtime.wall_clock import WallClock, write_clock
from provisioner.settings import Settings
from provisioner.store.database.data_directory import place_of
from provisioner.store.repositories.agents import SqlRunRepository
from provisioner.store.sql_store import SqlStore

RUNS = "runs"
KNOWN_HOSTS = "known_hosts"


@dataclass(frozen=True)
class Hosts:
    """The two ports for work on hosts."""

    runner: PlaybookRunner
    shell: HostShell


@asynccontextmanager
async def open_hosts(
    data: Path, playbooks: Path, remote: Remote, store: SqlStore, clock: Clock, settings: Settings
) -> AsyncIterator[Hosts]:
    """Yield the access to real hosts; runs that a killed daemon left are followed from here on.

    Without a file of known hosts, each host's key is learned at its first connection.
    """
    if remote.known_hosts is None:
        remote = replace(remote, known_hosts=(data / KNOWN_HOSTS).resolve(), learn=True)
    rows = SqlRunRepository(store, place_of(data) if store.shared else "")
    async with open_playbooks(playbooks, data / RUNS, remote, rows, clock, settings) as runner:
        shell = SshShell(remote, settings.ssh_connections_max)
        try:
            yield Hosts(runner, shell)
        finally:
            await shell.close()


async def kept_clock(runner: SimulatedSite | None, directory: Path) -> WallClock:
    """Return the site's time, and write it down for commands on this directory.

    A simulated site's own may run fast; both sides then use the same.
    """
    clock = WallClock()
    if runner is not None:
        answer = await runner.get("/clock")
        clock = WallClock(answer["speed"], answer["epoch"])
    write_clock(directory, clock)
    return clock


@asynccontextmanager
async def simulated_hosts(runner: SimulatedSite) -> AsyncIterator[Hosts]:
    """Yield the simulator's hosts behind a control socket, which is closed at the end."""
    try:
        yield Hosts(runner, runner.build_shell())
    finally:
        await runner.close()
