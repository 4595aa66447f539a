"""The application: who may ask, how much, and which routes there are.

Rule: nothing is answered without the bearer token (RFC 6750), and the token itself is kept
nowhere, only its SHA-256. It is served on the loopback address: TLS is a proxy's.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from provisioner.api import tenants
from provisioner.api.problem import problem
from provisioner.control.tenant_keeper import TenantKeeper
from provisioner.ports import Store

BODY_MAX = 256 * 1024  # bytes; 64 sessions of 512 prefixes are some 500 KB: nobody needs both
log = logging.getLogger(__name__)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(keeper: TenantKeeper, store: Store, token_digest: str) -> web.Application:
    """The API. `token_digest`: SHA-256 of the token, hex; with "" nobody is let in."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not _admitted(request.headers.get("Authorization", ""), token_digest):
            answer = problem(401, "A bearer token is needed")
            answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        try:
            return await handler(request)
        except web.HTTPException as error:
            return problem(error.status, error.reason)
        except Exception:
            log.exception("our bug, at %s %s", request.method, request.path)
            return problem(500, "Our bug; it is in the log")

    app = web.Application(middlewares=[guard], client_max_size=BODY_MAX)
    tenants.add_routes(app, keeper, store)
    return app


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def _admitted(header: str, token_digest: str) -> bool:
    scheme, _, token = header.partition(" ")
    good = hmac.compare_digest(digest_of(token.strip()), token_digest)
    return scheme.lower() == "bearer" and bool(token_digest) and good
