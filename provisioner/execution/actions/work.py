"""One physical piece of work: the act, and how its end is awaited and verified."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.host_keys import HostLogin
from provisioner.execution.actions.once import Act, once
from provisioner.execution.actions.power import Feeds
from provisioner.execution.actions.reach import Reach
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.os_images import OsImages
from provisioner.model.matrix import Pin
from provisioner.model.operation import ActionStatus, LedgerEntry
from provisioner.model.outcome import Blocker
from provisioner.planning.machine_settings.pinned_sets import PinnedSets
from provisioner.ports import Agents, Clock, HostShell, PlaybookRunner
from provisioner.ports.agents import ConsoleBook
from provisioner.settings import Settings


@dataclass(frozen=True)
class Site:
    """Everything that effects need from outside, put together once by the daemon."""

    clock: Clock
    settings: Settings
    reach: Reach
    runner: PlaybookRunner
    shell: HostShell
    agents: Agents
    artifacts: Artifacts
    image: Pin | None = None  # the maintenance image
    os_images: OsImages | None = None
    login: HostLogin | None = None
    feeds: Feeds | None = None  # outlets of hosts; None: the site has none
    consoles: ConsoleBook | None = None  # None: no console is collected
    machine_sets: PinnedSets = field(default_factory=dict)  # settings of BIOS and BMC, as pinned


@dataclass(frozen=True)
class Work:
    """`finish` waits for the end and verifies it by reading the device again; None: it is so."""

    act: Act
    finish: Callable[[LedgerEntry], Awaitable[Blocker | None]]


async def do_work(site: Site, hold: Hold, work: Work, entry: LedgerEntry | None) -> Blocker | None:
    """Carry out one piece of work, or take it up where a predecessor left it."""
    sent = await once(hold, site.clock, site.settings, work.act, entry)
    if isinstance(sent, Blocker):
        return sent
    problem = await work.finish(sent)
    if problem is None:
        await hold.settle_entry(sent, ActionStatus.CONFIRMED, task=sent.task)
    else:
        await hold.settle_entry(sent, ActionStatus.FAILED, task=sent.task, outcome=str(problem))
    return problem
