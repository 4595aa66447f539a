"""The lookup and heartbeat API without a socket: a request in, a status and JSON out.

`server` puts it on HTTPS; the simulator's agents call it directly. A refused caller learns only
that it was refused; the reason goes to the journal and the log, each at most once in REPEAT_S,
since a host may ask without end.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from provisioner.adapters.agent import protocol
from provisioner.adapters.agent.protocol import Refusal
from provisioner.adapters.agent.sessions import Sessions
from provisioner.model.events.event import Event
from provisioner.model.events.node_events import AgentRefused
from provisioner.model.outcome import Reason
from provisioner.ports import Clock
from provisioner.settings import Settings

log = logging.getLogger(__name__)

HEARTBEAT = "/v1/heartbeat/"
BODY_MAX = 64 * 1024  # bytes; a heartbeat has about 1 KB
REPEAT_S = 300.0
REPORTS_MAX = 1024  # different refusals that are remembered
JOURNAL_MAX = 200  # refusals written within REPEAT_S, of all senders together

Report = Callable[[Event, float], Awaitable[None]]


class Answer(NamedTuple):
    """A status and a JSON body (None: empty)."""

    status: int
    body: Any = None


class AgentService:
    """The answers to agents' requests. `report` writes a line of the journal."""

    def __init__(
        self, sessions: Sessions, clock: Clock, settings: Settings, report: Report
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self._settings = settings
        self._report = report
        self._reported: OrderedDict[tuple[str, str, str], float] = OrderedDict()

    async def handle(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, peer: str
    ) -> Answer:
        """Answer one request from the address `peer`."""
        if (method, path) == ("GET", "/"):
            return Answer(200, protocol.root_answer())
        if (method, path) == ("GET", "/v1/lookup"):
            return await self._lookup(query, peer)
        if method == "POST" and path.startswith(HEARTBEAT):
            return await self._heartbeat(path.removeprefix(HEARTBEAT), body, peer)
        return Answer(404, _fault("no such resource"))

    async def _lookup(self, query: Mapping[str, str], peer: str) -> Answer:
        lookup = protocol.parse_lookup(query)
        if isinstance(lookup, Refusal):
            return await self._refuse(lookup, peer, "lookup")
        now = self._clock.now()
        session = protocol.decide_lookup(lookup, await self._sessions.read_all(), now)
        if isinstance(session, Refusal):
            return await self._refuse(session, peer, "lookup")
        token = protocol.HIDDEN
        if not session.handed_at and self._settings.agent_lookup_trusts == "nobody":
            detail = "its image carries no token, and agent_lookup_trusts is nobody"
            return await self._refuse(
                Refusal(404, Reason.FOREIGN_AGENT, detail, session.node), peer, "lookup"
            )
        if not session.handed_at:
            token = await self._sessions.hand_out(session, peer, now) or protocol.HIDDEN
            log.info("%s: its maintenance agent looked itself up from %s", session.node, peer)
        elif not session.peer:  # its token came with its image
            await self._sessions.change(session.node, peer=peer)
            log.info("%s: its maintenance agent looked itself up from %s", session.node, peer)
        elif peer != session.peer:
            # harmless to answer: no token is in it; but two machines claim one address
            detail = f"looked up again, from {protocol.make_printable(peer, 60)}"
            await self._tell(Refusal(200, Reason.DUPLICATE, detail, session.node), peer, "lookup")
        answer = protocol.lookup_answer(session, token, self._settings.agent_heartbeat_s)
        return Answer(200, answer)

    async def _heartbeat(self, uuid: str, body: bytes, peer: str) -> Answer:
        if len(body) > BODY_MAX:
            refusal = Refusal(413, Reason.TOO_LARGE, f"a heartbeat of {len(body)} bytes")
            return await self._refuse(refusal, peer, "heartbeat")
        heartbeat = protocol.parse_heartbeat(body)
        session = await self._sessions.by_uuid(uuid)
        if isinstance(heartbeat, Refusal):
            return await self._refuse(heartbeat, peer, "heartbeat", session.node if session else "")
        token = await self._sessions.token(session) if session else ""
        if session is not None:
            session = await self._sessions.find_session(session.node)  # as it is after that wait
        now = self._clock.now()
        life_s = self._settings.agent_token_s
        verdict = protocol.decide_heartbeat(heartbeat, peer, session, token, now, life_s)
        if isinstance(verdict, Refusal):
            return await self._refuse(verdict, peer, "heartbeat")
        if session is not None and not session.seen_at:
            log.info("%s: its maintenance agent is up at %s", verdict.node, verdict.url)
        await self._sessions.save(verdict)
        return Answer(202)

    async def _refuse(self, refusal: Refusal, peer: str, what: str, node: str = "") -> Answer:
        if node:
            refusal = Refusal(refusal.status, refusal.reason, refusal.detail, node)
        await self._tell(refusal, peer, what)
        return Answer(refusal.status, _fault("refused"))

    async def _tell(self, refusal: Refusal, peer: str, what: str) -> None:
        now = self._clock.now()
        key = (peer, str(refusal.reason), refusal.node)
        if now - self._reported.get(key, -REPEAT_S) < REPEAT_S:
            return
        self._reported[key] = now
        self._reported.move_to_end(key)
        while len(self._reported) > REPORTS_MAX:
            self._reported.popitem(last=False)
        if sum(now - at < REPEAT_S for at in self._reported.values()) > JOURNAL_MAX:
            return
        log.warning("%s from %s refused: %s: %s", what, peer, refusal.reason, refusal.detail)
        event = AgentRefused(
            about=refusal.node,
            what=what,
            peer=peer,
            reason=refusal.reason,
            problem=refusal.detail,
        )
        await self._report(event, now)


def _fault(text: str) -> dict[str, Any]:
    """Return an error as the agent reads it (ironic_api_client.py, _error_from_response)."""
    return {"error_message": {"faultcode": "Client", "faultstring": text, "debuginfo": None}}
