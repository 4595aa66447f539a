"""In-band work on a simulated site: the same plays, asked of the simulator's control socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp

from provisioner.ports import PlaybookCall, PlaybookResult

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
        body = {"play": call.play, "host": call.host, "variables": dict(call.variables)}
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
