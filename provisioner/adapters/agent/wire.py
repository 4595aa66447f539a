"""Requests to agents over HTTPS: only the certificate that the agent itself sent is accepted.

The token has to be in the query (api/app.py of ironic-python-agent: `request.args`). So no URL of
a request is ever logged or quoted here, and the token is taken out of every error.
"""

from __future__ import annotations

import json
import ssl
from hashlib import sha256
from typing import Any

import aiohttp

from provisioner.adapters.agent.answers import ANSWER_MAX
from provisioner.adapters.bounded_http import (
    FAILURES,
    Attempt,
    BoundedSession,
    first_of_each,
    open_session,
    port_error,
    time_limit,
)
from provisioner.ports import AgentAddress, CertificateChanged, PortError, Reply

PINS_MAX = 4096  # agents whose pin is remembered, for their connections to be used again


class HttpsWire:
    """`AgentWire` over HTTPS. To be made inside the event loop."""

    def __init__(self) -> None:
        self._session = open_session(per_host=2, keep_alive=True)
        self._pins: dict[str, aiohttp.Fingerprint] = {}  # by certificate

    async def request(
        self, agent: AgentAddress, method: str, path: str, body: Any, timeout_s: float
    ) -> Reply:
        token = agent.token.reveal()
        attempt = Attempt(safe=method == "GET")
        pinned = self._pin(agent)
        session = BoundedSession(self._session, pinned, attempt, ANSWER_MAX)
        try:
            async with session.request(
                method,
                agent.url + path,
                params={"agent_token": token},
                data=None if body is None else json.dumps(body).encode(),
                headers={"Content-Type": "application/json", "Accept": "application/json"},
                timeout=time_limit(timeout_s),
            ) as response:
                content = await response.read()
                headers = first_of_each(response.headers.items())
                return Reply(response.status, headers, content)
        except (*FAILURES, PortError) as error:
            raise _without(port_error(agent.node, error, attempt), token) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    def _pin(self, agent: AgentAddress) -> aiohttp.Fingerprint:
        """Return the check of the pin before the first byte leaves; names are not compared."""
        if agent.certificate not in self._pins:
            try:
                der = ssl.PEM_cert_to_DER_cert(agent.certificate.strip())
            except ValueError:
                raise CertificateChanged(f"{agent.node}: its certificate is none") from None
            while len(self._pins) >= PINS_MAX:
                self._pins.pop(next(iter(self._pins)))
            self._pins[agent.certificate] = aiohttp.Fingerprint(sha256(der).digest())
        return self._pins[agent.certificate]


def _without(error: PortError, token: str) -> PortError:
    """Return the same error with the token taken out of its text."""
    error.args = tuple(
        a.replace(token, "***") if isinstance(a, str) and token else a for a in error.args
    )
    return error
