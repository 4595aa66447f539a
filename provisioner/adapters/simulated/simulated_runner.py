"""In-band work on a simulated site: plays and commands, sent to the simulator's control socket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from provisioner.ports import (
    LoginRefused,
    PlaybookCall,
    PlaybookResult,
    ShellCommand,
    ShellOutput,
    Unreachable,
)

CALL_MAX_S = 3600.0  # seconds of real time; a simulated play ends much earlier


class SimulatedRunner:
    """A `PlaybookRunner` over a unix-domain socket that only its owner may open."""

    def __init__(self, socket: Path) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(path=str(socket), limit=0),
            timeout=aiohttp.ClientTimeout(total=CALL_MAX_S),
        )

    async def run(self, call: PlaybookCall) -> PlaybookResult:
        """Run the play on the simulated host; a silent simulator is an unreachable host."""
        return await self.ask(call.play, call.host, call.variables)

    async def recall(self, call: PlaybookCall, since: float) -> PlaybookResult | None:
        """Return None: a simulated play runs without its daemon and leaves no result."""
        return PlaybookResult("unknown", {}, "whoever asked for it is gone")

    def progress(self) -> dict[str, str]:
        """Return nothing: a simulated play reports no progress."""
        return {}

    async def ask(self, play: str, host: str, variables: Mapping[str, Any]) -> PlaybookResult:
        """Run one play, or the commands "run_commands", on one simulated host."""
        body = {"play": play, "host": host, "variables": dict(variables)}
        try:
            async with self._session.post("http://simulator/inband", json=body) as reply:
                answer = await reply.json()
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return PlaybookResult("unreachable", {}, f"the simulator does not answer: {error}")
        return PlaybookResult(answer["status"], answer["facts"], answer.get("detail", ""))

    async def get(self, path: str) -> Any:
        """Read the simulator's own truth, for a summary that assumes nothing."""
        async with self._session.get(f"http://simulator{path}") as reply:
            reply.raise_for_status()
            return await reply.json()

    async def post(self, path: str, body: object) -> Any:
        """Send the simulator a command, such as a fault to inject."""
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
        """Run the commands on the simulated host."""
        result = await self._runner.ask("run_commands", host, name_commands(commands))
        return read_outputs(result, commands)

    async def forget(self, host: str, known: str = "") -> None:
        """Simulated hosts have no keys."""

    async def close(self) -> None:
        """Nothing of its own is open."""


REFUSED_LOGIN = "Permission denied (publickey)."  # of OpenSSH's client


def name_commands(commands: Sequence[ShellCommand]) -> dict[str, Any]:
    """Return commands in the simulator's form."""
    listed = [
        {"name": c.name, "command": c.line, "timeout_s": c.timeout_s}
        | ({} if c.sent is None else {"sent": c.sent.reveal()})
        for c in commands
    ]
    return {"commands": listed}


def read_outputs(result: PlaybookResult, commands: Sequence[ShellCommand]) -> Sequence[ShellOutput]:
    """Return its answer as a shell's. Raises `Unreachable` for a missing host, `LoginRefused`."""
    if result.detail.endswith(REFUSED_LOGIN):
        raise LoginRefused(result.detail)
    if result.status != "ok":
        raise Unreachable(result.detail, maybe_executed=True)
    answers = result.facts["commands"]
    return [
        ShellOutput(answers[c.name]["rc"], answers[c.name]["stdout"], answers[c.name]["stderr"])
        for c in commands
    ]
