"""Logging in to one BMC and out again, without ever leaving a session behind.

redfish.aio can log in too, but it forgets a session whose `Location` names another host or is
missing (docs/sources/engine.md#session-leak): eight such logins lock everybody out of an iDRAC. So
the session is created here, and only the path of its `Location` is believed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from provisioner.adapters.redfish.messages import read_document
from provisioner.ports import (
    AccountLocked,
    BmcAddress,
    Call,
    LoginRefused,
    Malformed,
    PortError,
    Reply,
    Secret,
    Unreachable,
)
from provisioner.runtime import permit

LOG = logging.getLogger(__name__)

ROOT = "/redfish/v1/"  # DSP0266: the only path that is known beforehand
# where the root hides its link (docs/sources/bmc-faults.md#s5)
SESSIONS = "/redfish/v1/SessionService/Sessions"
LOGIN_LIMIT_S = 30.0
LOGOUT_LIMIT_S = 10.0
LOGOUT_TRIES = 2
ANSWER_MAX_BYTES = 1024 * 1024
BUSY_WAIT_S = 60.0  # where a BMC says "too many sessions" without Retry-After
LOCKED_WAIT_S = 1800.0  # where a BMC says "locked out" without Retry-After
LOCKED_FLOOR_S = 300.0  # BMCs' clocks and counters differ: a shorter wait risks another failure
_LOCKOUT = re.compile(r"\b(\d{1,5}) ?s(?:ec(?:ond)?s?)?\b")
JUST_READ_S = 3.0  # a connection that brought the root so long ago is still open
MEMBERS_MAX = 32  # session tables have 8 to 64 rows; a longer look is not worth it


@dataclass(frozen=True)
class Login:
    """The authentication of requests: a session's token, or Basic where there are no sessions.

    `path` is the session's own, "" if the BMC did not report it. `password_change` is the account
    whose password must be changed before the BMC lets this login do anything else.
    """

    username: str
    secret: Secret
    token: Secret | None = None
    path: str = ""
    password_change: str | None = None

    @property
    def basic(self) -> bool:
        """True: each request carries the password itself."""
        return self.token is None


# one exchange with the BMC, with a login or without one; raises PortError only
Exchange = Callable[[BmcAddress, Call, Login | None], Awaitable[Reply]]


async def open_login(exchange: Exchange, bmc: BmcAddress) -> Login:
    """Log in once. Raises LoginRefused (counts as a failure at the BMC), AccountLocked, or others.

    `Unreachable.maybe_executed` is True only if the credentials were sent and nothing was heard.
    """
    assert bmc.secret is not None, "nobody logs in without a password"
    root = await _root(exchange, bmc)
    sessions = SESSIONS if root is None else sessions_path(root)
    if sessions is None:
        return await _open_basic(exchange, bmc, root)
    body = {"UserName": bmc.username, "Password": bmc.secret.reveal()}
    call = Call("POST", sessions, body, {}, LOGIN_LIMIT_S, ANSWER_MAX_BYTES)
    with permit.allow_reads():  # a session changes nothing, and without one nothing can be read
        reply = await exchange(bmc, call, None)
    change = password_change(reply)
    token = reply.headers.get("x-auth-token", "").strip()
    if reply.status < 300 and token:
        path = path_of(reply.headers.get("location")) or path_of(_member(reply, "@odata.id"))
        login = Login(bmc.username, bmc.secret, Secret(token), path, change)
        return login if path else await _with_own_path(exchange, bmc, login, sessions)
    if reply.status < 300:
        LOG.warning("%s: its session has no token; Basic is used", bmc.url)
        login = await _open_basic(exchange, bmc, root)
        await close_login(exchange, bmc, login, path_of(reply.headers.get("location")))
        return login
    if reply.status in (404, 405, 501):  # sessions are not implemented
        return await _open_basic(exchange, bmc, root)
    if change is not None:  # DSP0266: no session before the change, but Basic for it
        return Login(bmc.username, bmc.secret, password_change=change)
    raise _refusal(bmc, reply)


async def close_login(
    exchange: Exchange, bmc: BmcAddress, login: Login, path: str | None = None
) -> bool:
    """Delete the session at `path` (the login's own by default); return whether it is gone.

    Never raises. A request that was lost, or met a service that is not ready, is sent once more:
    to delete a session twice is harmless, and one that is left takes a row of the table.
    """
    path = login.path if path is None else path
    for _ in range(LOGOUT_TRIES if path else 0):
        try:
            with permit.allow_reads():
                reply = await exchange(bmc, Call("DELETE", path, timeout_s=LOGOUT_LIMIT_S), login)
        except PortError as error:
            LOG.info("%s: session was not closed, its timeout will: %s", bmc.url, error)
            continue
        if reply.status < 500:
            return reply.status not in (401, 403)
    return not path


_SESSIONS_PATH = re.compile(r"/redfish/v1/(?:[\w./-]+/)?Sessions/?")
_SESSION_PATH = re.compile(_SESSIONS_PATH.pattern.removesuffix("/?") + r"/[^/?#]+/?")


def is_session_call(call: Call) -> bool:
    """Return whether a call opens or closes a session, by the standard's name of its collection.

    The path of a login comes from the BMC: one that names an action as its sessions is refused.
    """
    if call.method == "POST":
        return _SESSIONS_PATH.fullmatch(call.path) is not None
    return call.method == "DELETE" and _SESSION_PATH.fullmatch(call.path) is not None


def sessions_path(root: Mapping[str, Any]) -> str | None:
    """Where sessions are made, as the root says; None if the service has no sessions at all."""
    links = root.get("Links")
    path = path_of(links.get("Sessions")) if isinstance(links, Mapping) else ""
    if path:
        return path
    return SESSIONS if root.get("SessionService") else None


def path_of(link: Any) -> str:
    """The path of a link, "" if there is none; its host and port are wrong behind NAT, or lies."""
    if isinstance(link, Mapping):
        link = link.get("@odata.id")
    if not isinstance(link, str):
        return ""
    try:
        path = urlsplit(link.strip()).path
    except ValueError:
        return ""
    return path if path.startswith("/") and not path.startswith("//") else ""


def password_change(reply: Reply) -> str | None:
    """The account whose password must be changed first ("" if unnamed); None: no such demand.

    Base registry, PasswordChangeRequired: its first argument is the account's URI.
    """
    try:
        body = read_document(reply)
    except Malformed:
        return None
    error = body.get("error") if isinstance(body, Mapping) else None
    for holder in (body, error):
        messages = holder.get("@Message.ExtendedInfo") if isinstance(holder, Mapping) else None
        # some send the message itself (docs/sources/bmc-faults.md#e13)
        if isinstance(messages, Mapping):
            messages = [messages]
        for message in messages if isinstance(messages, list) else []:
            identity = message.get("MessageId") if isinstance(message, Mapping) else None
            if isinstance(identity, str) and identity.endswith(".PasswordChangeRequired"):
                arguments = message.get("MessageArgs")
                return path_of(arguments[0]) if isinstance(arguments, list) and arguments else ""
    code = error.get("code") if isinstance(error, Mapping) else None
    return "" if isinstance(code, str) and code.endswith(".PasswordChangeRequired") else None


async def _root(exchange: Exchange, bmc: BmcAddress) -> Mapping[str, Any] | None:
    """The service root; None if it wants a login first, against DSP0266
    (docs/sources/bmc-faults.md#s6).
    """
    try:
        call = Call("GET", ROOT, timeout_s=LOGIN_LIMIT_S, known_s=JUST_READ_S)
        reply = await exchange(bmc, call, None)
    except Unreachable as error:
        raise Unreachable(str(error), maybe_executed=False) from None
    if reply.status in (401, 403):
        return None
    if reply.status >= 500:
        raise Unreachable(f"{bmc.url}: service root answers {reply.status}", maybe_executed=False)
    root = read_document(reply) if reply.status == 200 else None
    if not isinstance(root, Mapping):
        raise Malformed(f"{bmc.url}: no Redfish service root ({reply.status})")
    return root


async def _open_basic(exchange: Exchange, bmc: BmcAddress, root: Mapping[str, Any] | None) -> Login:
    """Basic, proved once at a resource that needs a login (the root does not)."""
    assert bmc.secret is not None, "nobody logs in without a password"
    if ":" in bmc.username:
        raise LoginRefused(f"{bmc.url}: Basic cannot carry a ':' in the user name (RFC 7617)")
    login = Login(bmc.username, bmc.secret)
    guarded = (path_of((root or {}).get(name)) for name in ("Systems", "Managers", "Chassis"))
    path = next((p for p in guarded if p), ROOT)
    reply = await exchange(bmc, Call("GET", path, timeout_s=LOGIN_LIMIT_S), login)
    if reply.status == 401:
        raise _refusal(bmc, reply)
    return Login(login.username, login.secret, password_change=password_change(reply))


async def _with_own_path(exchange: Exchange, bmc: BmcAddress, login: Login, sessions: str) -> Login:
    """Find the session whose path the BMC kept to itself: the only one of our user, if so."""
    try:
        listing = await exchange(bmc, Call("GET", sessions, timeout_s=LOGIN_LIMIT_S), login)
        members = _member(listing, "Members")
        own = []
        for path in list(filter(None, map(path_of, members or [])))[:MEMBERS_MAX]:
            reply = await exchange(bmc, Call("GET", path, timeout_s=LOGIN_LIMIT_S), login)
            if _member(reply, "UserName") == login.username:
                own.append(path)
    except (PortError, TypeError):
        own = []
    if len(own) != 1:
        LOG.warning("%s: a session without a path cannot be closed, only time out", bmc.url)
        return login
    return Login(login.username, login.secret, login.token, own[0], login.password_change)


def _member(reply: Reply, name: str) -> Any:
    try:
        body = read_document(reply)
    except Malformed:
        return None
    return body.get(name) if isinstance(body, Mapping) else None


def _refusal(bmc: BmcAddress, reply: Reply) -> PortError:
    """Return the error that a failed login means. The body may be XHTML
    (docs/sources/bmc-faults.md#s11).
    """
    text = reply.body[:65536].decode("utf-8", "replace").lower()
    wait_s = retry_after_s(reply)
    if "locked" in text and reply.status < 500:
        lasts_s = wait_s or _read_lockout_s(text)
        return AccountLocked(f"{bmc.url}: account is locked", lasts_s)
    if reply.status == 429 or (reply.status == 503 and "session" in text):
        return AccountLocked(f"{bmc.url}: no session is free", wait_s or BUSY_WAIT_S)
    if reply.status >= 500:
        return Unreachable(f"{bmc.url}: login answered {reply.status}", maybe_executed=False)
    if 300 <= reply.status < 400:
        return Malformed(f"{bmc.url}: login is redirected, which is not followed")
    return LoginRefused(f"{bmc.url}: credentials refused ({reply.status})")


def _read_lockout_s(text: str) -> float:
    """Return the seconds of a lockout as the BMC states them, never less than the floor.

    NVIDIA/bmcweb names its AccountLockoutDuration in the text (docs/sources/redfish.md#bmcweb).
    """
    stated = _LOCKOUT.search(text)
    return max(LOCKED_FLOOR_S, float(stated[1])) if stated is not None else LOCKED_WAIT_S


def retry_after_s(reply: Reply) -> float:
    """`Retry-After` in seconds; 0 if it is absent or a date (BMC clocks are not to be trusted)."""
    text = reply.headers.get("retry-after", "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 6 else 0.0
