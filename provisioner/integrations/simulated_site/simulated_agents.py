"""`Agents` of a simulated site: the daemon's own protocol code, without a socket between.

Every query for an agent's presence first lets the simulated agents send their calls. So nothing
runs by itself, and a run under virtual time replays exactly.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from provisioner.adapters.agent.client import AgentClient, AgentRegistry
from provisioner.adapters.agent.service import AgentService, Report
from provisioner.adapters.agent.sessions import NewToken, Sessions
from provisioner.ports import (
    AgentAddress,
    AgentRepository,
    Agents,
    CertificateChanged,
    Clock,
    Credentials,
    HostShell,
    LoginRefused,
    PlaybookCall,
    PlaybookResult,
    Reply,
    ShellCommand,
    ShellOutput,
    Unreachable,
)
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# In-band work on a simulated site: plays and commands, sent to the simulator's control socket.


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

    def build_shell(self) -> HostShell:
        return SimulatedShell(self)

    def build_agents(
        self,
        rows: AgentRepository,
        credentials: Credentials,
        clock: Clock,
        settings: Settings,
        report: Report,
        new_token: NewToken,
        *,
        shared: bool,
    ) -> Agents:
        """Return the agents of the site. `shared`: several daemons drive it."""
        return simulated_agents(
            SocketSide(self), rows, credentials, clock, settings, report, new_token, shared=shared
        )

    async def close(self) -> None:
        await self._session.close()


class SimulatedShell:
    """A `HostShell` on the same socket; the runner owns and closes it."""

    def __init__(self, runner: SimulatedRunner) -> None:
        self._runner = runner

    async def run(
        self, host: str, address: str, commands: Sequence[ShellCommand]
    ) -> Sequence[ShellOutput]:
        result = await self._runner.ask("run_commands", host, name_commands(commands))
        return read_outputs(result, commands)

    async def forget(self, host: str, known: str = "") -> None:
        """Simulated hosts have no keys."""

    async def close(self) -> None:
        """Nothing of its own is open."""


REFUSED_LOGIN = "Permission denied (publickey)."  # of OpenSSH's client


def name_commands(commands: Sequence[ShellCommand]) -> dict[str, Any]:
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


ROUNDS_MAX = 4  # a new agent looks itself up, then calls: two rounds

Json = dict[str, Any]
Travel = Callable[[], Awaitable[str]]  # "request" or "answer" if that is lost, else ""


class SimulatedSide(Protocol):
    """The simulator's agents: in this process, or over its control socket."""

    async def calls(self, answers: list[Json]) -> list[Json]:
        """Give `answers` to earlier calls; return the agents' present calls."""
        ...

    async def request(self, asked: Json) -> Json | None:
        """Send a request to the agent at `url`; None: nothing listens there."""
        ...


class SiteSide:
    """A site in this process (`sim.site.Site`; named by its shape, since nothing imports it)."""

    def __init__(self, site: Any) -> None:
        self._site = site

    async def calls(self, answers: list[Json]) -> list[Json]:
        now = self._site.advance()
        agents = self._site.agents
        for answer in answers:
            agents.accept_answer(answer["call"], answer["status"], answer["body"], now)
        requests: list[Json] = agents.list_calls(now)
        return requests

    async def request(self, asked: Json) -> Json | None:
        now = self._site.advance()
        answer: Json | None = self._site.agents.send_request(**asked, now=now)
        return answer


class SocketSide:
    """A site behind its control socket, which the owner of `runner` closes."""

    def __init__(self, runner: SimulatedRunner) -> None:
        self._runner = runner

    async def calls(self, answers: list[Json]) -> list[Json]:
        requests: list[Json] = (await self._post("/agents/calls", {"answers": answers}))["calls"]
        return requests

    async def request(self, asked: Json) -> Json | None:
        answer: Json | None = (await self._post("/agents/request", asked))["answer"]
        return answer

    async def _post(self, path: str, body: Json) -> Json:
        try:
            answer: Json = await self._runner.post(path, body)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            message = f"the simulator does not answer: {error}"
            raise Unreachable(message, maybe_executed=True) from None
        return answer


class SimulatedWire:
    """`AgentWire` onto the simulated agents. `travel` loses requests and answers in tests."""

    def __init__(self, side: SimulatedSide, clock: Clock, travel: Travel | None = None) -> None:
        self._side = side
        self._clock = clock
        self._travel = travel

    async def request(
        self, agent: AgentAddress, method: str, path: str, body: Any, timeout_s: float
    ) -> Reply:
        work = self._request(agent, method, path, body)
        # a request that has left arrives, even if its sender is gone
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda t: t.cancelled() or t.exception())
        return await asyncio.shield(task)

    async def _request(self, agent: AgentAddress, method: str, path: str, body: Any) -> Reply:
        fate = await self._travel() if self._travel is not None else ""
        if fate == "request":
            raise Unreachable("connection refused", maybe_executed=False)
        answer = await self._side.request(
            {
                "url": agent.url,
                "method": method,
                "path": path,
                "query": {"agent_token": agent.token.reveal()},
                "body": "" if body is None else json.dumps(body),
            }
        )
        if answer is None:
            raise Unreachable(f"{agent.url}: connection refused", maybe_executed=False)
        if answer["certificate"] != agent.certificate:
            raise CertificateChanged(f"{agent.url}: the certificate is not the pinned one")
        await self._clock.sleep(answer["takes_s"])
        if fate == "answer":
            raise Unreachable("the answer was lost", maybe_executed=True)
        return Reply(answer["status"], {}, json.dumps(answer["body"]).encode())

    async def close(self) -> None:
        return None


class SimulatedAgents(AgentRegistry):
    """The registry, which lets the simulated agents call before each query."""

    def __init__(
        self,
        side: SimulatedSide,
        sessions: Sessions,
        wire: SimulatedWire,
        clock: Clock,
        settings: Settings,
        report: Report,
    ) -> None:
        super().__init__(sessions, AgentClient(wire, clock), clock, settings, settings.poll_s)
        self._side = side
        self._service = AgentService(sessions, clock, settings, report)
        self._pumping = asyncio.Lock()

    async def present(self, node: str) -> AgentAddress | None:
        await self._pump()
        return await super().present(node)

    async def _pump(self) -> None:
        async with self._pumping:  # an agent has one call under way
            answers: list[Json] = []
            for _ in range(ROUNDS_MAX):
                calls = await self._side.calls(answers)
                if not calls:
                    return
                answers = [await self._answer(call) for call in calls]
            await self._side.calls(answers)

    async def _answer(self, call: Mapping[str, Any]) -> Json:
        body = str(call["body"]).encode()
        answer = await self._service.handle(
            call["method"], call["path"], call["query"], body, call["peer"]
        )
        return {"call": dict(call), "status": answer.status, "body": answer.body}


def simulated_agents(
    side: SimulatedSide,
    rows: AgentRepository,
    credentials: Credentials,
    clock: Clock,
    settings: Settings,
    report: Report,
    new_token: NewToken,
    travel: Travel | None = None,
    *,
    shared: bool = False,
) -> SimulatedAgents:
    """Return `Agents` onto a simulated site. `shared`: several daemons drive it.

    A simulated host reads no byte of its image, so that its token comes by the lookup.
    """
    settings = settings.model_copy(update={"agent_lookup_trusts": "first"})
    sessions = Sessions(rows, credentials, new_token, shared=shared)
    wire = SimulatedWire(side, clock, travel)
    return SimulatedAgents(side, sessions, wire, clock, settings, report)
