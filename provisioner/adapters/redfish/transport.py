"""Redfish requests to many BMCs: `BmcTransport` over DMTF's redfish.aio and one aiohttp session.

redfish.aio brings headers, authentication and the same-origin rule. Ours is the rest: sessions that
do not leak, refresh, the login governor, pins, limits, one writer per BMC, and that a request which
changes something leaves at most once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from yarl import URL

from provisioner.adapters import bounded_http
from provisioner.adapters.bounded_http import (
    CONNECT_MAX_S,
    Attempt,
    Trust,
    bare_context,
    port_error,
)
from provisioner.adapters.redfish.exchange import READS_MAX, SAFE, HttpExchange
from provisioner.adapters.redfish.glance import is_possible
from provisioner.adapters.redfish.governor import LoginGovernor
from provisioner.adapters.redfish.session import (
    JUST_READ_S,
    ROOT,
    SESSIONS,
    Exchange,
    Login,
    close_login,
    open_login,
)
from provisioner.ports import (
    AccountLocked,
    BmcAddress,
    Call,
    LoginRefused,
    Malformed,
    PortError,
    Reply,
    TooLarge,
    Unreachable,
)
from provisioner.ports.telemetry import SILENCE, Telemetry
from provisioner.runtime.event_loop import PacedSlots

# ------------------------------------------------------------------------------
# The transport's state for each BMC: its locks, its login, and its observed peculiarities.


ROOTS = frozenset({ROOT, ROOT.rstrip("/")})  # both spellings; asked of each request, so quickly
ROOT_MAX_BYTES = 16 * 1024  # kept; real ones have two or three KiB
ORPHANS_MAX = 4
# sessions live 30 s or more (docs/sources/bmc-faults.md#s12); later the path may be another
# client's
ORPHAN_S = 300.0


@dataclass
class Line:
    """The state kept per BMC. The locks outlive a logout, so that there never are two writers."""

    reads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READS_MAX))
    write: asyncio.Lock = field(default_factory=asyncio.Lock)
    basic: asyncio.Lock = field(default_factory=asyncio.Lock)
    login: Login | None = None
    login_address: BmcAddress | None = None
    used_s: float = 0.0  # when the login last worked, on the event loop's clock
    kept_s: float = 0.0  # when a connection that stays open last brought an answer
    opening: asyncio.Task[Login] | None = None
    opening_for: BmcAddress | None = None
    without_basic: BmcAddress | None = None  # with this login it answers no single read
    coding: str = "identity"
    told: bool = False  # a warning about missing security was logged
    # it broke a connection that was used again (HPE, docs/sources/bmc-faults.md#t2)
    resets_kept: bool = False
    _orphans: list[tuple[float, Login]] = field(default_factory=list)
    _root: tuple[tuple[str, bool], float, Reply] | None = None  # trusted how, when, what

    def leave_session(self, login: Login, now: float) -> None:
        """Note a session that may still be open at the BMC, to be closed by the next login."""
        if login.path:
            self._orphans = [*self._orphans[1 - ORPHANS_MAX :], (now, login)]

    def take_orphans(self, now: float) -> list[Login]:
        """Return the sessions that were left a short time ago, each once."""
        orphans = [login for at, login in self._orphans if now - at <= ORPHAN_S]
        self._orphans = []
        return orphans

    def is_open(self, now: float) -> bool:
        """Return whether a connection was used a moment ago, and none ever broke when it was."""
        return not self.resets_kept and now - self.kept_s <= JUST_READ_S

    def find_root(self, bmc: BmcAddress, call: Call, now: float) -> Reply | None:
        """A request's service root, if one `known_s` old will do and it was trusted in this way.

        Who reads a BMC begins with it, each time: a third of all requests of an intake.
        """
        if self._root is None or call.known_s <= 0 or call.path not in ROOTS:
            return None
        trust, at, reply = self._root
        return reply if trust == _trust(bmc) and now - at <= call.known_s else None

    def learn(self, bmc: BmcAddress, call: Call, reply: Reply, now: float) -> None:
        """Keep the root that was just read."""
        if call.method == "GET" and reply.status == 200 and len(reply.body) <= ROOT_MAX_BYTES:
            self._root = (_trust(bmc), now, reply)

    def doubt(self) -> None:
        """Discard the cached root: after silence, a reset or an update the BMC may be another."""
        self._root = None


def _trust(bmc: BmcAddress) -> tuple[str, bool]:
    return bmc.pin, bmc.insecure


# ------------------------------------------------------------------------------
# What certificate a BMC presents, without believing it: for pinning on first use.
#
# Every BMC ships with a self-signed certificate and makes a new one at a factory reset
# (docs/sources/bmc-faults.md#t15), so a pin is taken once, by intake, and compared ever after.


async def presented_fingerprint(url: str, limit_s: float = CONNECT_MAX_S) -> str:
    """SHA-256 of the certificate (DER) as lowercase hex; "" for plain http, which has none.

    Raises Unreachable, or Malformed if the peer does not speak TLS.
    """
    try:
        place = URL(url)
    except ValueError as error:
        raise Malformed(f"{url}: {error}") from None
    if place.scheme == "http":
        return ""
    attempt = Attempt(safe=True)
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await asyncio.open_connection(
                place.host, place.port, ssl=bare_context(), server_hostname=place.host
            )
            certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.transport.abort()  # nothing was asked, so nothing is waited for
    except ssl.SSLError as error:
        raise Malformed(f"{url}: no TLS: {error.reason}") from None
    except (OSError, ValueError) as error:
        raise port_error(url, error, attempt) from None
    if not certificate:
        raise Malformed(f"{url}: presents no certificate")
    return hashlib.sha256(certificate).hexdigest()


LOG = logging.getLogger(__name__)
REQUESTS_MAX = 256  # in the whole process: sockets and JSON, not the network, are the limit
# a redirect, a refusal of Basic, or a demand of another coding: a session's request treats them
UNFIT = frozenset({301, 302, 303, 307, 308, 401, 403, 406})
# sessions live 30 s or more (docs/sources/bmc-faults.md#s12); an older one is tried before a write
FRESH_S = 20.0
CLOSE_LIMIT_S = 15.0  # for logging out of everything at the end


class RedfishTransport:
    """`BmcTransport` for real BMCs. To be made anywhere, used in one event loop, closed there.

    `ca_file` replaces the system's CAs. `governor` is shared if several transports are made.
    `watch_basic`: a read that stands alone may carry the password instead of a session's token.
    """

    def __init__(
        self,
        requests_max: int = REQUESTS_MAX,
        ca_file: Path | None = None,
        governor: LoginGovernor | None = None,
        telemetry: Telemetry = SILENCE,
        *,
        watch_basic: bool = True,
    ) -> None:
        self._http = HttpExchange(Trust(ca_file), telemetry)
        self._governor = governor or LoginGovernor()
        self._slots = PacedSlots(requests_max)
        self._lines: dict[str, Line] = {}
        self._watch_basic = watch_basic
        self._logouts: set[asyncio.Task[None]] = set()

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        """One request, as the port promises. Waiting for a turn does not count as its time."""
        line = self._line(bmc)
        if (cached := line.find_root(bmc, call, _now())) is not None:
            return cached
        if call.method in SAFE:
            async with line.reads, self._slots:
                if self._may_glance(line, bmc, call):
                    reply = await self._glance(line, bmc, call)
                    if reply is not None:
                        return reply
                return await self._read(line, bmc, call)
        async with line.write, self._slots:
            if call.method != "PATCH":  # a setting makes it no other BMC; an action may
                line.doubt()
            return await self._write(line, bmc, call)

    async def fingerprint(self, bmc: BmcAddress) -> str:
        """SHA-256 of the certificate that is presented now, lowercase hex; "" for plain http."""
        async with self._slots:
            await self._http.turns.take()
            return await presented_fingerprint(bmc.url)

    async def password_change(self, bmc: BmcAddress) -> str | None:
        login = await self.authorization(bmc)
        return login.password_change if login else None

    async def authorization(self, bmc: BmcAddress) -> Login | None:
        """The login that requests carry now; for a stream, which is no request with an end."""
        async with self._slots:
            return await self._login(self._line(bmc), bmc)

    async def forget(self, bmc: BmcAddress) -> None:
        """Log out. The governor's counts stay, so that a logout does not lift a lock."""
        await self._forget_line(self._line(bmc))

    async def _forget_line(self, line: Line) -> None:
        if line.opening is not None:
            await asyncio.wait({line.opening})
        async with self._slots:
            if line.login_address is not None and line.login is not None:
                await self._close_orphans(line, line.login_address, line.login)
            await self._drop(line)

    async def close(self) -> None:
        """Log out of everything within CLOSE_LIMIT_S, then close all connections."""
        openings = [line.opening for line in self._lines.values() if line.opening is not None]
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                if openings:  # a login under way makes one more session to be closed
                    await asyncio.wait(openings)
                await asyncio.gather(*map(self._forget_line, self._lines.values()))
        except TimeoutError:
            LOG.warning("some sessions were not closed; their timeouts will")
        for task in {*openings, *self._logouts}:
            task.cancel()
        await self._http.close()

    # one request

    def _may_glance(self, line: Line, bmc: BmcAddress, call: Call) -> bool:
        """Return whether to read with Basic: no connection is open, and the password is good.

        Only a login proves the password, so that what Basic is refused is known to be no guess.
        """
        return (
            self._watch_basic
            and is_possible(bmc, call)
            and line.without_basic != bmc
            and bmc.secret is not None
            and self._governor.is_accepted(bmc.url, (bmc.username, bmc.secret))
            and (line.login is None or _now() - line.used_s > bounded_http.KEEPALIVE_S)
            and not (line.login is not None and line.login.password_change is not None)
        )

    async def _glance(self, line: Line, bmc: BmcAddress, call: Call) -> Reply | None:
        """Read once with Basic; None: this answer is for the ordinary way, now and later."""
        assert bmc.secret is not None, "only those with a password have a glance"
        async with line.basic:
            if line.without_basic == bmc:
                return None
            try:
                reply = await self._http.glance(bmc, call)
            except (Malformed, TooLarge) as error:
                LOG.info("%s: read with a session from now on: %s", bmc.url, error)
                line.without_basic = bmc
                return None
            except PortError:
                line.doubt()
                raise
            if reply.status in UNFIT:
                LOG.info("%s: %d to Basic; a session from now on", bmc.url, reply.status)
                line.without_basic = bmc
                if reply.status == 401:
                    self._governor.note_doubt(bmc.url, (bmc.username, bmc.secret))
                return None
        return reply

    async def _read(self, line: Line, bmc: BmcAddress, call: Call) -> Reply:
        """A GET; after 401 once more with a new session.

        A session that worked a moment ago cannot have expired: it may still live, and the new one
        closes it. If the new one gets 401 too, the BMC refuses the resource, and an older session
        may still live as well. One that has expired has nothing to close.
        """
        login = await self._login(line, bmc)
        if (cached := line.find_root(bmc, call, _now())) is not None:  # the login has just read it
            return cached
        reply = await self._send(line, bmc, call, login)
        if reply.status != 401 or login is None:
            return self._answered(line, bmc, reply, login)
        if login.basic:
            self._refused(line, bmc, login)
        fresh = _now() - line.used_s <= FRESH_S
        if line.login is login:
            line.login = line.login_address = None
            if fresh:
                line.leave_session(login, _now())
        renewed = await self._login(line, bmc)
        reply = await self._send(line, bmc, call, renewed)
        refused = reply.status == 401 and renewed is not None and renewed.path != login.path
        if refused and renewed is not None and not fresh:
            await close_login(self._exchange(line), bmc, renewed, login.path)
        return self._answered(line, bmc, reply, renewed)

    async def _write(self, line: Line, bmc: BmcAddress, call: Call) -> Reply:
        """Anything else: sent once, with a session that was good a moment ago.

        After 401 nothing was done. To a session just made it is the BMC's answer; any other session
        had ended, and the caller may ask again. A PATCH, which sets what it sets however often, may
        use the connection that a reading used a moment ago; whatever else is sent has its own.
        """
        before = line.login
        login = await self._login(line, bmc)
        if login is not None and not login.basic and _now() - line.used_s > FRESH_S:
            try:
                await self._read(line, bmc, Call("GET", login.path or SESSIONS))
            except Unreachable as error:
                raise Unreachable(str(error), maybe_executed=False) from None
            login = await self._login(line, bmc)
        stays_open = call.method == "PATCH" and line.is_open(_now())
        try:
            reply = await self._send(line, bmc, call, login, keep_alive=stays_open)
        except Unreachable:
            line.resets_kept |= stays_open
            raise
        if reply.status == 401 and login is not None:
            if login.basic:
                self._refused(line, bmc, login)
            if login is before:
                if line.login is login:
                    await self._drop(line)
                raise Unreachable(f"{bmc.url}: the session had ended", maybe_executed=False)
        return self._answered(line, bmc, reply, login)

    def _answered(self, line: Line, bmc: BmcAddress, reply: Reply, login: Login | None) -> Reply:
        if login is not None and reply.status != 401:
            line.used_s = _now()
        if reply.status == 401 and login is None and bmc.secret is not None:
            raise LoginRefused(f"{bmc.url}: credentials are never sent over plain http")
        return reply

    async def _send(
        self,
        line: Line,
        bmc: BmcAddress,
        call: Call,
        login: Login | None,
        *,
        keep_alive: bool = False,
    ) -> Reply:
        """One exchange. HPE answers 406 to "identity" (docs/sources/bmc-faults.md#t9): then gzip,
        inflated in bounds.

        With Basic one at a time: each refusal counts towards the account's lockout.
        """
        if login is not None and login.basic:
            async with line.basic:
                return await self._exchanged(line, bmc, call, login, keep_alive=keep_alive)
        return await self._exchanged(line, bmc, call, login, keep_alive=keep_alive)

    async def _exchanged(
        self, line: Line, bmc: BmcAddress, call: Call, login: Login | None, *, keep_alive: bool
    ) -> Reply:
        stays_open = keep_alive or call.method in SAFE
        try:
            reply = await self._http.send(bmc, call, login, line.coding, keep_alive=stays_open)
        except PortError:
            line.doubt()
            raise
        if reply.status == 406 and call.method in SAFE and line.coding == "identity":
            line.coding = "gzip"
            reply = await self._http.send(bmc, call, login, line.coding, keep_alive=stays_open)
        if stays_open:
            line.kept_s = _now()
        if call.path in ROOTS:
            line.learn(bmc, call, reply, _now())
        return reply

    def _exchange(self, line: Line) -> Exchange:
        """Return the exchange for logins: it takes no lock, since the caller already holds it.

        A session is made over the connection that just brought the root, so it is not a dead one.
        It is ended over one that is open too: to end it twice is harmless, should that be dead. But
        where one once broke, the next login has a connection for each request.
        """

        async def exchange(bmc: BmcAddress, call: Call, login: Login | None) -> Reply:
            if (cached := line.find_root(bmc, call, _now())) is not None:
                return cached
            stays_open = call.method in ("POST", "DELETE") and not line.resets_kept
            try:
                return await self._send(line, bmc, call, login, keep_alive=stays_open)
            except Unreachable:
                line.resets_kept |= stays_open
                raise

        return exchange

    # logins

    async def _login(self, line: Line, bmc: BmcAddress) -> Login | None:
        """The login for `bmc`, opened if need be, by one task for all who wait.

        The task goes on if its waiters are cancelled: it would leave a session behind otherwise.
        """
        if bmc.secret is None or not bmc.url.startswith("https://"):
            self._tell(line, bmc)
            return None
        while line.login is None or line.login_address != bmc:
            self._tell(line, bmc)
            if line.opening is None:
                line.opening_for = bmc
                line.opening = asyncio.create_task(self._open(line, bmc))
                line.opening.add_done_callback(lambda task: _finished(line, task))
            opening = line.opening
            ours = line.opening_for == bmc
            try:
                await asyncio.shield(opening)
            except PortError:
                if ours:
                    raise
        return line.login

    async def _open(self, line: Line, bmc: BmcAddress) -> Login:
        """One governed login. Every failure of it means that the caller's request never left."""
        assert bmc.secret is not None, "only those with a password log in"
        credential = (bmc.username, bmc.secret)
        self._governor.admit(bmc.url, credential)
        await self._drop(line)
        try:
            login = await open_login(self._exchange(line), bmc)
        except LoginRefused:
            self._governor.note_failure(bmc.url, credential)
            LOG.warning("%s: login of %r refused", bmc.url, bmc.username)
            raise
        except AccountLocked as error:
            self._governor.hold(bmc.url, error.retry_after_s)
            raise
        except Unreachable as error:
            if error.maybe_executed:
                self._governor.note_silence(bmc.url, credential)
            raise Unreachable(str(error), maybe_executed=False) from None
        self._governor.note_success(bmc.url, credential)
        line.login = login
        line.login_address = bmc
        line.used_s = _now()
        await self._close_orphans(line, bmc, login)
        return login

    async def _close_orphans(self, line: Line, bmc: BmcAddress, login: Login) -> None:
        for orphan in line.take_orphans(_now()):
            if orphan.path != login.path:
                await close_login(self._exchange(line), bmc, login, orphan.path)

    def _refused(self, line: Line, bmc: BmcAddress, login: Login) -> NoReturn:
        """A password that was good is refused: counted once, however many requests carried it."""
        if line.login is login:
            line.login = line.login_address = None
            self._governor.note_failure(bmc.url, (login.username, login.secret))
        raise LoginRefused(f"{bmc.url}: credentials refused")

    async def _drop(self, line: Line) -> None:
        """Log out, if logged in; to its end even if the caller is cancelled."""
        login = line.login
        address = line.login_address
        line.login = line.login_address = None
        if login is None or address is None:
            return
        logout = asyncio.create_task(self._log_out(line, address, login))
        self._logouts.add(logout)
        logout.add_done_callback(self._logouts.discard)
        await asyncio.shield(logout)

    async def _log_out(self, line: Line, bmc: BmcAddress, login: Login) -> None:
        if not await close_login(self._exchange(line), bmc, login):
            line.leave_session(login, _now())

    def _line(self, bmc: BmcAddress) -> Line:
        line = self._lines.get(bmc.url)
        if line is None:
            line = self._lines[bmc.url] = Line()
        return line

    def _tell(self, line: Line, bmc: BmcAddress) -> None:
        """Log once per BMC each protection that the settings leave out."""
        if not line.told and bmc.url.startswith("http://") and bmc.secret is not None:
            LOG.warning("%s: plain http, so no credentials are sent", bmc.url)
        elif not line.told and bmc.insecure and not bmc.pin:
            LOG.warning("%s: its certificate is not verified, as asked", bmc.url)
        line.told = True


def _finished(line: Line, task: asyncio.Task[Login]) -> None:
    line.opening = line.opening_for = None
    if not task.cancelled():
        task.exception()  # retrieved here too, since the caller may no longer be waiting


def _now() -> float:
    return asyncio.get_running_loop().time()
