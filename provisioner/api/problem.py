"""Problems as JSON (RFC 9457): one form for every refusal, with the remedy."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web
from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.outcome import Blocker, Reason

MEDIA = "application/problem+json"
# every other reason is a conflict of the request with the present state
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
    """The body of every refusal (RFC 9457)."""

    type: str = Field(description="`urn:provisioner:problem:` and a word of a closed list.")
    title: str
    status: int
    detail: str = ""
    unblock: str = Field(description="The remedy, as an instruction.")
    blockers: tuple[Blocker, ...] = ()


class Refused(Exception):
    """A handler's refusal, from which the application makes the answer."""

    def __init__(self, problem: Problem, headers: dict[str, str] | None = None) -> None:
        super().__init__(problem.title)
        self.problem = problem
        self.headers = headers or {}


def build_refusal(
    status: int,
    word: str,
    title: str,
    unblock: str,
    detail: str = "",
    blockers: Sequence[Blocker] = (),
) -> Refused:
    """Return a refusal with its remedy; `word` distinguishes it from others of the same status."""
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


def refuse_blocked(blockers: Sequence[Blocker]) -> Refused:
    """Return the refusal of a request with blockers."""
    first = blockers[0]
    status = _STATUS.get(first.reason, 409)
    return build_refusal(
        status, first.reason.value, "It cannot be done now", first.unblock, str(first), blockers
    )


def refuse_missing(what: str) -> Refused:
    """Return 404, also for records that the caller may not see: the answers are identical."""
    return build_refusal(404, "missing", f"There is no such {what}", "Look at the list of them.")


def build_answer(refused: Refused) -> web.Response:
    """Return the refusal as an answer."""
    headers = {"Cache-Control": "no-store", **refused.headers}
    return web.Response(
        status=refused.problem.status,
        body=refused.problem.model_dump_json().encode(),
        content_type=MEDIA,
        headers=headers,
    )
