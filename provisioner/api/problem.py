"""Problems as JSON (RFC 9457): one shape for every no, and what would turn it into a yes."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web
from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.outcome import Blocker, Reason

MEDIA = "application/problem+json"
# everything else is the request's own conflict with what is so
_STATUS = {
    Reason.NOT_EXPECTED: 404,
    Reason.QUOTA: 403,
    Reason.UNREACHABLE: 503,
    Reason.LOGIN_REFUSED: 503,
    Reason.ACCOUNT_LOCKED: 503,
    Reason.CERTIFICATE_CHANGED: 503,
    Reason.CERTIFICATE_UNTRUSTED: 503,
    Reason.HOST_KEY_UNKNOWN: 503,
}


class Problem(Record):
    """The body of every answer that is a no (RFC 9457)."""

    type: str = Field(description="`urn:provisioner:problem:` and a word of a closed list.")
    title: str
    status: int
    detail: str = ""
    unblock: str = Field(description="What would turn the no into a yes, as an instruction.")
    blockers: tuple[Blocker, ...] = ()


class Refused(Exception):
    """A handler's no; the application makes the answer of it."""

    def __init__(self, problem: Problem, headers: dict[str, str] | None = None) -> None:
        super().__init__(problem.title)
        self.problem = problem
        self.headers = headers or {}


def no(
    status: int,
    word: str,
    title: str,
    unblock: str,
    detail: str = "",
    blockers: Sequence[Blocker] = (),
) -> Refused:
    """A refusal with its remedy; `word` tells it from others of the same status."""
    return Refused(
        Problem(
            type=f"urn:provisioner:problem:{word}",
            title=title,
            status=status,
            detail=detail[:1000],
            unblock=unblock[:1000],
            blockers=tuple(blockers),
        )
    )


def blocked(blockers: Sequence[Blocker]) -> Refused:
    """The answer to a request that something stands in the way of."""
    first = blockers[0]
    status = _STATUS.get(first.reason, 409)
    return no(
        status, first.reason.value, "It cannot be done now", first.unblock, str(first), blockers
    )


def missing(what: str) -> Refused:
    """404, also for what the caller may not see: the answers cannot be told apart."""
    return no(404, "missing", f"There is no such {what}", "Look at the list of them.")


def answered(refused: Refused) -> web.Response:
    """The refusal as an answer."""
    headers = {"Cache-Control": "no-store", **refused.headers}
    return web.Response(
        status=refused.problem.status,
        body=refused.problem.model_dump_json().encode(),
        content_type=MEDIA,
        headers=headers,
    )
