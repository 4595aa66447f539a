"""Serves the console: plain files of our own, read once, under a policy that allows nothing else.

There is no build step: a browser loads the ES modules as they are in `console/`. A device's text
reaches a page as text only; Trusted Types make a browser refuse anything else.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import pwd
import socket
import struct
from dataclasses import asdict, dataclass
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from aiohttp import web

from provisioner.access.oidc_sign_in import OidcSignIn, SignInRefused, read_question
from provisioner.access.sessions import SECRET, is_fresh, new_session
from provisioner.api.parts import ApiParts, Ask
from provisioner.api.problem import Refused, build_refusal, refuse_missing
from provisioner.model.access import STAFF, Caller

# ------------------------------------------------------------------------------
# The caller behind the unix socket: the person whose process connected, as the kernel reports it.
#
# The socket's file is for the daemon's own user and for root, who own the data directory anyway; so
# such a caller has the roles of the staff without a token. Its name is the login that the session
# began with, which `sudo` and `su` preserve (`/proc/PID/loginuid`, pam_loginuid(8)), else the name
# of the user that the process runs as: two people who use one service account stay two people.


CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): process, user, group
NO_LOGIN = 2**32 - 1  # the loginuid of a process that no login began


def find_local_caller(request: web.Request) -> Caller | None:
    """Return the caller of a request that came through the unix socket; None for any other."""
    transport = request.transport
    peer = None if transport is None else transport.get_extra_info("socket")
    if peer is None or peer.family != socket.AF_UNIX:
        return None
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    process, user, _group = CREDENTIALS.unpack(raw)
    if user not in (0, os.getuid()):  # the file's mode admits no other user: fail closed
        return None
    name = _name(_read_login(process, user))
    return Caller(subject=name, roles=STAFF, via=f"the unix socket as {_name(user)}")


def _read_login(process: int, user: int) -> int:
    """Return the user that the process's session began as, or `user` where none is recorded."""
    try:
        login = int(Path(f"/proc/{process}/loginuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return user
    return user if login == NO_LOGIN else login


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # a container's user without a name
        return f"uid {user}"


# ------------------------------------------------------------------------------
# The console's cookie: the secret of a session, stored by a browser where no script can read it.
#
# Rule: a browser sends a cookie for pages of any origin, so the cookie alone never permits a
# change. It counts for a change only with a header that a foreign page cannot send (no preflight is
# ever answered here), beside SameSite=Strict; see docs/console.md.


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


def require_proof(ask: Ask) -> None:
    """Refuse a lasting change to a session whose holder did not sign in shortly before.

    The challenge is that of RFC 9470 (step-up authentication).
    """
    limits = ask.parts.settings.session_limits()
    if is_fresh(ask.caller, limits, ask.now):
        return
    unblock = "Sign in again with your token, then ask again."
    detail = f"a change that outlives the session needs one of the last {limits.proof_s:.0f} s"
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


FILES = Path(__file__).parent / "console"
BEGIN = "index.html"
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-cache",  # revalidated each time, and answered 304
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True)
class File:
    """One file in the form in which it is sent."""

    kind: str
    plain: bytes
    packed: bytes
    tag: str


@lru_cache(maxsize=1)
def read_files() -> dict[str, File]:
    return {f.name: _file(f) for f in sorted(FILES.iterdir()) if f.suffix in TYPES}


def _file(path: Path) -> File:
    plain = path.read_bytes()
    tag = hashlib.sha256(plain).hexdigest()[:24]
    return File(TYPES[path.suffix], plain, gzip.compress(plain, 9, mtime=0), f'"{tag}"')


def accepts_gzip(request: web.Request) -> bool:
    """Return whether the client takes gzip (RFC 9110 section 12.5.3; a weight of 0 refuses it)."""
    for part in request.headers.get("Accept-Encoding", "").split(","):
        name, _, weight = part.partition(";")
        if name.strip().lower() == "gzip":
            return weight.replace(" ", "").rstrip("0.") != "q="
    return False


async def serve(request: web.Request) -> web.StreamResponse:
    """Serve a file; without a name, the page itself."""
    file = read_files().get(request.match_info.get("file") or BEGIN)
    if file is None:
        raise refuse_missing("page")
    headers = {**HEADERS, "ETag": file.tag}
    etags = request.headers.get("If-None-Match", "").split(",")
    if file.tag in [word.strip().removeprefix("W/") for word in etags]:
        return web.Response(status=304, headers=headers)
    body = file.plain
    if accepts_gzip(request):
        body = file.packed
        headers["Content-Encoding"] = "gzip"
    return web.Response(body=body, content_type=file.kind, charset="utf-8", headers=headers)


def send_page(name: str) -> web.StreamResponse:
    file = read_files()[name]
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return web.Response(body=file.plain, content_type=file.kind, charset="utf-8", headers=headers)


async def redirect_home(_request: web.Request) -> web.StreamResponse:
    """Redirect a request for the host's name alone to the console."""
    return web.Response(status=307, headers={"Location": "/console/", "Cache-Control": "no-cache"})


def add_console(app: web.Application) -> None:
    """Add the console's paths beside those of the API."""
    app.router.add_get("/", redirect_home)
    app.router.add_get("/console", redirect_home)
    app.router.add_get("/console/", serve)
    app.router.add_get("/console/{file:[a-z_]{1,40}\\.[a-z]{2,4}}", serve)


# ------------------------------------------------------------------------------
# The console's sign-in at an OIDC provider: the browser goes there and comes back with a code.
#
# The question's cookie is SameSite=Lax, because the browser comes back by a link of the provider.
# The session's cookie is Strict and is not sent on that way: the page that answers begins the
# console by a step of its own (`signed_in.js`).


log = logging.getLogger(__name__)
CONSOLE_SIGN_IN_COOKIE = "__Host-provisioner-question"
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
    return jar[CONSOLE_SIGN_IN_COOKIE].value if CONSOLE_SIGN_IN_COOKIE in jar else ""


def _set_question(answer: web.StreamResponse, text: str) -> None:
    """Keep the question in the browser for ten minutes; "" removes it."""
    answer.set_cookie(
        CONSOLE_SIGN_IN_COOKIE,
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
