"""Opens the runner, and reads what a run said on one host.

`AnsibleRunner` batches calls into runs; a run is a folder, a row in the store and a detached
process. The verdict on a host comes from the events that the run wrote, never from an exit code.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from provisioner.integrations.playbooks.events import list_tasks
from provisioner.integrations.playbooks.folder import (
    EVENTS_MAX,
    READ_MAX,
    RunFolder,
    read_secrets,
)
from provisioner.integrations.playbooks.runner import AnsibleRunner
from provisioner.ports import Clock, PlaybookRunner, Remote, Run, RunRepository
from provisioner.ports.inband import TaskOutput
from provisioner.settings import Settings

log = logging.getLogger(__name__)

LOOKED_MAX = 64 * READ_MAX  # bytes of one run's events


@asynccontextmanager
async def open_runner(
    playbooks: Path,
    work: Path,
    remote: Remote,
    rows: RunRepository,
    clock: Clock,
    settings: Settings,
) -> AsyncIterator[PlaybookRunner]:
    """Yield the runner; runs that a killed daemon left are followed from here on."""
    runner = AnsibleRunner(playbooks, work, remote, rows, clock, settings)
    if running := await runner.attach():
        log.info("%d playbook runs were left by the last daemon", running)
    try:
        yield runner
    finally:
        await runner.close()


def list_play_tasks(run: Run, host: str) -> tuple[Sequence[TaskOutput], str]:
    """Return a run's tasks on a host without secrets, and why there are none."""
    folder = RunFolder.find(Path(run.folder))
    if folder is None:
        return (), "its folder is gone: it was pruned"
    data = b""
    while len(data) < min(LOOKED_MAX, EVENTS_MAX) and (more := folder.events(len(data))):
        data += more
    tasks = list_tasks(data, host, read_secrets(folder.volatile))
    return tasks, "" if tasks else "no task has begun on this node"
