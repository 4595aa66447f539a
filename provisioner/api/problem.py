"""Problems as JSON (RFC 9457): one form for every refusal, with the remedy."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web
from pydantic import Field

from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.campaigns.select_expression import ExpressionError

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


class Mistake(Record):
    """Where an expression is wrong, and the words that may stand there."""

    position: int = Field(description="Number of its first character, from 1.")
    length: int = Field(description="Characters that are wrong; 0: something is missing there.")
    expected: tuple[str, ...] = Field(description="Words that may stand there, at most 40.")


class Problem(Record):
    """The body of every refusal (RFC 9457)."""

    type: str = Field(description="`urn:provisioner:problem:` and a word of a closed list.")
    title: str
    status: int
    detail: str = ""
    unblock: str = Field(description="The remedy, as an instruction.")
    blockers: tuple[Blocker, ...] = ()
    mistake: Mistake | None = Field(None, description="The mistake of an expression.")


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


def refuse_expression(error: InputError, word: str) -> Refused:
    detail = f"{error.where}: {error.problem}"
    refused = build_refusal(400, word, "The expression cannot be read", error.remedy, detail)
    if isinstance(error, ExpressionError):
        place = Mistake(position=error.at, length=error.length, expected=error.expected)
        refused.problem = refused.problem.model_copy(update={"mistake": place})
    return refused


def refuse_blocked(blockers: Sequence[Blocker]) -> Refused:
    first = blockers[0]
    status = _STATUS.get(first.reason, 409)
    return build_refusal(
        status, first.reason.value, "It cannot be done now", first.unblock, str(first), blockers
    )


def refuse_missing(what: str) -> Refused:
    """Return 404, also for records that the caller may not see: the answers are identical."""
    return build_refusal(404, "missing", f"There is no such {what}", "Look at the list of them.")


def build_answer(refused: Refused) -> web.Response:
    headers = {"Cache-Control": "no-store", **refused.headers}
    return web.Response(
        status=refused.problem.status,
        body=refused.problem.model_dump_json().encode(),
        content_type=MEDIA,
        headers=headers,
    )
