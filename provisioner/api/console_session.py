"""Routes of the console's session: a token goes in once, and the browser keeps it as a cookie."""

from __future__ import annotations

from aiohttp import web

from provisioner.api.app import response
from provisioner.api.console_cookie import set_cookie, token_of
from provisioner.api.matters import Me, me
from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import no
from provisioner.api.route import ANYBODY, Route

TAG = "access"


async def begin(ask: Ask) -> web.Response:
    """Keep the token that this request came with."""
    token = token_of(ask.request)
    if not token:
        unblock = "Make a shorter token: `provisioner token create`."
        raise no(400, "cookie", "The token does not fit into a cookie", unblock)
    return await _answer(ask, token)


async def end(ask: Ask) -> web.Response:
    """Forget it."""
    return await _answer(ask, "")


async def _answer(ask: Ask, token: str) -> web.Response:
    told = await me(ask)
    answer = response(Reply(told.body))
    answer.headers["Cache-Control"] = "no-store"
    set_cookie(answer, token)
    return answer


ROUTES = (
    Route("POST", "/session", "begin_session", TAG,
          "Keep this request's token as a cookie of the browser, for the console.", ANYBODY, begin,
          {200: Me}),
    Route("DELETE", "/session", "end_session", TAG, "Forget that cookie.", ANYBODY, end,
          {200: Me}),
)  # fmt: skip
