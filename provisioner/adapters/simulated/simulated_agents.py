"""`Agents` of a simulated site: the daemon's own protocol code, without a socket between.

Whoever looks whether an agent is there first lets the simulated agents say what they want to say.
So nothing runs by itself, and a run under virtual time replays exactly.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import aiohttp

from provisioner.adapters.agent.client import AgentClient
from provisioner.adapters.agent.registry import AgentRegistry
from provisioner.adapters.agent.service import AgentService, Report
from provisioner.adapters.agent.sessions import NewToken, Sessions
from provisioner.adapters.simulated.simulated_runner import SimulatedRunner
from provisioner.ports import (
    AgentAddress,
    AgentRepository,
    CertificateChanged,
    Clock,
    Credentials,
    Reply,
    Unreachable,
)
from provisioner.settings import Settings

ROUNDS_MAX = 4  # a new agent looks itself up, then calls: two rounds

Json = dict[str, Any]
Travel = Callable[[], Awaitable[str]]  # "request" or "answer" if that is lost, else ""


class SimulatedSide(Protocol):
    """The simulator as its agents are reached: in this process, or over its control socket."""

    async def calls(self, answers: list[Json]) -> list[Json]:
        """Give `answers` to earlier calls; what agents ask now."""
        ...

    async def request(self, asked: Json) -> Json | None:
        """A request to the agent at `url`; None: nothing listens there."""
        ...


class SiteSide:
    """A site in this process (`sim.site.Site`; named by its shape, since nothing imports it)."""

    def __init__(self, site: Any) -> None:
        self._site = site

    async def calls(self, answers: list[Json]) -> list[Json]:
        now, agents = self._site.advance(), self._site.agents
        for given in answers:
            agents.accept_answer(given["call"], given["status"], given["body"], now)
        told: list[Json] = agents.list_calls(now)
        return told

    async def request(self, asked: Json) -> Json | None:
        now = self._site.advance()
        told: Json | None = self._site.agents.send_request(**asked, now=now)
        return told


class SocketSide:
    """A site behind its control socket, which whoever opened `runner` closes."""

    def __init__(self, runner: SimulatedRunner) -> None:
        self._runner = runner

    async def calls(self, answers: list[Json]) -> list[Json]:
        told: list[Json] = (await self._post("/agents/calls", {"answers": answers}))["calls"]
        return told

    async def request(self, asked: Json) -> Json | None:
        told: Json | None = (await self._post("/agents/request", asked))["answer"]
        return told

    async def _post(self, path: str, body: Json) -> Json:
        try:
            told: Json = await self._runner.post(path, body)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            words = f"the simulator does not answer: {error}"
            raise Unreachable(words, maybe_executed=True) from None
        return told


class SimulatedWire:
    """`AgentWire` onto the simulated agents. `travel` loses requests and answers in tests."""

    def __init__(self, side: SimulatedSide, clock: Clock, travel: Travel | None = None) -> None:
        self._side, self._clock, self._travel = side, clock, travel

    async def request(
        self, agent: AgentAddress, method: str, path: str, body: Any, timeout_s: float
    ) -> Reply:
        work = self._request(agent, method, path, body)
        task = asyncio.ensure_future(work)  # what has left arrives, whoever is still there to ask
        task.add_done_callback(lambda t: t.cancelled() or t.exception())
        return await asyncio.shield(task)

    async def _request(self, agent: AgentAddress, method: str, path: str, body: Any) -> Reply:
        fate = await self._travel() if self._travel is not None else ""
        if fate == "request":
            raise Unreachable("connection refused", maybe_executed=False)
        told = await self._side.request(
            {
                "url": agent.url,
                "method": method,
                "path": path,
                "query": {"agent_token": agent.token.reveal()},
                "body": "" if body is None else json.dumps(body),
            }
        )
        if told is None:
            raise Unreachable(f"{agent.url}: connection refused", maybe_executed=False)
        if told["certificate"] != agent.certificate:
            raise CertificateChanged(f"{agent.url}: the certificate is not the pinned one")
        await self._clock.sleep(told["takes_s"])
        if fate == "answer":
            raise Unreachable("the answer was lost", maybe_executed=True)
        return Reply(told["status"], {}, json.dumps(told["body"]).encode())

    async def close(self) -> None:
        return None


class SimulatedAgents(AgentRegistry):
    """The registry, which lets the simulated agents call before it looks."""

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
        self._side, self._service = side, AgentService(sessions, clock, settings, report)
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
        told = await self._service.handle(
            call["method"], call["path"], call["query"], body, call["peer"]
        )
        return {"call": dict(call), "status": told.status, "body": told.body}


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
    """`Agents` onto a simulated site. `shared`: several daemons drive it.

    A simulated host reads no byte of its image, so that its token comes by the lookup.
    """
    settings = settings.model_copy(update={"agent_lookup_trusts": "first"})
    sessions = Sessions(rows, credentials, new_token, shared=shared)
    wire = SimulatedWire(side, clock, travel)
    return SimulatedAgents(side, sessions, wire, clock, settings, report)
