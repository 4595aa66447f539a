"""Routes of browsers' sessions: begin one with a token, end it, list them, end another one."""

from __future__ import annotations

from aiohttp import web
from pydantic import Field

from provisioner.access.tokens import sha256_of
from provisioner.api.app import build_response
from provisioner.api.changes import Outcome, build_objection
from provisioner.api.console_pages import open_session, read_secret, set_cookie
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import ANYBODY, OPERATORS, VIEWERS, Effect, Route
from provisioner.api.routes.alerts import Me, show_caller
from provisioner.model.access import Bound, ChangeKind, ChangeRequest, RequestState, Role
from provisioner.model.base import Record
from provisioner.model.times.instant import Instant

TAG = "access"


class SessionView(Record):
    """A browser's session, without its secret."""

    id: str
    subject: str
    roles: tuple[Role, ...]
    tenant: str
    bounds: tuple[Bound, ...] = ()
    token: str
    issuer: str
    made_at: Instant
    used_at: Instant
    expires_at: Instant


class SessionList(Record):
    """Sessions that have not ended; the last used one comes first."""

    items: tuple[SessionView, ...]


async def begin_session(ask: Ask) -> web.Response:
    """Begin a session for the holder of this request's token; end the one that it had."""
    caller = ask.caller
    # a stolen cookie cannot prolong its session
    if caller.session or not (caller.token or caller.issuer):
        refused = build_refusal(
            401, "token", "A session begins with a token", "Send it as Authorization."
        )
        refused.headers["WWW-Authenticate"] = 'Bearer realm="provisioner"'
        raise refused
    parts = ask.parts
    before = await parts.store.sessions.find(sha256_of(read_secret(ask.request)))
    replaces = before.id if before is not None else ""
    return await _answer(ask, await open_session(parts, caller, replaces, ask.now))


async def end_session(ask: Ask) -> web.Response:
    """End the session of this request, wherever its cookie was copied to."""
    if ask.caller.session:
        why = f"{ask.caller.subject} signed out"
        await ask.parts.store.sessions.end(ask.caller.session, why, ask.now)
    return await _answer(ask, "")


async def _answer(ask: Ask, secret: str) -> web.Response:
    caller = await show_caller(ask)
    answer = build_response(Reply(caller.body))
    answer.headers["Cache-Control"] = "no-store"
    set_cookie(answer, secret)
    return answer


async def list_all(ask: Ask) -> Reply:
    limits = ask.parts.settings.session_limits()
    items = tuple(
        SessionView(
            **s.model_dump(exclude={"sha256", "ended_at", "roles"}), roles=tuple(sorted(s.roles))
        )
        for s in await ask.parts.store.sessions.list(limits, ask.now)
    )
    return Reply(SessionList(items=items))


async def end_another(ask: Ask) -> Reply:
    name = ask.read_word("session")
    limits = ask.parts.settings.session_limits()
    if not any(s.id == name for s in await ask.parts.store.sessions.list(limits, ask.now)):
        raise refuse_missing("session")
    return await ask.parts.works.submit_change(ask, ChangeKind.SESSION_END, name, "", {})


class Person(Record):
    """The body of an end to all sessions of one person."""

    subject: str = Field(
        min_length=1, max_length=200, description="Name of the person, as sessions list it."
    )


async def end_all(ask: Ask) -> Reply:
    """End every session of one person, at once."""
    arguments = {"every": True}
    return await ask.parts.works.submit_change(
        ask, ChangeKind.SESSION_END, ask.body.subject, "", arguments
    )


async def change_session(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    sessions = parts.store.sessions
    now = parts.clock.now()
    why = f"{asked.asked_by} ended it"
    if asked.arguments.get("every"):
        ended = await sessions.end_of_subject(asked.subject, why, now)
        return Outcome(RequestState.DONE, {"sessions": len(ended)})
    if not await sessions.end(asked.subject, why, now):
        return build_objection(
            asked.subject, "there is no such session", "Look at the list of them."
        )
    return Outcome(RequestState.DONE, {"session": asked.subject})


ROUTES = (
    Route(
        "POST",
        "/session",
        "begin_session",
        TAG,
        "Begin a browser's session with this request's token, for the console.",
        ANYBODY,
        begin_session,
        {200: Me},
        effect=Effect.MOMENTARY,
        refusals={
            401: "It came with a session instead of a token.",
            429: "Too many sign-ins within a minute.",
        },
    ),
    Route(
        "DELETE",
        "/session",
        "end_session",
        TAG,
        "End this browser's session.",
        ANYBODY,
        end_session,
        {200: Me},
        effect=Effect.MOMENTARY,
    ),
    Route(
        "GET",
        "/sessions",
        "list_sessions",
        TAG,
        "List browsers' sessions, without their secrets.",
        VIEWERS,
        list_all,
        {200: SessionList},
    ),
    Route(
        "POST",
        "/sessions/end",
        "end_sessions",
        TAG,
        "End every browser's session of one person, at once.",
        OPERATORS,
        end_all,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        body=Person,
        example={"subject": "ada"},
        site=True,
    ),
    Route(
        "POST",
        "/sessions/{session}/end",
        "end_other_session",
        TAG,
        "End a browser's session, at once.",
        OPERATORS,
        end_another,
        {200: OperationView, 202: OperationView},
        effect=Effect.LASTING,
        site=True,
    ),
)
