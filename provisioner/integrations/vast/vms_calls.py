"""Requests to one VMS: login, lists, asynchronous tasks, bounded in tries, time and bytes.

Source: the OpenAPI 3 document of VMS ("VAST API Swagger Schema" 1.0, 531 paths), which
github.com/vast-data/go-vast-client carries as openapi_schema/api.tar.gz (commit 3ce13e96, Apache
2.0), and for what the document does not say (prefix, headers, envelopes of pages) that client's
core/http_utils.go, core/auth.go, core/iterator.go and core/async_result.go.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from provisioner.adapters.bounded_http import (
    FAILURES,
    Attempt,
    BoundedSession,
    Trust,
    first_of_each,
    open_session,
    own_url,
    port_error,
    time_limit,
)
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import Busy, Clock, LoginRefused, Malformed, PortError, Reply, Secret
from provisioner.ports.errors import Unreachable
from provisioner.ports.wire import status_words
from provisioner.settings.fabric import StorageSystem

REQUEST_S = 60.0
BUSY = (429, 503)
TRIES_MAX = 4  # of one request that a busy VMS did not take
WAIT_MAX_S = 30.0  # as long as one Retry-After may hold a handover
PAGE_SIZE = 200
PAGES_MAX = 100
BODY_MAX_BYTES = 16 * 1024 * 1024  # a page of policies, each with some thousand addresses
TASK_POLLS_MAX = 1000
_LOGIN = "/token/"


class Refused(PortError):
    """VMS answered, and did not do it. `blocker` says why, in its own words."""

    reason = Reason.REFUSED

    def __init__(self, what: str, reply: Reply) -> None:
        words = "".join(c if c.isprintable() else " " for c in status_words(reply))[:300]
        super().__init__(f"VMS refused: {what}: {words}")
        self.status = reply.status
        self.words = words


class VmsWire(Protocol):
    """One request to a VMS; `path` is relative to its API."""

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None, authorization: str
    ) -> Reply: ...

    async def close(self) -> None: ...


class VmsHttp:
    """The wire to one VMS: one request over HTTPS, sent once. Raises `PortError` only."""

    def __init__(self, system: StorageSystem, ca_file: Path | None = None) -> None:
        self._base = system.address.rstrip("/")
        self._pin = system.pin.lower()
        self._prefix = f"/api/{system.options.get('api_version', 'v5')}"
        self._trust = Trust(ca_file)
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None, authorization: str
    ) -> Reply:
        attempt = Attempt(method == "GET" or path == _LOGIN)
        where = f"{method} {self._base}{path.partition('?')[0]}"[:200]
        try:
            if URL(self._base).scheme != "https":
                raise LoginRefused(f"{self._base}: credentials never go over plain http")
            url = own_url(self._base, f"{self._prefix}{path}", encoded=True)
            headers = {"Accept": "application/json", "Content-Type": "application/json"}
            if authorization:
                headers["Authorization"] = authorization
            options: dict[str, Any] = {"headers": headers, "timeout": time_limit(REQUEST_S)}
            if body is not None:
                options["data"] = json.dumps(body).encode()
            if self._session is None:
                self._session = open_session(per_host=4, keep_alive=False)
            tls = self._trust.option(self._base, self._pin, insecure=False)
            bounded = BoundedSession(self._session, tls, attempt, BODY_MAX_BYTES)
            async with bounded.request(method, url, **options) as answer:
                text = await answer.read()
        except (PortError, *FAILURES) as error:
            raise port_error(where, error, attempt) from None
        return Reply(answer.status, first_of_each(answer.headers.items()), text)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
        self._session = None


class VmsCalls:
    """One VMS. To be used in one event loop, and closed there. Raises `PortError` only."""

    def __init__(
        self,
        wire: VmsWire,
        username: str,
        secret: Secret,
        clock: Clock,
        *,
        task_limit_s: float,
        poll_s: float,
    ) -> None:
        """Without a username the secret is an API token."""
        self._wire = wire
        self._username = username
        self._secret = secret
        self._clock = clock
        self._limit_s = task_limit_s
        self._poll_s = poll_s
        self._access = ""  # the short-lived token of a login by name
        self._logging_in = asyncio.Lock()

    async def list_all(self, noun: str, **filters: object) -> Sequence[Mapping[str, Any]]:
        """Return every object of a list. Raises Malformed for one that is not whole.

        VMS answers with an array, or with pages that count all objects. An array does not say that
        it is whole: the next page is asked for, until it brings nothing new. A count that changes
        from page to page means that objects moved between them, and one may have been passed over.
        """
        found: dict[int, Mapping[str, Any]] = {}
        totals: set[int | None] = set()
        for page in range(1, PAGES_MAX + 1):
            query = urlencode({**filters, "page": page, "page_size": PAGE_SIZE})
            try:
                answer = await self.get(f"/{noun}/?{query}")
            except Refused as refused:
                if refused.status == 404 and totals == {None}:
                    return list(found.values())  # an array's page after its last
                raise
            rows, total, more = _read_page(noun, answer)
            totals.add(total)
            if len(totals) > 1:
                raise Malformed(f"{noun}: the list changed while it was read")
            numbers = [_read_number(noun, row) for row in rows]
            if total is None and (not rows or set(numbers) <= set(found)):
                return list(found.values())  # the end, or a VMS that knows no pages
            if len(set(numbers)) < len(rows) or set(numbers) & set(found):
                raise Malformed(f"{noun}: an object is in the list twice")
            found.update(zip(numbers, rows, strict=True))
            if total is not None and len(found) > total:
                raise Malformed(f"{noun}: {len(found)} objects of {total}")
            if total is not None and not more:
                if len(found) != total:
                    raise Malformed(f"{noun}: the list ends after {len(found)} of {total} objects")
                return list(found.values())
            if not rows:
                break
        raise Malformed(f"{noun}: the list does not end")

    async def get(self, path: str) -> Any:
        return (await self._exchange("GET", path, None)).json()

    async def change(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send one change, and follow the task that it starts to a positive end.

        Return the object of the answer; None for an answer without a body.
        """
        reply = await self._exchange(method, path, body)
        if not reply.body.strip():
            return None
        answer = reply.json()
        task = _find_task(answer)
        if task is not None:
            await self._follow(f"{method} {path}", task)
            return None
        return answer

    async def close(self) -> None:
        await self._wire.close()
        self._access = ""

    async def _follow(self, what: str, task: int) -> None:
        until = self._clock.now() + self._limit_s
        for _ in range(TASK_POLLS_MAX):
            seen = await self.get(f"/vtasks/{task}/")
            state = seen.get("state") if isinstance(seen, Mapping) else None
            if not isinstance(state, str):
                raise Malformed(f"task {task} of {what} has no state")
            match state.upper():
                case "COMPLETED":
                    return
                case "RUNNING" | "UNKNOWN":  # unknown is no end
                    pass
                case _:
                    told = json.dumps(seen.get("messages"))[:200]
                    raise Refused(f"{what}: task {task} ended as {state[:40]}", _said(told))
            if self._clock.now() >= until:
                break
            await self._clock.sleep(self._poll_s)
        detail = f"task {task} of {what} has not ended within {self._limit_s:.0f} s"
        raise Unreachable(detail, maybe_executed=True)

    async def _exchange(self, method: str, path: str, body: Mapping[str, Any] | None) -> Reply:
        """Send one request; again while VMS is busy, and once after a login that has run out."""
        renewed = False
        for attempt in range(TRIES_MAX):
            reply = await self._wire.send(method, path, body, await self._authorize())
            if reply.status == 401 and self._username and not renewed:
                renewed = True
                self._access = ""
                continue
            if reply.status in (401, 403):
                raise LoginRefused(f"{method} {path.partition('?')[0]}: status {reply.status}")
            if reply.status not in BUSY:
                return _judge(f"{method} {path.partition('?')[0]}", reply)
            if attempt + 1 < TRIES_MAX:
                await self._clock.sleep(_wait_of(reply, self._poll_s))
        raise Busy(f"{method} {path.partition('?')[0]}: VMS is busy")

    async def _authorize(self) -> str:
        if not self._username:
            return f"Api-Token {self._secret.reveal()}"
        async with self._logging_in:
            if not self._access:
                login = {"username": self._username, "password": self._secret.reveal()}
                reply = await self._wire.send("POST", _LOGIN, login, "")
                if reply.status in (400, 401, 403):
                    raise LoginRefused(f"POST {_LOGIN}: status {reply.status}")
                if reply.status in BUSY:
                    raise Busy(f"POST {_LOGIN}: VMS is busy")
                answer = _judge(f"POST {_LOGIN}", reply).json()
                access = answer.get("access") if isinstance(answer, Mapping) else None
                if not isinstance(access, str) or not _is_token(access):
                    raise Malformed(f"POST {_LOGIN}: no access token")
                self._access = access
            return f"Bearer {self._access}"


def _judge(what: str, reply: Reply) -> Reply:
    """Return a reply that says yes. Raises `Refused`, or `Unreachable` for a failure of VMS."""
    if reply.status in (200, 201, 202, 204):
        return reply
    if reply.status >= 500 or reply.status == 408:
        words = Refused(what, reply).words
        raise Unreachable(f"{what}: {words}", maybe_executed=not what.startswith("GET"))
    raise Refused(what, reply)


def _said(text: str) -> Reply:
    return Reply(200, {}, text.encode())


def _is_token(text: str) -> bool:
    return 0 < len(text) <= 8192 and text.isascii() and text.isprintable() and " " not in text


def _wait_of(reply: Reply, usual_s: float) -> float:
    told = reply.headers.get("retry-after", "")
    return min(float(told), WAIT_MAX_S) if told.isdigit() and len(told) < 6 else usual_s


def _find_task(answer: Any) -> int | None:
    """Return the number of the asynchronous task that an answer tells of, in either form."""
    if not isinstance(answer, Mapping):
        return None
    url = answer.get("url")
    own = isinstance(url, str) and "/vtasks/" in url
    task = answer if own else answer.get("async_task")
    if task is None:
        return None
    number = task.get("id") if isinstance(task, Mapping) else None
    if not isinstance(number, int) or isinstance(number, bool):
        raise Malformed("an asynchronous task without its id: its end cannot be awaited")
    return number


def _read_number(noun: str, row: Mapping[str, Any]) -> int:
    number = row.get("id")
    if not isinstance(number, int) or isinstance(number, bool):
        raise Malformed(f"{noun}: an object without its own id in the list")
    return number


def _read_page(noun: str, answer: Any) -> tuple[Sequence[Mapping[str, Any]], int | None, bool]:
    """Return (objects, number of all, whether more pages follow) of one page of a list."""
    total: int | None = None
    more = False
    rows = answer
    if isinstance(answer, Mapping):
        rows = answer.get("results")
        count = answer.get("count")
        if not isinstance(count, int) or isinstance(count, bool):
            raise Malformed(f"{noun}: a page without the count of all objects")
        total = count
        more = answer.get("next") is not None
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise Malformed(f"{noun}: this is no list of objects")
    return rows, total, more


def explain(problem: Refused, subject: str, unblock: str) -> Blocker:
    """Return the refusal as a blocker."""
    return Blocker(reason=problem.reason, subject=subject, detail=str(problem), unblock=unblock)
