"""A client of our own REST API: one request or one stream at a time, over verified TLS.

A change carries an idempotency key, so that one whose answer was lost is asked for again with the
same key and is still done once.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
from yarl import URL

from provisioner.adapters.bounded_http import FAILURES, Trust, error_words, own_url
from provisioner.adapters.redfish.sse import Frame, SseReader
from provisioner.model.input_error import InputError
from provisioner.ports import Malformed, PortError, Secret, TooLarge, Unreachable

TRIES = 3  # of one request, where the answer was lost
WAIT_S = 1.0  # before the second; doubles
LIMIT_S = 120.0
SIZE_MAX_BYTES = 256 * 1024 * 1024  # a case's archive may be large; everything else is small
STEADY = frozenset({502, 503, 504})  # a balancer's or a full daemon's: it may pass


@dataclass(frozen=True)
class Answer:
    """One answer. `document` is its JSON; None where it is none, and then `content` counts."""

    status: int
    document: Any
    content: bytes
    location: str = ""
    etag: str = ""

    @property
    def good(self) -> bool:
        """Whether it is what was asked for."""
        return self.status < 400


class ApiClient:
    """Of the daemon at `server`, as the holder of `token`. An asynchronous context."""

    def __init__(self, server: str, token: Secret, ca_file: Path | None = None) -> None:
        url = URL(server)
        if url.scheme != "https" or not url.host:
            remedy = "Write https://HOST:PORT; a token is never sent in clear."
            raise InputError("--server", server, "not an https address", remedy)
        self._base, self._token = url.origin(), token
        self._tls = Trust(ca_file).option(str(self._base), "", insecure=False)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ApiClient:
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._token.reveal()}"},
            timeout=aiohttp.ClientTimeout(total=LIMIT_S),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def ask(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One request, up to TRIES times. Raises PortError if nobody answers."""
        named = dict(headers or {})
        if verb != "GET":
            named.setdefault("Idempotency-Key", str(uuid.uuid4()))
        wait_s = WAIT_S
        for attempt in range(1, TRIES + 1):
            try:
                found = await self._once(verb, path, query, body, named)
                if found.status not in STEADY or attempt == TRIES:
                    return found
            except Unreachable:
                if attempt == TRIES:
                    raise
            await asyncio.sleep(wait_s)
            wait_s *= 2
        raise AssertionError("the last try returns or raises")

    async def _once(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        headers: Mapping[str, str],
    ) -> Answer:
        try:
            async with self._sent(verb, path, query, body, headers) as answer:
                content = await answer.content.read(SIZE_MAX_BYTES + 1)
                while not answer.content.at_eof() and len(content) <= SIZE_MAX_BYTES:
                    content += await answer.content.read(SIZE_MAX_BYTES)
        except FAILURES as error:
            raise _unreachable(self._base, error) from None
        if len(content) > SIZE_MAX_BYTES:
            raise TooLarge(f"{path}: over {SIZE_MAX_BYTES} bytes")
        return Answer(
            answer.status,
            _document(answer.content_type, content),
            content,
            answer.headers.get("Location", ""),
            answer.headers.get("ETag", ""),
        )

    async def stream(self, path: str, query: Mapping[str, str]) -> AsyncIterator[Frame]:
        """Events as they come, from where it broke off after a break. Raises PortError."""
        reader, given = SseReader(), dict(query)
        for _ in range(TRIES):
            try:
                async with self._sent("GET", path, given, None, {}, endless=True) as answer:
                    if answer.status != 200:
                        raise PortError(f"{path}: status {answer.status}")
                    async for piece in answer.content.iter_any():
                        for frame in reader.feed(piece):
                            yield frame
            except FAILURES as error:
                broken = _unreachable(self._base, error)
            else:
                broken = Unreachable("the stream ended", maybe_executed=False)
            if reader.last_id:
                given["after"] = reader.last_id
            await asyncio.sleep(WAIT_S)
        raise broken

    def _sent(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        headers: Mapping[str, str],
        *,
        endless: bool = False,
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        assert self._session is not None, "it is used as a context"
        more: dict[str, Any] = {} if body is None else {"json": body}
        if endless:
            more["timeout"] = aiohttp.ClientTimeout(total=None, sock_connect=LIMIT_S)
        return self._session.request(
            verb,
            own_url(str(self._base), path, encoded=True).update_query(query or {}),
            headers=dict(headers),
            ssl=self._tls,
            allow_redirects=False,  # the token goes to no other place
            **more,
        )


def _document(content_type: str, content: bytes) -> Any:
    if not content_type.endswith("json"):
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise Malformed("the answer is no JSON, though it says so") from None


def _unreachable(base: URL, error: BaseException) -> Unreachable:
    return Unreachable(f"{base}: {error_words(error)}", maybe_executed=True)
