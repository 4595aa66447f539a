"""In-band work on a simulated site: plays and commands, asked of the simulator's control socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from provisioner.ports import (
    PlaybookCall,
    PlaybookResult,
    ShellCommand,
    ShellOutput,
    Unreachable,
)

CALL_MAX_S = 3600.0  # of real time; a simulated play ends much earlier


class SimulatedRunner:
    """A `PlaybookRunner` over a unix-domain socket that only its owner may open."""

    def __init__(self, socket: Path) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path=str(socket), limit=0),
            timeout=aiohttp.ClientTimeout(total=CALL_MAX_S),
        )

    async def run(self, call: PlaybookCall) -> PlaybookResult:
        """Ask the simulated host; a simulator that does not answer is an unreachable host."""
        return await self.ask(call.play, call.host, call.variables)

    async def recall(self, call: PlaybookCall, since: float) -> PlaybookResult | None:
        """A simulated play goes on without its daemon, and tells nobody."""
        return PlaybookResult("unknown", {}, "whoever asked for it is gone")

    def progress(self) -> dict[str, str]:
        """A simulated play says nothing while it lasts."""
        return {}

    async def ask(self, play: str, host: str, variables: Mapping[str, Any]) -> PlaybookResult:
        """One play, or the commands "run_commands", on one simulated host."""
        body = {"play": play, "host": host, "variables": dict(variables)}
        try:
            async with self._session.post("http://simulator/inband", json=body) as reply:
                answer = await reply.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return PlaybookResult("unreachable", {}, f"the simulator does not answer: {error}")
        return PlaybookResult(answer["status"], answer["facts"], answer.get("detail", ""))

    async def get(self, path: str) -> Any:
        """Ask the simulator about its own truth, for a summary that assumes nothing."""
        async with self._session.get(f"http://simulator{path}") as reply:
            reply.raise_for_status()
            return await reply.json()

    async def post(self, path: str, body: object) -> Any:
        """Tell the simulator something, such as a fault to inject."""
        async with self._session.post(f"http://simulator{path}", json=body) as reply:
            reply.raise_for_status()
            return await reply.json()

    async def close(self) -> None:
        """Close the socket."""
        await self._session.close()


class SimulatedShell:
    """A `HostShell` on the same socket; the runner owns and closes it."""

    def __init__(self, runner: SimulatedRunner) -> None:
        self._runner = runner

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        """Ask the simulated host."""
        result = await self._runner.ask("run_commands", host, asked(commands))
        return outputs(result, commands)

    async def forget(self, host: str, known: str = "") -> None:
        """Simulated hosts have no keys."""

    async def close(self) -> None:
        """Nothing of its own is open."""


def asked(commands: Sequence[ShellCommand]) -> dict[str, Any]:
    """Commands as the simulator takes them."""
    listed = [{"name": c.name, "command": c.line, "timeout_s": c.timeout_s} for c in commands]
    return {"commands": listed}


def outputs(result: PlaybookResult, commands: Sequence[ShellCommand]) -> Sequence[ShellOutput]:
    """Its answer as a shell's. Raises `Unreachable` for a host that is not there."""
    if result.status != "ok":
        raise Unreachable(result.detail, maybe_executed=True)
    said = result.facts["commands"]
    return [
        ShellOutput(said[c.name]["rc"], said[c.name]["stdout"], said[c.name]["stderr"])
        for c in commands
    ]
