"""The console's cookie: the secret of a session, stored by a browser where no script can read it.

Rule: a browser sends a cookie for pages of any origin, so the cookie alone never permits a change.
It counts for a change only with a header that a foreign page cannot send (no preflight is ever
answered here), beside SameSite=Strict; see docs/console.md.
"""

from __future__ import annotations

from http.cookies import CookieError, SimpleCookie

from aiohttp import web

from provisioner.access.sessions import SECRET, is_fresh, new_session
from provisioner.api.local_peer import find_local_caller
from provisioner.api.parts import ApiParts, Ask
from provisioner.api.problem import build_refusal
from provisioner.model.access import PROOF_KINDS, Caller, ChangeKind

# "__Host-": a browser takes it over TLS only, from this host for this host (RFC 6265bis section
# 4.1.3.2). To browsers the API speaks nothing but TLS.
COOKIE = "__Host-provisioner"
PROOF = "X-Provisioner-Console"
# a request that the page sends by itself, which is no use of the session
UNATTENDED = "X-Provisioner-Unattended"
READING = ("GET", "HEAD")


async def identify(
    parts: ApiParts, request: web.Request, *, attended: bool = True
) -> Caller | None:
    """Return the sender of a request: by its Authorization header, its cookie, or the unix socket.

    Raises Refused if a cookie alone asks for a change.
    """
    authorization = request.headers.get("Authorization", "")
    if authorization:
        return await parts.identity.identify_caller(authorization)
    secret = read_secret(request)
    if not secret:
        return find_local_caller(request)
    if request.method not in READING and not _own_page(request):
        unblock = f"Send the token in the Authorization header, or `{PROOF}: 1` from our own page."
        raise build_refusal(403, "cross-site", "A cookie alone changes nothing", unblock)
    attended = attended and request.headers.get(UNATTENDED) != "1"
    return await parts.identity.identify_session(secret, attended=attended)


def require_proof(ask: Ask, kind: ChangeKind) -> None:
    """Refuse a destructive change to a session whose holder did not sign in shortly before.

    The challenge is that of RFC 9470 (step-up authentication).
    """
    limits = ask.parts.settings.session_limits()
    if kind not in PROOF_KINDS or is_fresh(ask.caller, limits, ask.now):
        return
    unblock = "Sign in again with your token, then ask again."
    detail = f"{kind.value} is made within {limits.proof_s:.0f} s of a sign-in"
    refused = build_refusal(401, "fresh-sign-in", "A fresh sign-in is needed", unblock, detail)
    refused.headers["WWW-Authenticate"] = (
        'Bearer realm="provisioner", error="insufficient_user_authentication", '
        f'max_age="{limits.proof_s:.0f}"'
    )
    raise refused


async def open_session(parts: ApiParts, caller: Caller, replaces: str, now: float) -> str:
    """Begin a session in place of the one with this id; return its secret. Raises Refused."""
    limits = parts.settings.session_limits()
    secret, session = new_session(caller, limits, now)
    if not await parts.store.sessions.begin(session, limits, replaces):
        refused = build_refusal(
            429, "sign-ins", "Too many sign-ins within a minute", "Wait a minute."
        )
        refused.headers["Retry-After"] = "60"
        raise refused
    return secret


def set_cookie(answer: web.StreamResponse, secret: str) -> None:
    """Set the cookie until the browser is closed; "" removes it."""
    answer.set_cookie(
        COOKIE,
        secret,
        path="/",
        secure=True,
        httponly=True,
        samesite="Strict",
        max_age=None if secret else 0,
    )


def read_secret(request: web.Request) -> str:
    """Return the cookie's value, if there is exactly one in the form of a session's secret."""
    try:
        jar = SimpleCookie(request.headers.get("Cookie", ""))
    except CookieError:
        return ""
    values = jar.get(COOKIE)
    return values.value if values is not None and SECRET.fullmatch(values.value) else ""


def _own_page(request: web.Request) -> bool:
    """Return whether our own page asks. Fetch metadata is believed only where it denies that."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    return site == "same-origin" and request.headers.get(PROOF) == "1"
