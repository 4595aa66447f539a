"""One HTTP exchange with a service desk: bounded, verified, without redirects, never twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from provisioner.adapters.bounded_http import (
    FAILURES,
    Attempt,
    BoundedSession,
    Trust,
    open_session,
    port_error,
    time_limit,
)
from provisioner.ports import LoginRefused, PortError, Unreachable
from provisioner.runtime import permit

REQUEST_S = 30.0
ANSWER_MAX = 64 * 1024  # an id and a URL
CANNOT_LOOK = (405, 501)


class DeskExchange:
    """Connections to one service desk. To be used in one event loop, and closed there."""

    def __init__(self, ca_file: Path | None = None, pin: str = "") -> None:
        self._pin = pin
        self._trust = Trust(ca_file)
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self, method: str, url: URL, headers: Mapping[str, str], content: bytes = b""
    ) -> tuple[int, bytes]:
        """Return the status and the body. Raises `PortError`, also for 401, 403, 429 and 5xx.

        The error names the origin of the URL only: paths and queries may hold secrets.
        """
        attempt = Attempt(method == "GET")
        where = f"{method} {url.origin()}"[:200]
        if self._session is None:
            self._session = open_session(per_host=2, keep_alive=False)
        options: dict[str, Any] = {"headers": dict(headers), "timeout": time_limit(REQUEST_S)}
        if content:
            options["data"] = content
        tls = self._trust.option(str(url), self._pin, insecure=False)
        try:
            bounded = BoundedSession(self._session, tls, attempt, ANSWER_MAX)
            with permit.name_act(_touches_no_device):
                async with bounded.request(method, url, **options) as answer:
                    body = await answer.read()
        except (PortError, *FAILURES) as error:
            raise port_error(where, error, attempt) from None
        if answer.status in (401, 403):
            raise LoginRefused(f"{where}: status {answer.status}")
        busy = answer.status == 429
        if busy or (answer.status >= 500 and answer.status not in CANNOT_LOOK):
            maybe = method != "GET" and not busy
            raise Unreachable(f"{where}: status {answer.status}", maybe_executed=maybe)
        return answer.status, body

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
        self._session = None


def _touches_no_device() -> str:
    """Return "": a message to people needs no capability over a node."""
    return ""
