"""The application: it turns the table of routes into a server, and serves every request alike.

A request passes the same stations in order: the caller, its role, the request's path, query and
body against their models, idempotency, the handler, and the answer with its ETag. A refusal at any
station is a problem (RFC 9457).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Sequence

from aiohttp import web
from pydantic import BaseModel, ValidationError

from provisioner.api import changes
from provisioner.api.console_pages import ConsoleSignIn, add_console, identify, require_proof
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import Refused, build_answer, build_refusal
from provisioner.api.route import PREFIX, Route, list_media
from provisioner.api.scopes import require_whole_site
from provisioner.model.access import Caller
from provisioner.model.base import Record
from provisioner.model.times.instant import AT_EDGE
from provisioner.ports import StaleWrite, StoreFailed
from provisioner.ports.doors import Door, DoorRequest
from provisioner.runtime import bounded_listener, permit

BODY_MAX = 256 * 1024  # bytes; a body for 64 sessions of 512 prefixes has some 500 KB
BODY_S = 20.0  # seconds; a body arrives within this time
PATH_WORD = re.compile(r"[^\x00-\x1f\x7f]{1,128}")
NOBODY = Caller(subject="", roles=frozenset())
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
log = logging.getLogger(__name__)
PARTS: web.AppKey[ApiParts] = web.AppKey("parts", ApiParts)


def build_application(
    parts: ApiParts, routes: Sequence[Route], doors: Sequence[Door] = ()
) -> web.Application:
    app = web.Application(middlewares=[_guard], client_max_size=BODY_MAX)
    app[PARTS] = parts
    for route in routes:
        app.router.add_route(route.verb, PREFIX + route.path, _Endpoint(parts, route).serve)

    for door in doors:
        app.router.add_route("*", door.prefix + "{path:(?:/.*)?}", _DoorWay(parts, door).serve)

    ConsoleSignIn(parts).add_routes(app)
    add_console(app)

    async def close(_app: web.Application) -> None:
        await parts.feed.close()
        await parts.callers.close()
        await parts.works.close()
        await parts.identity.close()

    app.on_cleanup.append(close)
    return app


@web.middleware
async def _guard(request: web.Request, handler: changes.Handler) -> web.StreamResponse:
    """Turn every failure into a problem; give every answer the headers for browsers."""
    bounded_listener.hear(request.protocol)
    try:
        endpoint = getattr(handler, "__self__", None)
        if not (isinstance(endpoint, _Endpoint) and endpoint.protected):
            request.app[PARTS].callers.charge_stranger(request)
        answer = await handler(request)
    except Refused as refused:
        answer = build_answer(refused)
    except web.HTTPException as error:
        answer = build_answer(_http(error))
    except StaleWrite as stale:
        unblock = "Look at it as it is now, then ask again."
        answer = build_answer(
            build_refusal(409, "stale", "Somebody changed it meanwhile", unblock, str(stale))
        )
    except StoreFailed:
        log.exception("the store failed, at %s", request.path)
        unblock = "Ask again in a minute; the daemon's log says what is wrong with its database."
        answer = build_answer(build_refusal(503, "store", "The database failed", unblock))
    except Exception:
        log.exception("our bug, at %s %s", request.method, request.path)
        unblock = "Report it with the log of the daemon."
        answer = build_answer(build_refusal(500, "bug", "Our bug; it is in the log", unblock))
    if not answer.prepared:
        if bounded_listener.should_end(request.protocol):
            answer.force_close()
        for name, value in HEADERS.items():
            answer.headers.setdefault(name, value)
        if permit.is_observing():
            answer.headers["Provisioner-Mode"] = "observe"
    return answer


def _http(error: web.HTTPException) -> Refused:
    """Return the problem for a refusal of aiohttp: no such path, no such method, too large."""
    titles = {
        404: ("path", "There is no such path", "See /v1/openapi.json for those that there are."),
        405: ("method", "This path has no such method", "The Allow header names those it has."),
        413: ("size", "The body is too large", f"Send at most {BODY_MAX} bytes."),
    }
    word, title, unblock = titles.get(error.status, ("http", error.reason, "Send what HTTP asks."))
    refused = build_refusal(error.status, word, title, unblock)
    if "Allow" in error.headers:
        refused.headers["Allow"] = error.headers["Allow"]
    return refused


class _Endpoint:
    """One route, served."""

    def __init__(self, parts: ApiParts, route: Route) -> None:
        self._parts = parts
        self._route = route
        self._words = re.findall(r"\{(\w+)\}", route.path)

    @property
    def protected(self) -> bool:
        return bool(self._route.roles)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        route = self._route
        if not self.protected:
            return await self._serve(request, NOBODY)
        caller = await self._admitted(request)
        callers = self._parts.callers
        if route.endless:  # holds a stream instead
            return await self._serve(request, caller)
        with callers.hold_request(caller):
            if not route.heavy:
                return await self._serve(request, caller)
            async with callers.hold_heavy(caller):
                return await self._serve(request, caller)

    async def _serve(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        route = self._route
        if any(not PATH_WORD.fullmatch(request.match_info[w]) for w in self._words):
            raise build_refusal(
                400, "path", "The path is not readable", "Send what a list answered."
            )
        query = self._query(request)
        body = None
        unread = route.verb == "GET" or route.streamed
        raw = b"" if unread else await _read(request, route.body_max)
        if route.body is not None:
            body = _checked(route.body, raw, request)
        scopes = caller.list_scopes(route.roles)
        ask = Ask(self._parts, request, caller, query, body, self._parts.clock.now(), scopes)
        if not ask.dry_run and route.is_lasting(body):
            require_proof(ask)
        if route.changes:
            self._parts.callers.charge_change(caller, route.name)
            if route.secret:
                return await self._answer(ask)
        else:
            return _conditional(request, await self._answer(ask))
        return await changes.answer_once(ask, raw, lambda: self._answer(ask))

    async def _admitted(self, request: web.Request) -> Caller:
        callers = self._parts.callers
        authorization = request.headers.get("Authorization", "")
        if authorization:
            callers.check_login(request, authorization)
        caller = await identify(self._parts, request, attended=not self._route.endless)
        if authorization:
            callers.record_login(request, authorization, good=caller is not None)
        elif caller is None:
            callers.charge_stranger(request)
        if caller is None:
            unblock = "Send `Authorization: Bearer TOKEN`; `provisioner token create` makes one."
            refused = build_refusal(401, "token", "A good bearer token is needed", unblock)
            refused.headers["WWW-Authenticate"] = 'Bearer realm="provisioner"'
            raise refused
        bounded_listener.prove(request.protocol)
        callers.charge_request(caller)
        if not caller.roles & self._route.roles:
            roles = " or ".join(sorted(r.value for r in self._route.roles))
            log.info("%s (%s) may not: %s", caller.subject, caller.via, self._route.name)
            raise build_refusal(
                403, "role", f"This is for the role {roles}", "Ask somebody who has it."
            )
        if self._route.site:
            require_whole_site(caller, self._route.roles)
        return caller

    def _query(self, request: web.Request) -> Record:
        parameters = request.query
        if len(set(parameters)) != len(parameters):
            raise build_refusal(
                400, "query", "A parameter is given twice", "Give each of them once."
            )
        try:
            return self._route.query.model_validate_strings(dict(parameters))
        except ValidationError as error:
            raise _misfit(error, "query", "A parameter is not what this takes") from None

    async def _answer(self, ask: Ask) -> web.StreamResponse:
        result = await self._route.handle(ask)
        if isinstance(result, web.StreamResponse):
            return result
        assert type(result.body) is self._route.answers[result.status], (
            self._route.name,
            result.status,
        )
        response = build_response(result)
        if self._route.secret:
            del response.headers["ETag"]
            response.headers["Cache-Control"] = "no-store"
        return response


class _DoorWay:
    """The paths of one door. Its clients are limited as those of the API are."""

    def __init__(self, parts: ApiParts, door: Door) -> None:
        self._parts = parts
        self._door = door

    async def serve(self, request: web.Request) -> web.StreamResponse:
        callers = self._parts.callers
        authorization = request.headers.get("Authorization", "")
        callers.check_login(request, authorization)
        if len(set(request.query)) != len(request.query):
            raise build_refusal(
                400, "query", "A parameter is given twice", "Give each of them once."
            )
        told = await self._door.answer(
            DoorRequest(
                verb=request.method,
                path=request.match_info["path"],
                query=dict(request.query),
                headers={name.lower(): value for name, value in request.headers.items()},
                body=await _read(request, BODY_MAX),
                base=f"{request.scheme}://{request.host}{self._door.prefix}",
            )
        )
        callers.record_login(request, authorization, good=told.status != 401)
        if told.status != 401:
            bounded_listener.prove(request.protocol)
        return web.Response(status=told.status, body=told.body, headers=dict(told.headers))


def build_response(told: Reply) -> web.Response:
    """Return a record as JSON, with an ETag (RFC 9110 section 8.8.3)."""
    raw = told.body.model_dump_json(context=AT_EDGE).encode()
    tag = told.etag or f'"{hashlib.sha256(raw).hexdigest()[:24]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if told.location:
        headers["Location"] = told.location
    return web.Response(
        status=told.status, body=raw, content_type="application/json", headers=headers
    )


def _conditional(request: web.Request, answer: web.StreamResponse) -> web.StreamResponse:
    """Return 304 where the caller has this answer already (RFC 9110 section 13.1.2)."""
    condition = request.headers.get("If-None-Match", "")
    tag = answer.headers.get("ETag", "")
    if answer.prepared or answer.status != 200 or not condition or not tag:
        return answer
    etags = [word.strip().removeprefix("W/") for word in condition.split(",")]
    if tag not in etags:
        return answer
    return web.Response(status=304, headers={"ETag": tag})


async def _read(request: web.Request, most: int) -> bytes:
    try:
        async with asyncio.timeout(BODY_S):
            return await request.clone(client_max_size=most).read()
    except TimeoutError:
        refused = build_refusal(408, "slow", "The body did not come", "Send it at once.")
        refused.headers["Connection"] = "close"
        raise refused from None
    except ConnectionError:  # nobody reads this answer
        raise build_refusal(400, "gone", "The connection ended", "Send the whole body.") from None


def _checked(model: type[Record], raw: bytes, request: web.Request) -> Record:
    if raw and request.content_type not in list_media(request.method):
        raise build_refusal(
            415, "media", "The body must be JSON", "Send Content-Type: application/json."
        )
    try:
        return model.model_validate_json(raw or b"{}", context=AT_EDGE)
    except ValidationError as error:
        raise _misfit(error, "body", "The body is not what this takes") from None


def _misfit(error: ValidationError, word: str, title: str) -> Refused:
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])[:100]
    unblock = "See /v1/openapi.json for what it takes."
    message = str(first["msg"]).removeprefix("Value error, ")  # pydantic's own words
    detail = f"{where}: {message}" if where else message
    return build_refusal(400, word, title, unblock, detail[:300])


def list_models(routes: Sequence[Route]) -> list[type[BaseModel]]:
    """Return every model that routes name, each once."""
    named: dict[type[BaseModel], None] = {}
    for route in routes:
        for model in (route.body, *route.answers.values()):
            if model is not None:
                named[model] = None
    return list(named)
