"""Routes of the journal's past: write older rows into signed files, remove rows that files hold.

The files are in the daemon's own directory of archives: a caller names no path on its machine.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Self

from pydantic import Field, model_validator

from provisioner.api.changes import Forecast, Outcome, build_failure
from provisioner.api.operations import OperationView
from provisioner.api.parts import ApiParts, Ask, Reply
from provisioner.api.problem import build_refusal
from provisioner.api.route import OPERATORS, Effect, Route
from provisioner.model.access import ChangeKind, ChangeRequest, RequestState
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.times.instant import Instant
from provisioner.store.repositories.journal_archives import ROWS_MAX, Actor

TAG = "audit"
DIRECTORY = "archives"  # of the data directory
SUBJECT = "journal"
DAY_S = 86_400.0


class Archiving(Record):
    """The body of an archiving: the age of the rows, by one of two fields."""

    until: Instant | None = Field(default=None, description="Archive rows up to this time.")
    older_than_days: float | None = Field(
        default=None, ge=0, le=36_500, description="Archive rows older than so many days."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.until is None) == (self.older_than_days is None):
            raise ValueError("give `until` or `older_than_days`, one of them")
        return self


async def archive_journal(ask: Ask) -> Reply:
    """Ask for an archiving. A relative age counts from the request, not from its approval."""
    _require_directory(ask.parts)
    until = ask.body.until
    if until is None:
        until = ask.now - ask.body.older_than_days * DAY_S
    arguments = {"until": until}
    kind = ChangeKind.AUDIT_ARCHIVE
    return await ask.parts.works.submit_change(ask, kind, SUBJECT, "", arguments)


async def prune_journal(ask: Ask) -> Reply:
    """Ask for a prune."""
    _require_directory(ask.parts)
    return await ask.parts.works.submit_change(ask, ChangeKind.AUDIT_PRUNE, SUBJECT, "", {})


async def change_journal(parts: ApiParts, asked: ChangeRequest) -> Outcome:
    """Carry out an archiving or a prune."""
    assert parts.directory is not None
    assert parts.signer is not None
    directory = parts.directory / DIRECTORY
    actor = Actor(asked.asked_by, parts.clock.now(), version("gpu-provisioner"))
    archives = parts.store.archives
    try:
        if asked.kind is ChangeKind.AUDIT_PRUNE:
            survey = await archives.survey_removal(directory, actor.now)
            removed = await archives.prune_rows(directory, parts.signer, actor)
            return Outcome(RequestState.DONE, {"removed": removed, "kept": survey.staying})
        until = float(asked.arguments["until"])
        written = await archives.write_archives(directory, until, parts.signer, actor)
    except InputError as error:
        return build_failure(_build_blocker(error))
    files = [
        {
            "file": str(one.file),
            "first": one.statement.first,
            "last": one.statement.last,
            "head": one.statement.head,
            "sha256": one.sha256,
        }
        for one in written
    ]
    rows = sum(one.statement.last - one.statement.first + 1 for one in written)
    result = {"archived": rows, "directory": str(directory), "archives": files}
    return Outcome(RequestState.DONE, result)


async def foresee_archiving(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the rows that would be written, and into how many files."""
    assert parts.directory is not None
    directory = parts.directory / DIRECTORY
    try:
        first, last = await parts.store.archives.find_rows(
            directory, float(asked.arguments["until"])
        )
    except InputError as error:
        return Forecast(blockers=(_build_blocker(error),))
    if last < first:
        return Forecast(("No row is old enough that no archive holds yet.",))
    files = -(-(last - first + 1) // ROWS_MAX)
    line = f"Rows {first} to {last} would be written into {directory}: {files} signed files."
    return Forecast((line, "Nothing is removed from the database: `audit prune` does."))


async def foresee_prune(parts: ApiParts, asked: ChangeRequest) -> Forecast:
    """Return the number of rows that would go, and the reasons of those that stay."""
    assert parts.directory is not None
    assert asked.kind is ChangeKind.AUDIT_PRUNE
    directory = parts.directory / DIRECTORY
    try:
        survey = await parts.store.archives.survey_removal(directory, parts.clock.now())
    except InputError as error:
        return Forecast(blockers=(_build_blocker(error),))
    lines = (
        f"{survey.going} rows are removed; {survey.archives} archives in {directory} hold them.",
        f"{survey.staying} rows stay, since live decisions need them.",
        *(f"  {count}: {why}" for why, count in sorted(survey.reasons.items())),
    )
    return Forecast(lines)


def _require_directory(parts: ApiParts) -> None:
    """Raise Refused in a process that has no data directory, or no signing key."""
    if parts.directory is None or parts.signer is None:
        detail = "This process has no data directory with a signing key"
        raise build_refusal(409, "vault", detail, "Ask the daemon of the site.")


def _build_blocker(error: InputError) -> Blocker:
    return Blocker(
        reason=Reason.PRECONDITION,
        subject=error.source,
        detail=error.problem,
        unblock=error.remedy,
    )


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "POST",
        "/audit/archives",
        "archive_journal",
        TAG,
        "Write older rows into signed files that continue each other; nothing is removed.",
        OPERATORS,
        archive_journal,
        _ASKED,
        effect=Effect.LASTING,
        body=Archiving,
        refusals={409: "An archive is not intact, or the process has no signing key."},
        example={"older_than_days": 90},
        site=True,
    ),
    Route(
        "POST",
        "/audit/prune",
        "prune_journal",
        TAG,
        "Remove rows that verified archives hold; rows that live decisions need stay.",
        OPERATORS,
        prune_journal,
        _ASKED,
        effect=Effect.LASTING,
        refusals={409: "The journal or an archive is not intact, or a restore is not settled."},
        site=True,
    ),
)
