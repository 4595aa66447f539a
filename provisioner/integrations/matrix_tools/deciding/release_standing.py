"""The age of a release, its notices, and the moves to it that nobody published. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from provisioner.model.base import Record
from provisioner.model.matrix import Matrix
from provisioner.planning.matrix.standing import list_pin_notices
from provisioner.planning.path.distances import Ways, normalize_version


class ReleaseStanding(Record):
    release: str
    dated: str  # the day or month of its publication, or of the document that first names it
    is_exact: bool  # its publisher dates it
    age_days: int | None  # None: no document dates it
    superseded_by: tuple[str, ...]
    support: str
    is_over: bool  # its support has ended
    issues: tuple[str, ...]
    blocking: tuple[str, ...]  # issues that block it and that nobody has accepted


def describe_release(matrix: Matrix, name: str, today: date) -> ReleaseStanding:
    """Return the age of a release, what supersedes it, its support and its known issues."""
    release = matrix.releases[name]
    dated = release.published or release.seen
    day = _first_day(dated)
    ends = release.support.ends
    says = release.support.says or ("" if ends else "not published")
    return ReleaseStanding(
        release=name,
        dated=dated,
        is_exact=bool(release.published),
        age_days=None if day is None else max((today - day).days, 0),
        superseded_by=tuple(
            n for n, r in matrix.releases.items() if name in (r.supersedes, r.follows)
        ),
        support=", ".join(text for text in (f"until {ends}" if ends else "", says) if text),
        is_over=bool(ends) and today.isoformat()[: len(ends)] > ends,
        issues=tuple(f"{number}: {issue.says}" for number, issue in release.issues.items()),
        blocking=tuple(
            number
            for number, issue in release.issues.items()
            if issue.blocks and not issue.accepted
        ),
    )


def _first_day(text: str) -> date | None:
    """Return the first day of a month, or the day itself; None for a day that no calendar has."""
    try:
        return date.fromisoformat(text if len(text) == 10 else f"{text}-01") if text else None
    except ValueError:
        return None


def list_release_notices(matrix: Matrix, name: str) -> dict[str, list[str]]:
    """Return the notices that concern the pins of a release, with the component kinds of each."""
    found: dict[str, list[str]] = {}
    for profile in matrix.releases[name].profiles.values():
        for kind, pin in profile.pins.items():
            for notice in list_pin_notices(matrix, kind, pin):
                kinds = found.setdefault(notice, [])
                kinds += [kind] if kind not in kinds else []
    return found


def describe_notice(matrix: Matrix, name: str) -> str:
    """Return a notice in a line: number, severity, CVEs, what it says and what corrects it."""
    notice = matrix.security[name]
    cves = ", ".join(notice.cves)
    return f"{name} ({notice.severity}, {notice.published}; {cves}): {notice.says}"


def find_missing_moves(
    matrix: Matrix, ways: Ways
) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    """Return (release, the one it follows, profile, kinds) where no edge leads over.

    These are releases of one line between which no move is claimed (`follows`).
    """
    for name, release in matrix.releases.items():
        older = matrix.releases.get(release.follows)
        for profile, pins in release.profiles.items() if older else ():
            before = older.profiles.get(profile) if older else None
            kinds = tuple(
                kind
                for kind, pin in pins.pins.items()
                if before
                and pin.known
                and kind in before.pins
                and before.pins[kind].known
                and normalize_version(matrix, kind, pin.version)
                not in ways.list_reachable(kind, before.pins[kind].version)
            )
            if kinds:
                yield name, release.follows, profile, kinds
