"""Routes of browsers: sessions (begin, end, list, end another one), and saved views."""

from __future__ import annotations

from aiohttp import web
from pydantic import Field, ValidationError

from provisioner.access.tokens import sha256_of
from provisioner.api.app import build_response
from provisioner.api.changes import Outcome, build_objection
from provisioner.api.console_pages import open_session, read_secret, set_cookie
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import ANYBODY, OPERATORS, VIEWERS, Counted, Effect, Route
from provisioner.api.routes.alerts import Me, show_caller
from provisioner.model.access import Bound, ChangeKind, ChangeRequest, RequestState, Role, SavedView
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
            **s.model_dump(exclude={"sha256", "ended_at", "roles", "also"}),
            roles=tuple(sorted(s.roles)),
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


# ------------------------------------------------------------------------------
# Saved views: addresses of the console that people keep and share.
#
# They are bookmarks: nothing goes by them, and the next request takes one back, so that a session
# is enough. Staff see what staff share; a tenant's people what its own people share.


class ViewName(Record):
    """Whose view is meant."""

    owner: str = Field(
        "", max_length=200, description="The person who shares it; without: the caller's own."
    )


class ViewFields(Record):
    """The body of a saved view."""

    address: str = Field(
        max_length=4000,
        pattern=r"^#/[!-~]*$",
        description="The console's address, from its # on: page, filter, colour, order.",
    )
    shared: bool = Field(
        default=False, description="Whether others of the same side see it in their list."
    )


class ViewList(Counted):
    """The caller's own views and those that others share, by name."""

    items: tuple[SavedView, ...]


async def list_views(ask: Ask) -> Reply:
    items = tuple(await ask.parts.store.views.list(ask.caller.tenant, ask.caller.subject))
    return Reply(ViewList(items=items, total=len(items)))


async def show_view(ask: Ask) -> Reply:
    return Reply(await _find_view(ask, ask.query.owner or ask.caller.subject))


async def _find_view(ask: Ask, owner: str) -> SavedView:
    name = ask.read_word("view_name")
    seen = await ask.parts.store.views.list(ask.caller.tenant, ask.caller.subject)
    found = next((v for v in seen if (v.owner, v.name) == (owner, name)), None)
    if found is None:
        raise refuse_missing("view")
    return found


async def save_view(ask: Ask) -> Reply:
    """Keep an address under a name of the caller's, in place of the one of that name."""
    try:
        view = SavedView(
            name=ask.read_word("view_name"),
            owner=ask.caller.subject,
            address=ask.body.address,
            shared=ask.body.shared,
            at=ask.now,
        )
    except ValidationError:
        unblock = "Use 1 to 80 characters, without spaces at its ends."
        raise build_refusal(400, "name", "This is no name of a view", unblock) from None
    if not await ask.parts.store.views.put(ask.caller.tenant, view):
        unblock = "Remove those that are not used any more: DELETE /v1/views/NAME."
        raise build_refusal(409, "many", "There are too many saved views", unblock)
    return Reply(view)


async def delete_view(ask: Ask) -> Reply:
    view = await _find_view(ask, ask.caller.subject)
    await ask.parts.store.views.drop(ask.caller.tenant, view.owner, view.name)
    return Reply(view)


_VIEW_ROUTES = (
    Route(
        "GET",
        "/views",
        "list_views",
        TAG,
        "List the saved views of the console: the caller's own, and those that others share.",
        ANYBODY,
        list_views,
        {200: ViewList},
    ),
    Route(
        "GET",
        "/views/{view_name}",
        "show_view",
        TAG,
        "Show a saved view.",
        ANYBODY,
        show_view,
        {200: SavedView},
        query=ViewName,
    ),
    Route(
        "PUT",
        "/views/{view_name}",
        "save_view",
        TAG,
        "Save an address of the console under a name, for oneself or shared.",
        ANYBODY,
        save_view,
        {200: SavedView},
        effect=Effect.MOMENTARY,
        lasting_with=frozenset({"shared"}),  # others open it, long after the session
        body=ViewFields,
        example={"address": "#/fleet?colour=tenant&where=rack%3Dsu0-*", "shared": True},
        refusals={409: "The caller, or all people of its side together, have too many."},
    ),
    Route(
        "DELETE",
        "/views/{view_name}",
        "delete_view",
        TAG,
        "Remove one of the caller's saved views.",
        ANYBODY,
        delete_view,
        {200: SavedView},
        effect=Effect.LASTING,
    ),
)
ROUTES = (
    *_VIEW_ROUTES,
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
