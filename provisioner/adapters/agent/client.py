"""Commands to an agent: sent once, found again when an answer was lost, waited for by polling.

Before a command is sent, the identifiers that the agent lists and the command's digest are noted
(by whoever keeps the agent's row). An identifier that is listed later and was not then is ours:
an agent has one client, and runs one command at a time. So neither a lost answer nor a daemon that
starts again sends a command twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from provisioner.adapters.agent import answers
from provisioner.adapters.agent.answers import Command
from provisioner.model.agent import AgentRequest
from provisioner.ports import (
    AgentAddress,
    AgentResult,
    Busy,
    CertificateChanged,
    Clock,
    LoginRefused,
    Malformed,
    Reply,
    Unreachable,
)

COMMANDS = "/v1/commands/"
REQUEST_S = 60.0  # an inventory took 22 s on an emulated machine; it is answered at once otherwise
ARRIVES_S = 10.0  # what left this long ago has arrived, or never will
SENDS_MAX = 3  # times that a command is sent that provably did not arrive
# The agent goes away in carrying these out: once they were taken on, its silence is their end, and
# what the power did is for the BMC to say.
FAREWELLS = frozenset({"power_off", "run_image"})
POLL_S, POLL_MAX_S = 1.0, 15.0  # waits between two looks: first and longest

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
    """Runs commands, one at a time for each agent (its caller sees to that)."""

    def __init__(self, wire: AgentWire, clock: Clock) -> None:
        self._wire, self._clock = wire, clock

    async def run(
        self,
        agent: AgentAddress,
        name: str,
        parameters: Mapping[str, Any],
        timeout_s: float,
        noted: AgentRequest | None,
        note: Note,
    ) -> AgentResult:
        """Run one command to its end, or go on with it if it is the one that was `noted`.

        Raises `PortError`s. After `Unreachable` and `Busy` it may be called again with the same
        command, and goes on with it.
        """
        ends = self._clock.now() + timeout_s
        digest, asked = answers.digest_of(name, parameters), noted
        found: Command | AgentResult | None = None
        if asked is None or asked.over or asked.command != digest:
            known = tuple(c.id for c in await self._list(agent))
            asked = AgentRequest(command=digest, name=name, known=known, sent_at=0.0)
        else:
            found = await self._find(agent, asked)
        if found is None:
            found = await self._send(agent, asked, parameters, ends, note)
        if isinstance(found, AgentResult):  # nothing was taken on
            await note(None)
            return found
        if not asked.id:
            sent_at = asked.sent_at or self._clock.now()
            asked = asked.model_copy(update={"id": found.id, "sent_at": sent_at})
            await note(asked)
        try:
            result = (await self._ended(agent, found, ends)).outcome()
        except Malformed:  # it will be so again: the next call begins anew
            await note(None)
            raise
        await note(asked.model_copy(update={"over": True}))
        return result

    async def recall(
        self, agent: AgentAddress, noted: AgentRequest, timeout_s: float
    ) -> AgentResult | None:
        """How the noted command ended, waited for; None: it provably never arrived.

        Nothing is sent, and the note stays: it may be asked again. Raises `PortError`s.
        """
        ends = self._clock.now() + timeout_s
        found = await self._find(agent, noted)
        return None if found is None else (await self._ended(agent, found, ends)).outcome()

    async def _send(
        self,
        agent: AgentAddress,
        asked: AgentRequest,
        parameters: Mapping[str, Any],
        ends: float,
        note: Note,
    ) -> Command | AgentResult:
        """The command as the agent took it on, or why it did not."""
        body = {"name": asked.name, "params": dict(parameters)}
        wait_s, sends = POLL_S, 0
        while True:
            sends += 1
            asked = asked.model_copy(update={"sent_at": self._clock.now()})
            await note(asked)
            try:
                reply = await self._request(agent, "POST", COMMANDS, body)
            except Unreachable as error:
                found = await self._find(agent, asked) if error.maybe_executed else None
                if found is not None:
                    return found
                if sends >= SENDS_MAX:
                    raise
                await self._clock.sleep(wait_s)
                continue
            if reply.status == 200:
                return answers.parse_command(reply, agent.token.reveal())
            why = answers.fault(reply, agent.token.reveal())
            if reply.status == 409:  # AgentIsBusy: nothing was taken on
                sends = 0
                if self._clock.now() + wait_s >= ends:
                    raise Busy(f"the agent does something else: {why}")
                await self._clock.sleep(wait_s)
                wait_s = min(2 * wait_s, POLL_MAX_S)
                continue
            if reply.status < 500:  # no such command, or wrong parameters: nothing was taken on
                return AgentResult("FAILED", None, why)
            found = await self._find(agent, asked)
            return found if found is not None else AgentResult("FAILED", None, why)

    async def _find(self, agent: AgentAddress, asked: AgentRequest) -> Command | None:
        """The noted command in the agent's list; None: it provably never arrived."""
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
        return command.name == answers.short_name(asked.name)

    async def _ended(self, agent: AgentAddress, command: Command, ends: float) -> Command:
        """Wait for its end; silence of the agent is not an end."""
        wait_s, silent = POLL_S, ""
        while not command.ended:
            if self._clock.now() >= ends:
                words = f"{command.name} has not ended in time{silent}"
                raise Unreachable(words, maybe_executed=True)
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
                command, silent = answers.parse_command(reply, agent.token.reveal()), ""
            elif reply.status == 404:
                raise Unreachable(f"the agent forgot {command.name}", maybe_executed=True)
            else:
                silent = f"; {answers.fault(reply, agent.token.reveal())}"
        return command

    async def _list(self, agent: AgentAddress) -> Sequence[Command]:
        """What the agent was asked in this boot, oldest first."""
        reply = await self._request(agent, "GET", COMMANDS, None)
        if reply.status != 200:
            why = answers.fault(reply, agent.token.reveal())
            raise Unreachable(f"no list of commands: {why}", maybe_executed=False)
        return answers.parse_commands(reply, agent.token.reveal())

    async def _request(self, agent: AgentAddress, method: str, path: str, body: Any) -> Reply:
        reply = await self._wire.request(agent, method, path, body, REQUEST_S)
        if reply.status == 401:
            raise LoginRefused(f"{agent.node}: the agent does not know its token")
        return reply
