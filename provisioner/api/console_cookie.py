"""The console's cookie: a token that a browser keeps where no script can read it.

Rule: a cookie is sent by the browser whoever wrote the page, so it alone never carries a change. It
counts for a change only with a header that a foreign page cannot send (no preflight is ever
answered here), beside SameSite=Strict; see docs/console.md.
"""

from __future__ import annotations

import re
from http.cookies import CookieError, SimpleCookie

from aiohttp import web

from provisioner.api.problem import no

# "__Host-": a browser takes it over TLS only, from this host for this host (RFC 6265bis section
# 4.1.3.2)
COOKIE = "__Host-provisioner"
PROOF = "X-Provisioner-Console"
READING = ("GET", "HEAD")
VALUE = re.compile(r"[A-Za-z0-9._~+/=-]{1,3500}")  # browsers keep 4,096 bytes of a cookie


def authorization(request: web.Request) -> str:
    """The Authorization header, or what the console's cookie stands for; "" is nobody.

    Refused if a cookie alone asks for a change.
    """
    given = request.headers.get("Authorization", "")
    if given:
        return given
    token = _cookie(request)
    if not token:
        return ""
    if request.method not in READING and not _own_page(request):
        unblock = f"Send the token in the Authorization header, or `{PROOF}: 1` from our own page."
        raise no(403, "cross-site", "A cookie alone changes nothing", unblock)
    return f"Bearer {token}"


def token_of(request: web.Request) -> str:
    """The bearer token of a request that was let in; "" if it cannot be in a cookie."""
    token = authorization(request).partition(" ")[2].strip()
    return token if VALUE.fullmatch(token) else ""


def set_cookie(answer: web.StreamResponse, token: str) -> None:
    """Keep it until the browser is closed; "" forgets it."""
    answer.set_cookie(
        COOKIE,
        token,
        path="/",
        secure=True,
        httponly=True,
        samesite="Strict",
        max_age=None if token else 0,
    )


def _cookie(request: web.Request) -> str:
    """Its value, if there is exactly one that is readable."""
    try:
        jar = SimpleCookie(request.headers.get("Cookie", ""))
    except CookieError:
        return ""
    found = jar.get(COOKIE)
    return found.value if found is not None and VALUE.fullmatch(found.value) else ""


def _own_page(request: web.Request) -> bool:
    """Whether our own page asks. Fetch metadata is believed only where it says no."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    return site == "same-origin" and request.headers.get(PROOF) == "1"
