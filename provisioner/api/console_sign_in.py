"""The console's sign-in at an OIDC provider: the browser goes there and comes back with a code.

The question's cookie is SameSite=Lax, because the browser comes back by a link of the provider. The
session's cookie is Strict and is not sent on that way: the page that answers begins the console by
a step of its own (`signed_in.js`).
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from http.cookies import CookieError, SimpleCookie

from aiohttp import web

from provisioner.access.oidc_sign_in import OidcSignIn, SignInRefused, read_question
from provisioner.api.console_cookie import open_session, set_cookie
from provisioner.api.console_pages import send_page
from provisioner.api.parts import ApiParts
from provisioner.api.problem import Refused, refuse_missing

log = logging.getLogger(__name__)
COOKIE = "__Host-provisioner-question"
WAY_BACK = "/console/signed-in"
ANSWERS_MAX = 16  # parameters of an answer


class ConsoleSignIn:
    """The three addresses of a sign-in."""

    def __init__(self, parts: ApiParts) -> None:
        self._parts = parts

    def add_routes(self, app: web.Application) -> None:
        """Add the addresses beside the console's files."""
        app.router.add_get("/console/sign-in-offer", self.show_offer)
        app.router.add_get("/console/sign-in", self.begin)
        app.router.add_get(WAY_BACK, self.end)

    async def show_offer(self, _request: web.Request) -> web.StreamResponse:
        """Answer the name of the provider, "" without one, and what command lines need of it."""
        sign_in = self._parts.sign_in
        offer = self._parts.device_offer
        return web.json_response(
            {
                "provider": "" if sign_in is None else sign_in.provider_name,
                "device": None if offer is None else asdict(offer),
            },
            headers={"Cache-Control": "no-store"},
        )

    async def begin(self, request: web.Request) -> web.StreamResponse:
        """Send the browser to the provider."""
        sign_in = self._find_sign_in()
        again = request.query.get("again") == "1"
        try:
            address, question = await sign_in.ask_provider(self._parts.clock.now(), again=again)
        except SignInRefused as refused:
            return _redirect_refused(refused)
        answer = _redirect(address)
        _set_question(answer, question.write())
        return answer

    async def end(self, request: web.Request) -> web.StreamResponse:
        """Take the provider's answer; begin a session."""
        sign_in = self._find_sign_in()
        self._parts.callers.check_login(request, "")
        question = read_question(_read_cookie(request))
        now = self._parts.clock.now()
        answer: web.StreamResponse
        try:
            caller = await sign_in.take_answer(_read_answer(request), question, now)
            secret = await open_session(self._parts, caller, "", now)
        except SignInRefused as refused:
            self._parts.callers.record_login(request, "", good=False)
            answer = _redirect_refused(refused)
        except Refused:
            answer = _redirect("/console/?refused=busy")
        else:
            again = question is not None and question.again
            answer = send_page("signed_in_again.html" if again else "signed_in.html")
            set_cookie(answer, secret)
        _set_question(answer, "")
        return answer

    def _find_sign_in(self) -> OidcSignIn:
        if self._parts.sign_in is None:
            raise refuse_missing("sign-in at a provider")
        return self._parts.sign_in


def _read_answer(request: web.Request) -> dict[str, str]:
    """Return the answer's parameters; none if one is given twice."""
    query = request.query
    if len(query) > ANSWERS_MAX or len(set(query)) != len(query):
        return {}
    return dict(query)


def _read_cookie(request: web.Request) -> str:
    try:
        jar = SimpleCookie(request.headers.get("Cookie", ""))
    except CookieError:
        return ""
    return jar[COOKIE].value if COOKIE in jar else ""


def _set_question(answer: web.StreamResponse, text: str) -> None:
    """Keep the question in the browser for ten minutes; "" removes it."""
    answer.set_cookie(
        COOKIE,
        text,
        path="/",
        secure=True,
        httponly=True,
        samesite="Lax",
        max_age=600 if text else 0,
    )


def _redirect(address: str) -> web.Response:
    return web.Response(status=303, headers={"Location": address, "Cache-Control": "no-store"})


def _redirect_refused(refused: SignInRefused) -> web.Response:
    log.info("a sign-in at the provider was refused: %s: %s", refused.word, refused)
    return _redirect(f"/console/?refused={refused.word}")
