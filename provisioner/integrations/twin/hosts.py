"""The host ports (playbook runner and shell), answered by a simulated site in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from provisioner.integrations.sim.site.site import Site
from provisioner.integrations.simulated_site.simulated_agents import name_commands, read_outputs
from provisioner.ports import PlaybookCall, PlaybookResult, ShellCommand, ShellOutput
from provisioner.runtime import permit

Runs = dict[str, tuple[str, str, float, asyncio.Future[Any]]]  # host -> its latest run


async def _await_result(task: asyncio.Future[Any]) -> PlaybookResult:
    task.add_done_callback(lambda t: t.cancelled() or t.exception())
    outcome = await asyncio.shield(task)
    return PlaybookResult(outcome["status"], outcome["facts"], outcome.get("detail", ""))


class MemoryRunner:
    """`PlaybookRunner` for the simulated hosts; a started play continues without its daemon.

    `runs` takes the place of the runs' folders: it outlives the daemon, and the next one reads it.
    """

    def __init__(self, site: Site, runs: Runs | None = None) -> None:
        self._site = site
        self._runs: Runs = {} if runs is None else runs

    async def run(self, call: PlaybookCall) -> PlaybookResult:
        permit.ask()
        work = self._site.inband.run(call.play, call.host, dict(call.variables))
        task = asyncio.ensure_future(work)
        self._runs[call.host] = (call.play, call.digest, self._site.clock.now(), task)
        return await _await_result(task)

    async def recall(self, call: PlaybookCall, since: float) -> PlaybookResult | None:
        if call.host not in self._runs:
            return None
        play, digest, began, task = self._runs[call.host]
        same = (play, digest) == (call.play, call.digest) and began >= since
        return await _await_result(task) if same else None

    def progress(self) -> dict[str, str]:
        """Return {}: a simulated play reports no progress."""
        return {}

    async def ask(self, play: str, host: str, variables: dict[str, Any]) -> PlaybookResult:
        return await _await_result(
            asyncio.ensure_future(self._site.inband.run(play, host, variables))
        )

    async def close(self) -> None:
        return None


class MemoryShell:
    """`HostShell` onto the simulated hosts."""

    def __init__(self, site: Site) -> None:
        self._runner = MemoryRunner(site)

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        return read_outputs(
            await self._runner.ask("run_commands", host, name_commands(commands)), commands
        )

    async def forget(self, host: str, known: str = "") -> None:
        return None

    async def close(self) -> None:
        return None
