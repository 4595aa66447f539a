"""The lookup and heartbeat API without a socket: a request in, a status and JSON out.

`server` puts it on HTTPS; the simulator's agents call it directly. A refused caller learns only
that it was refused; the reason goes to the journal and the log, each at most once in REPEAT_S,
since a host may ask without end.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiohttp import web

from provisioner.adapters.agent import protocol
from provisioner.adapters.agent.protocol import Refusal, make_printable
from provisioner.adapters.agent.sessions import Sessions
from provisioner.model.events.event import Event
from provisioner.model.events.node_events import AgentRefused
from provisioner.model.outcome import Reason
from provisioner.ports import AgentResult, Clock, Malformed, Reply
from provisioner.runtime.bounded_listener import Rate, hear_requests
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
            about=refusal.node, what=what, peer=peer, reason=refusal.reason, problem=refusal.detail
        )
        await self._report(event, now)


def _fault(text: str) -> dict[str, Any]:
    """Return an error as the agent reads it (ironic_api_client.py, _error_from_response)."""
    return {"error_message": {"faultcode": "Client", "faultstring": text, "debuginfo": None}}


# ------------------------------------------------------------------------------
# The lookup and heartbeat API on HTTPS: bounded bodies, and a bounded rate for each peer.
#
# aiohttp bounds request lines and headers to 8 KB. Every host of the maintenance network may ask;
# no answer holds a secret but the one that hands a token to a node that is to boot now.


FILES = "/images"  # no path of ironic's API
BODY_S = 10.0  # a heartbeat's body is there within this


def application(service: AgentService, files: web.Application | None = None) -> web.Application:
    """Return the API of `service`, and beside it, under /images, the files for agents."""
    rate = Rate(lambda: asyncio.get_running_loop().time())

    async def handle(request: web.Request) -> web.Response:
        peer = request.remote or ""
        if not rate.admits(peer):
            return _answer(429, None, {"Retry-After": "30"})
        try:
            async with asyncio.timeout(BODY_S):
                body = await request.content.read(BODY_MAX + 1)
                while len(body) <= BODY_MAX and not request.content.at_eof():
                    body += await request.content.read(BODY_MAX + 1 - len(body))
        except TimeoutError:
            return _answer(408, None)
        answer = await service.handle(request.method, request.path, request.query, body, peer)
        return _answer(answer.status, answer.body)

    app = web.Application(middlewares=[web.middleware(hear_requests)])
    if files is not None:
        app.add_subapp(FILES, files)
    app.router.add_route("*", "/{path:.*}", handle)
    return app


def _answer(status: int, body: object, headers: dict[str, str] | None = None) -> web.Response:
    version = {
        "X-OpenStack-Ironic-API-Version": protocol.API_VERSION,
        "X-OpenStack-Ironic-API-Minimum-Version": "1.1",
        "X-OpenStack-Ironic-API-Maximum-Version": protocol.API_VERSION,
        "Cache-Control": "no-store",
    }
    response = web.Response(
        status=status,
        body=b"" if body is None else json.dumps(body).encode(),
        content_type="application/json",
        headers={**version, **(headers or {})},
    )
    response.force_close()  # an agent calls once a minute: an idle connection costs 57 KB
    return response


# ------------------------------------------------------------------------------
# An agent's answers to commands, made harmless: sizes, types, characters, and the token.
#
# An agent answers HTTP 200 also for a command that failed; only `command_status` shows the failure.
# It writes its token into its own log, so that any text it sends may quote it.


RUNNING = "RUNNING"
ENDED = frozenset({"SUCCEEDED", "FAILED", "CLEAN_VERSION_MISMATCH"})
ANSWER_MAX = 8 * 1024 * 1024  # bytes; an inventory has some 40 KB, collected logs some MB
DEPTH_MAX = 32
IDENTIFIER = re.compile(r"[\w-]{1,64}", re.ASCII)  # it becomes part of a path
VALUES_MAX = 200_000
ERROR_MAX = 1000  # characters
COMMANDS_MAX = 10_000  # an agent keeps every command of a boot


@dataclass(frozen=True)
class Command:
    """One entry of an agent's list of commands."""

    id: str
    name: str  # without its extension: agents leave that out, but for commands that failed at once
    status: str
    result: Any
    error: str

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    def outcome(self) -> AgentResult:
        assert self.has_ended
        return AgentResult(self.status, self.result, self.error)


def digest_of(name: str, parameters: Mapping[str, Any]) -> str:
    """Return the SHA-256 that distinguishes commands."""
    text = json.dumps([name, parameters], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def short_name(name: str) -> str:
    """Return a command's name without its extension, as the list of commands has it."""
    return name.rpartition(".")[2]


def parse_command(reply: Reply, token: str) -> Command:
    """Return the command in an answer. Raises `Malformed`."""
    return _command(reply.json(), token)


def parse_commands(reply: Reply, token: str) -> Sequence[Command]:
    """Return the list of commands, oldest first. Raises `Malformed`."""
    document = reply.json()
    listed = document.get("commands") if isinstance(document, dict) else None
    if not isinstance(listed, list) or len(listed) > COMMANDS_MAX:
        raise Malformed("not a list of commands")
    return tuple(_command(entry, token) for entry in listed)


def read_fault(reply: Reply, token: str) -> str:
    """Return why a request was refused, in the agent's words."""
    try:
        document = reply.json()
    except Malformed:
        return f"HTTP status {reply.status}"
    text = (
        (document.get("faultstring") or document.get("details"))
        if isinstance(document, dict)
        else None
    )
    detail = _words(text, token) if isinstance(text, str) else ""
    return f"HTTP status {reply.status}: {detail}" if detail else f"HTTP status {reply.status}"


def _command(given: Any, token: str) -> Command:
    if not isinstance(given, dict):
        raise Malformed("not a command")
    identifier, name, status = (given.get(k) for k in ("id", "command_name", "command_status"))
    if not isinstance(identifier, str) or not IDENTIFIER.fullmatch(identifier):
        raise Malformed("a command without an identifier")
    if not isinstance(name, str) or not isinstance(status, str):
        raise Malformed("a command without a name or a status")
    if status != RUNNING and status not in ENDED:
        raise Malformed(f"a command in the status {make_printable(status, 40)!r}")
    error = given.get("command_error")
    text = ""
    if error is not None or status not in (RUNNING, "SUCCEEDED"):
        text = _error_text(error, token) or "no reason was given"
    result = _Cleaner(token).clean(given.get("command_result"), 0)
    return Command(identifier, short_name(make_printable(name, 100)), status, result, text)


def _error_text(error: Any, token: str) -> str:
    """Return the text of an error {type, code, message, details} (errors.py, RESTError)."""
    if isinstance(error, dict):
        texts = [error.get(key) for key in ("message", "details", "error")]
        error = ": ".join(part for part in texts if isinstance(part, str) and part)
    return _words(error, token) if isinstance(error, str) else ""


def _words(text: str, token: str) -> str:
    return make_printable(_hidden(text, token), ERROR_MAX)


def _hidden(text: str, token: str) -> str:
    return text.replace(token, "***") if token else text


class _Cleaner:
    """A copier of JSON within bounds; control characters but newline and tab become "?"."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._left = VALUES_MAX

    def clean(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if depth > DEPTH_MAX or self._left < 0:
            raise Malformed("a result that is nested too deeply, or has too many values")
        match value:
            case str():
                return self._text(value)
            case dict():
                return {self._text(k): self.clean(v, depth + 1) for k, v in value.items()}
            case list():
                return [self.clean(v, depth + 1) for v in value]
        return value

    def _text(self, text: str) -> str:
        if text.isprintable() and self._token not in text:
            return text
        shown = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
        return _hidden(shown, self._token)
