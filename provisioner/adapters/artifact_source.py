"""Firmware files of an outside HTTP(S) server: nginx, or a bucket of an object store.

Rule: one origin. A redirect is never followed (devices follow them each in its own way), nothing
is asked for with a login, and a body in a coding that was not asked for is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import aiohttp
from yarl import URL

from provisioner.adapters.bounded_http import (
    CONNECT_MAX_S,
    FAILURES,
    Attempt,
    Trust,
    open_session,
    port_error,
    time_limit,
)
from provisioner.model.agent import Validators
from provisioner.model.outcome import Reason
from provisioner.planning.watch.outside_files import is_settled
from provisioner.ports import PortError, TooLarge, Unreachable

PIECE_BYTES = 1024 * 1024
SILENCE_MAX_S = 60.0  # between two pieces; a server that reads from tape has no place here
WHOLE_MAX_S = 4 * 3600.0  # 16 GB at 10 Mbit/s, with room
CONNECTIONS_MAX = 8  # to the one server: few files are read, and each by one of us
HEADER_MAX = 200  # characters of a validator; a longer one is ignored

# the meaning of a status that is neither the file nor its absence
STATUS = {401: Reason.NOT_OFFERED, 403: Reason.NOT_OFFERED, 405: Reason.NOT_OFFERED}
ABSENT = frozenset({404, 410})


class NotGiven(PortError):
    """The server answered without the file."""

    def __init__(self, detail: str, reason: Reason) -> None:
        super().__init__(detail)
        self.reason = reason


class HttpArtifactServer:
    """`ports.ArtifactServer` over HTTP. To be made inside the event loop.

    `url` was checked (`cli.checked_options.checked_artifact_url`): no login, no query.
    """

    def __init__(self, url: str, ca_file: Path | None = None) -> None:
        self.url = url.rstrip("/")
        self._trust = Trust(ca_file)
        self._session = open_session(per_host=CONNECTIONS_MAX, keep_alive=True)

    def address(self, name: str, *, doubled: bool = False) -> str:
        """Return the file's address, with each character of its name escaped as needed."""
        address = f"{self.url}/{quote(name, safe='')}"
        if not doubled:
            return address
        parts = urlsplit(address)
        return f"{parts.scheme}://{parts.netloc}/{parts.path}"

    async def head(
        self, name: str, timeout_s: float, *, doubled: bool = False
    ) -> Validators | None:
        """Return the validators of the file as it is offered now. Raises PortError."""
        address = self.address(name, doubled=doubled)
        answer = await self._asked("HEAD", address, time_limit(timeout_s))
        try:
            return self._judged(address, answer)
        finally:
            answer.release()

    async def get(
        self, name: str, size_max_bytes: int, take: Callable[[bytes], Awaitable[None]]
    ) -> Validators | None:
        """Read the whole file. Raises PortError, and the errors of `take`."""
        limit = aiohttp.ClientTimeout(
            total=WHOLE_MAX_S, sock_connect=CONNECT_MAX_S, sock_read=SILENCE_MAX_S
        )
        address = self.address(name)
        answer = await self._asked("GET", address, limit)
        try:
            validators = self._judged(address, answer)
            if validators is None:
                return None
            if (validators.length or 0) > size_max_bytes:
                raise TooLarge(f"{address} announces {validators.length} bytes")
            size = 0
            while piece := await self._piece(address, answer):
                size += len(piece)
                if size > size_max_bytes:
                    raise TooLarge(f"{address} has over {size_max_bytes} bytes")
                await take(piece)
            if validators.length not in (None, size):
                short = f"{address}: {size} of {validators.length} bytes came"
                raise Unreachable(short, maybe_executed=False)
            return validators
        finally:
            answer.close()  # at its end, or in its middle: then the connection goes with it

    async def close(self) -> None:
        await self._session.close()

    async def _asked(
        self, method: str, address: str, limit: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        with _told(address):
            return await self._session.request(
                method,
                URL(address, encoded=True),
                ssl=self._trust.option(self.url, "", insecure=False),
                allow_redirects=False,
                # a cache between us must not answer for the server: devices may not pass it
                headers={"Accept-Encoding": "identity", "Cache-Control": "no-cache"},
                timeout=limit,
                read_bufsize=PIECE_BYTES,
            )

    async def _piece(self, address: str, answer: aiohttp.ClientResponse) -> bytes:
        with _told(address):
            return await answer.content.read(PIECE_BYTES)

    def _judged(self, address: str, answer: aiohttp.ClientResponse) -> Validators | None:
        if answer.status in ABSENT:
            return None
        if answer.status != 200:
            raise _refused(address, answer.status)
        coding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            detail = f"{address} comes as {coding[:20]!r}, which devices do not undo"
            raise NotGiven(detail, Reason.NOT_OFFERED)
        return validators_of(answer.headers)


def _refused(address: str, status: int) -> NotGiven:
    if 300 <= status < 400:
        detail = f"{address} answers {status}: redirects are not followed"
        return NotGiven(detail, Reason.NOT_OFFERED)
    more = " (S3 says so of a file that is not there, too)" if status == 403 else ""
    return NotGiven(f"{address} answers {status}{more}", STATUS.get(status, Reason.BUSY))


@contextmanager
def _told(address: str) -> Iterator[None]:
    """Return the PortError for a failure of HTTP. A body that breaks off counts as absence."""
    try:
        yield
    except (aiohttp.ClientPayloadError, asyncio.IncompleteReadError) as error:
        detail = f"{address}: broke off in the middle ({type(error).__name__})"
        raise Unreachable(detail, maybe_executed=False) from None
    except FAILURES as error:
        raise port_error(address, error, Attempt(safe=True)) from None


def validators_of(headers: Mapping[str, str]) -> Validators:
    """Return the validators of an answer's headers, without malformed ones."""
    etag = _short(headers.get("ETag", ""))
    modified = _short(headers.get("Last-Modified", ""))
    length = headers.get("Content-Length", "")
    return Validators(
        etag=etag,
        modified=modified,
        length=int(length) if length.isascii() and length.isdigit() and len(length) < 19 else None,
        settled=is_settled(etag, modified, headers.get("Date", "")),
    )


def _short(value: str) -> str:
    return value if value.isprintable() and len(value) <= HEADER_MAX else ""
