"""Problems as JSON (RFC 9457): one shape for every no."""

from __future__ import annotations

import json
from collections.abc import Sequence

from aiohttp import web

from provisioner.model.outcome import Blocker, Reason

# everything else is the request's own conflict with what is so
_STATUS = {
    Reason.NOT_EXPECTED: 404,
    Reason.DUPLICATE: 409,
    Reason.QUOTA: 403,
    Reason.UNREACHABLE: 503,
    Reason.LOGIN_REFUSED: 503,
    Reason.ACCOUNT_LOCKED: 503,
    Reason.CERTIFICATE_CHANGED: 503,
}


def problem(
    status: int, title: str, detail: str = "", blockers: Sequence[Blocker] = ()
) -> web.Response:
    """An answer of type application/problem+json; `blockers` are named with their remedies."""
    document: dict[str, object] = {"type": "about:blank", "title": title, "status": status}
    if detail:
        document["detail"] = detail
    if blockers:
        document["blockers"] = [b.model_dump(mode="json") for b in blockers]
    return web.Response(
        status=status,
        body=json.dumps(document).encode(),
        content_type="application/problem+json",
        headers={"Cache-Control": "no-store"},
    )


def blocked(blockers: Sequence[Blocker]) -> web.Response:
    """The answer to a request that something stands in the way of."""
    status = _STATUS.get(blockers[0].reason, 409)
    return problem(status, "It cannot be done now", str(blockers[0]), blockers)
