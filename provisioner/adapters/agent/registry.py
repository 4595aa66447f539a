"""The maintenance agents that are up, and commands to them: the port `Agents`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from provisioner.adapters.agent.client import AgentClient
from provisioner.adapters.agent.protocol import normal_mac
from provisioner.adapters.agent.sessions import Sessions
from provisioner.model.agent import AgentRequest, AgentSession
from provisioner.ports import AgentAddress, AgentResult, Clock, Secret, Unreachable
from provisioner.settings import Settings

LOOK_S = 2.0  # seconds between two readings of an agent's presence, which cost nothing


class AgentRegistry:
    """The port `ports.Agents`. `Sessions` holds the rows of the lookup and heartbeat API."""

    def __init__(
        self,
        sessions: Sessions,
        client: AgentClient,
        clock: Clock,
        settings: Settings,
        look_s: float = LOOK_S,
    ) -> None:
        self._sessions = sessions
        self._client = client
        self._clock = clock
        self._settings = settings
        self._look_s = look_s
        self._turns: dict[str, asyncio.Lock] = {}  # node -> one command at a time

    @property
    def lookup_gives_token(self) -> bool:
        """Return whether the first lookup gets the token of a boot whose image carries none."""
        return self._settings.agent_lookup_trusts == "first"

    async def expect(
        self, node: str, macs: Sequence[str], limit_s: float, *, through_boot: bool = False
    ) -> Secret | None:
        own = sorted(set(filter(None, map(normal_mac, macs))))
        assert own, f"{node}: an agent is expected by its addresses, and none was given"
        now = self._clock.now()
        token = await self._sessions.begin(node, own, now, now + limit_s, through_boot=through_boot)
        return Secret(token) if token else None

    async def present(self, node: str) -> AgentAddress | None:
        session = await self._sessions.find_session(node)
        if session is None or not self._fresh(session):
            return None
        token = await self._sessions.token(session)
        return AgentAddress(
            node=node,
            url=session.url,
            certificate=session.certificate,
            token=Secret(token),
            version=session.version,
            seen_at=session.seen_at,
        )

    async def wait(self, node: str, timeout_s: float) -> AgentAddress | None:
        ends = self._clock.now() + timeout_s
        while (agent := await self.present(node)) is None:
            remaining_s = ends - self._clock.now()
            if remaining_s <= 0:
                return None
            await self._clock.sleep(min(self._look_s, remaining_s))
        return agent

    async def dismiss(self, node: str) -> None:
        session = await self._sessions.find_session(node)
        if session is not None and not session.dismissed:
            await self._sessions.end(session)

    async def command(
        self, agent: AgentAddress, name: str, parameters: Mapping[str, Any], timeout_s: float
    ) -> AgentResult:
        async with self._turns.setdefault(agent.node, asyncio.Lock()):
            session = await self._sessions.find_session(agent.node)
            if session is None or not self._is(session, agent):
                raise Unreachable(f"{agent.node}: that agent is gone", maybe_executed=False)

            async def note(request: AgentRequest | None) -> None:
                now = await self._sessions.find_session(agent.node)
                if now is not None and self._is(now, agent):
                    await self._sessions.change(agent.node, asked=request)

            request = session.asked
            return await self._client.run(agent, name, parameters, timeout_s, request, note)

    async def recall(
        self, agent: AgentAddress, name: str, since: float, timeout_s: float
    ) -> AgentResult | None:
        async with self._turns.setdefault(agent.node, asyncio.Lock()):
            session = await self._sessions.find_session(agent.node)
            if session is None or not self._is(session, agent):
                raise Unreachable(f"{agent.node}: that agent is gone", maybe_executed=False)
            request = session.asked
            if request is None or request.name != name or request.sent_at < since:
                return None
            return await self._client.recall(agent, request, timeout_s)

    def _fresh(self, session: AgentSession) -> bool:
        """Return whether the agent called lately, with a token that is still valid."""
        now = self._clock.now()
        return (
            not session.dismissed
            and session.seen_at > 0
            and now - session.seen_at <= self._settings.agent_heartbeat_s
            and now <= session.handed_at + self._settings.agent_token_s
        )

    @staticmethod
    def _is(session: AgentSession, agent: AgentAddress) -> bool:
        """Return whether this session is of this very agent, not of an earlier or later boot."""
        return not session.dismissed and session.certificate == agent.certificate
