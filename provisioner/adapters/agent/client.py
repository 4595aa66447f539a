"""Commands to an agent: sent once, recognised when an answer was lost, polled until they end.

Before a command is sent, the identifiers that the agent lists and the command's digest are noted in
the agent's row. An identifier that is listed later and was not then is ours: an agent has one
client, and runs one command at a time. So neither a lost answer nor a daemon that starts again
sends a command twice.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Protocol

import aiohttp

from provisioner.adapters.agent import service
from provisioner.adapters.agent.protocol import normal_mac
from provisioner.adapters.agent.service import ANSWER_MAX, Command
from provisioner.adapters.agent.sessions import Sessions
from provisioner.adapters.bounded_http import (
    FAILURES,
    Attempt,
    BoundedSession,
    first_of_each,
    open_session,
    port_error,
    time_limit,
)
from provisioner.model.agent import AgentRequest, AgentSession
from provisioner.ports import (
    AgentAddress,
    AgentResult,
    Busy,
    CertificateChanged,
    Clock,
    LoginRefused,
    Malformed,
    PortError,
    Reply,
    Secret,
    Unreachable,
)
from provisioner.settings import Settings

# ------------------------------------------------------------------------------
# Requests to agents over HTTPS: only the certificate that the agent itself sent is accepted.
#
# The token has to be in the query (api/app.py of ironic-python-agent: `request.args`). So no URL of
# a request is ever logged or quoted here, and the token is taken out of every error.


PINS_MAX = 4096  # agents whose pin is remembered, for their connections to be used again


class HttpsWire:
    """`AgentWire` over HTTPS. To be made inside the event loop."""

    def __init__(self) -> None:
        self._session = open_session(per_host=2, keep_alive=True)
        self._pins: dict[str, aiohttp.Fingerprint] = {}  # by certificate

    async def request(
        self, agent: AgentAddress, method: str, path: str, body: Any, timeout_s: float
    ) -> Reply:
        token = agent.token.reveal()
        attempt = Attempt(safe=method == "GET")
        pinned = self._pin(agent)
        session = BoundedSession(self._session, pinned, attempt, ANSWER_MAX)
        try:
            async with session.request(
                method,
                agent.url + path,
                params={"agent_token": token},
                data=None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": "application/json", "Accept": "application/json"},
                timeout=time_limit(timeout_s),
            ) as response:
                content = await response.read()
                headers = first_of_each(response.headers.items())
                return Reply(response.status, headers, content)
        except (*FAILURES, PortError) as error:
            raise _without(port_error(agent.node, error, attempt), token) from None

    async def close(self) -> None:
        await self._session.close()

    def _pin(self, agent: AgentAddress) -> aiohttp.Fingerprint:
        """Return the check of the pin before the first byte leaves; names are not compared."""
        if agent.certificate not in self._pins:
            try:
                der = ssl.PEM_cert_to_DER_cert(agent.certificate.strip())
            except ValueError:
                raise CertificateChanged(f"{agent.node}: its certificate is none") from None
            while len(self._pins) >= PINS_MAX:
                self._pins.pop(next(iter(self._pins)))
            self._pins[agent.certificate] = aiohttp.Fingerprint(sha256(der).digest())
        return self._pins[agent.certificate]


def _without(error: PortError, token: str) -> PortError:
    """Return the same error with the token taken out of its text."""
    error.args = tuple(
        a.replace(token, "***") if isinstance(a, str) and token else a for a in error.args
    )
    return error


COMMANDS = "/v1/commands/"
# seconds; an inventory took 22 s on an emulated machine; it is answered at once otherwise
REQUEST_S = 60.0
ARRIVES_S = 10.0  # seconds after which a sent request has arrived, or never will
SENDS_MAX = 3  # times that a command is sent that provably did not arrive
# The agent goes away while it carries these out: once they were accepted, its silence is their end,
# and the BMC reports the power state.
FAREWELLS = frozenset({"power_off", "run_image"})
# seconds between two readings: first and longest
POLL_S = 1.0
POLL_MAX_S = 15.0

Note = Callable[[AgentRequest | None], Awaitable[None]]  # on disk when it returns


class AgentWire(Protocol):
    """One request to an agent, with its token, over a connection that its certificate proves.

    Raises `PortError`s; `Unreachable.maybe_executed` is False only if nothing left.
    """

    async def request(
        self, agent: AgentAddress, method: str, path: str, body: Any, timeout_s: float
    ) -> Reply: ...

    async def close(self) -> None: ...


class AgentClient:
    """The runner of commands, one at a time for each agent (its caller sees to that)."""

    def __init__(self, wire: AgentWire, clock: Clock) -> None:
        self._wire = wire
        self._clock = clock

    async def run(
        self,
        agent: AgentAddress,
        name: str,
        parameters: Mapping[str, Any],
        timeout_s: float,
        noted: AgentRequest | None,
        note: Note,
    ) -> AgentResult:
        """Run one command to its end, or continue it if it is the one that was `noted`.

        Raises `PortError`s. After `Unreachable` and `Busy` it may be called again with the same
        command, and continues it.
        """
        ends = self._clock.now() + timeout_s
        digest = service.digest_of(name, parameters)
        request = noted
        current: Command | AgentResult | None = None
        if request is None or request.over or request.command != digest:
            listed = tuple(c.id for c in await self._list(agent))
            request = AgentRequest(command=digest, name=name, known=listed, sent_at=0.0)
        else:
            current = await self._find(agent, request)
        if current is None:
            current = await self._send(agent, request, parameters, ends, note)
        if isinstance(current, AgentResult):  # nothing was accepted
            await note(None)
            return current
        if not request.id:
            sent_at = request.sent_at or self._clock.now()
            request = request.model_copy(update={"id": current.id, "sent_at": sent_at})
            await note(request)
        try:
            result = (await self._ended(agent, current, ends)).outcome()
        except Malformed:  # it will be so again: the next call starts anew
            await note(None)
            raise
        await note(request.model_copy(update={"over": True}))
        return result

    async def recall(
        self, agent: AgentAddress, noted: AgentRequest, timeout_s: float
    ) -> AgentResult | None:
        """Return the noted command's result, waited for; None: it provably never arrived.

        Nothing is sent, and the note stays: this may be called again. Raises `PortError`s.
        """
        ends = self._clock.now() + timeout_s
        command = await self._find(agent, noted)
        return None if command is None else (await self._ended(agent, command, ends)).outcome()

    async def _send(
        self,
        agent: AgentAddress,
        request: AgentRequest,
        parameters: Mapping[str, Any],
        ends: float,
        note: Note,
    ) -> Command | AgentResult:
        """Send the command; return it as the agent accepted it, or why it did not."""
        body = {"name": request.name, "params": dict(parameters)}
        wait_s = POLL_S
        sends = 0
        while True:
            sends += 1
            request = request.model_copy(update={"sent_at": self._clock.now()})
            await note(request)
            try:
                reply = await self._request(agent, "POST", COMMANDS, body)
            except Unreachable as error:
                command = await self._find(agent, request) if error.maybe_executed else None
                if command is not None:
                    return command
                if sends >= SENDS_MAX:
                    raise
                await self._clock.sleep(wait_s)
                continue
            if reply.status == 200:
                return service.parse_command(reply, agent.token.reveal())
            why = service.read_fault(reply, agent.token.reveal())
            if reply.status == 409:  # AgentIsBusy: nothing was accepted
                sends = 0
                if self._clock.now() + wait_s >= ends:
                    raise Busy(f"the agent does something else: {why}")
                await self._clock.sleep(wait_s)
                wait_s = min(2 * wait_s, POLL_MAX_S)
                continue
            if reply.status < 500:  # no such command, or wrong parameters: nothing was accepted
                return AgentResult("FAILED", None, why)
            command = await self._find(agent, request)
            return command if command is not None else AgentResult("FAILED", None, why)

    async def _find(self, agent: AgentAddress, asked: AgentRequest) -> Command | None:
        """Return the noted command from the agent's list; None: it provably never arrived."""
        while True:
            arrived = self._clock.now() - asked.sent_at >= ARRIVES_S
            for command in await self._list(agent):
                if asked.id == command.id or self._is_new(asked, command):
                    return command
            if arrived:
                return None
            await self._clock.sleep(ARRIVES_S / 4)

    @staticmethod
    def _is_new(asked: AgentRequest, command: Command) -> bool:
        if asked.id or command.id in asked.known:
            return False
        return command.name == service.short_name(asked.name)

    async def _ended(self, agent: AgentAddress, command: Command, ends: float) -> Command:
        """Wait for the command's end; silence of the agent is not an end."""
        wait_s = POLL_S
        silent = ""
        while not command.has_ended:
            if self._clock.now() >= ends:
                message = f"{command.name} has not ended in time{silent}"
                raise Unreachable(message, maybe_executed=True)
            await self._clock.sleep(wait_s)
            wait_s = min(2 * wait_s, POLL_MAX_S)
            try:
                reply = await self._request(agent, "GET", COMMANDS + command.id, None)
            except (Unreachable, CertificateChanged) as error:
                if command.name in FAREWELLS:
                    return replace(command, status="SUCCEEDED")
                if isinstance(error, CertificateChanged):
                    raise
                silent = f"; the agent is silent: {error}"
                continue
            if reply.status == 200:
                command = service.parse_command(reply, agent.token.reveal())
                silent = ""
            elif reply.status == 404:
                raise Unreachable(f"the agent forgot {command.name}", maybe_executed=True)
            else:
                silent = f"; {service.read_fault(reply, agent.token.reveal())}"
        return command

    async def _list(self, agent: AgentAddress) -> Sequence[Command]:
        """Return the commands of this boot, oldest first."""
        reply = await self._request(agent, "GET", COMMANDS, None)
        if reply.status != 200:
            why = service.read_fault(reply, agent.token.reveal())
            raise Unreachable(f"no list of commands: {why}", maybe_executed=False)
        return service.parse_commands(reply, agent.token.reveal())

    async def _request(self, agent: AgentAddress, method: str, path: str, body: Any) -> Reply:
        reply = await self._wire.request(agent, method, path, body, REQUEST_S)
        if reply.status == 401:
            raise LoginRefused(f"{agent.node}: the agent does not know its token")
        return reply


# ------------------------------------------------------------------------------
# The maintenance agents that are up, and commands to them: the port `Agents`.


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
