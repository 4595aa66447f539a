"""Read a campaign's policy file (YAML). Pure.

    canary: {size: 8, soak: 2h}
    waves: [{upto: 5%, soak: 1h}, {upto: 100%}]
    limits: {rack: 1, tenant: 10%}
    tenants: {notice: 48h, windows: {acme: ["sat,sun 00:00-06:00 Europe/Oslo"]}}

Besides the plain fields of `Policy` it accepts short forms: a limit is `4` or `10%`; a time is
`90s`, `30m`, `2h`, `14d`, with the field named without its `_s`; a window is one line of text; a
moment is ISO 8601 with its offset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from pydantic import ValidationError

from provisioner.model.campaign import DAY_S, Freeze, NodeProgress, Policy, TenantTerms, Window
from provisioner.model.times.instant import read_zone
from provisioner.planning.matrix.located_yaml import Located, Path, Tree, load

# ------------------------------------------------------------------------------
# Compute when work may begin: change windows, freezes, and tenants' terms. Times are Unix. Pure.
#
# Work begins only if its estimated end lies in the same opening. Adjacent openings count as one.
# The
# day of a window is the day on which it begins, in its time zone, or in UTC plus its offset. Zones
# come from the program's own data (`model/times/instant.py`), so that a decision can be repeated.


Span = tuple[float, float]

NEVER = float("inf")
_WEEK_S = 7 * DAY_S
_EPOCH = datetime(1970, 1, 1)
_EPOCH_WEEKDAY = 3  # 1 January 1970 was a Thursday


def find_openings(windows: Sequence[Window], begin: float, end: float) -> list[Span]:
    """Return the times between `begin` and `end` at which a window is open."""
    if not windows:
        return [(begin, end)]
    spans = []
    for window in windows:
        # one more day on either side: zones are up to 14 hours off UTC, and their clocks change
        first = int((begin - window.minutes * 60) // DAY_S) - 1
        last = int(end // DAY_S) + 1
        for day in range(first, last + 1):
            if (day + _EPOCH_WEEKDAY) % 7 in window.days:
                local_s = day * DAY_S + window.start_min * 60
                opens = convert_to_unix(local_s, window)
                closes = convert_to_unix(local_s + window.minutes * 60, window)
                span = max(opens, begin), min(closes, end)
                if span[0] < span[1]:
                    spans.append(span)
    return _joined(spans)


def convert_to_unix(local_s: float, window: Window) -> float:
    """Return the Unix time at which the window's clock shows `local_s` since 1970-01-01 00:00.

    Of a time that the clock shows twice, the first counts; a time that it skips is converted as if
    the clock had not been changed yet (PEP 495, fold 0).
    """
    if not window.zone:
        return local_s - window.utc_offset_min * 60
    local = _EPOCH + timedelta(seconds=local_s)
    return local.replace(tzinfo=read_zone(window.zone)).timestamp()


def find_begin(
    calendars: Sequence[Sequence[Window]], freezes: Sequence[Freeze], minutes: int, now: float
) -> float:
    """Return the first time from `now` on at which work of `minutes` may begin; NEVER if none.

    The work must fit an opening of every calendar (the site's and each affected tenant's) without
    touching a freeze. Windows repeat weekly, so two weeks after the last freeze cover all cases.
    """
    calendars = [c for c in calendars if c]
    live = [f for f in freezes if f.ends_at > now]
    if not calendars and not live:
        return now
    need_s = minutes * 60
    until = max([now, *(f.ends_at for f in live)]) + 2 * _WEEK_S + need_s
    spans: list[Span] = [(now, until)]
    for calendar in calendars:
        # from a week before, so that an opening that has already begun is found
        spans = _both(spans, find_openings(calendar, now - _WEEK_S, until))
    for freeze in live:
        spans = [
            piece
            for a, b in spans
            for piece in ((a, min(b, freeze.begins_at)), (max(a, freeze.ends_at), b))
            if piece[0] < piece[1]
        ]
    return next((a for a, b in spans if b - a >= need_s), NEVER)


def compute_deferral_end(progress: NodeProgress, terms: TenantTerms) -> float:
    """Return the latest end of a node's deferral, counted from the first notice or request."""
    if not progress.notified_at:
        return NEVER
    return progress.notified_at + terms.deferral_max_s


def _joined(spans: Sequence[Span]) -> list[Span]:
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((begin, end))
    return joined


def _both(left: Sequence[Span], right: Sequence[Span]) -> list[Span]:
    return [
        span for a, b in left for c, d in right if (span := (max(a, c), min(b, d)))[0] < span[1]
    ]


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SPAN = re.compile(r"(\d{1,7})([smhd])")
_WINDOW = re.compile(
    r"(?:(?P<days>[A-Za-z,-]+) +)?(\d\d):(\d\d)-(\d\d):(\d\d)"
    r"(?: +(?:(?:UTC)?(?P<sign>[+-])(\d\d):(\d\d)|(?P<zone>[A-Za-z][\w/+-]*)))?"
)
_TIMES = frozenset({"soak", "notice", "deferral_max", "standstill_max"})
_LIMITS = frozenset({"failure_budget", "free_kept", "upto"})
_MOMENTS = frozenset({"begins_at", "ends_at"})


def parse_policy(source: str, text: str) -> Policy:
    """Return the policy. Raises InputError with file, line, field and remedy."""
    located = load(source, text)
    if located.tree is None:
        return Policy()
    tree = _read(located, located.tree, ())
    try:
        return Policy.model_validate(tree)
    except ValidationError as error:
        raise located.build_model_error(error, "docs/campaigns.md lists every field.") from None


def _read(located: Located, tree: Tree, path: Path) -> object:
    if isinstance(tree, list):
        are_windows = _is_window_list(path)
        if are_windows:
            return [_value(located, (*path, i), one, _window) for i, one in enumerate(tree)]
        return [_read(located, one, (*path, i)) for i, one in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    fields: dict[str, object] = {}
    for key, value in tree.items():
        here = (*path, key)
        if key in _TIMES:
            fields[f"{key}_s"] = _value(located, here, value, _seconds)
        elif key in _MOMENTS:
            fields[key] = _value(located, here, value, _moment)
        elif isinstance(value, str) and (
            key in _LIMITS or (path and path[-1] in ("limits", "switch_limits"))
        ):
            fields[key] = _value(located, here, value, _limit)
        else:
            fields[key] = _read(located, value, here)
    return fields


def _is_window_list(path: Path) -> bool:
    return path[-1:] == ("windows",) or (len(path) > 1 and path[-2] == "windows")


def _value(located: Located, path: Path, value: Tree, read: Callable[[str], object]) -> object:
    if not isinstance(value, str):
        return _read(located, value, path)
    try:
        return read(value.strip())
    except ValueError as error:
        raise located.build_error(
            path, f"{value[:40]!r} is {error.args[0]}", error.args[1]
        ) from None


def _seconds(text: str) -> int:
    match = _SPAN.fullmatch(text)
    if not match:
        raise ValueError("no time", "Write a number and s, m, h or d, as 30m or 14d.")
    return int(match[1]) * _UNITS[match[2]]


def _limit(text: str) -> dict[str, str]:
    field = "percent" if text.endswith("%") else "count"
    number = text.removesuffix("%").strip()
    if not re.fullmatch(r"\d{1,6}" if field == "count" else r"\d{1,3}(\.\d{1,3})?", number):
        raise ValueError("no limit", "Write a number of nodes or a share, as 4 or 10%.")
    return {field: number}


def _moment(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ValueError("no moment", "Write it as 2026-12-24T00:00+01:00.")
    return at.timestamp()


def _window(text: str) -> dict[str, object]:
    """Parse "mon-fri 22:00-04:00 Europe/Oslo": days of the start, from, to, zone or offset."""
    match = _WINDOW.fullmatch(text)
    problem = ValueError("no window", "Write it as `mon-fri 22:00-04:00 Europe/Oslo`.")
    if not match:
        raise problem
    days, *clock, sign, off_h, off_min, zone = match.groups()
    if zone:
        zone = _zone(zone)
    begin_h, begin_min, end_h, end_min = (int(c) for c in clock)
    if max(begin_h, end_h) > 24 or max(begin_min, end_min) > 59:
        raise problem
    begin = begin_h * 60 + begin_min
    end = end_h * 60 + end_min
    offset = (int(off_h) * 60 + int(off_min)) * (-1 if sign == "-" else 1) if sign else 0
    return {
        "days": sorted(_days(days.lower(), problem)) if days else list(range(7)),
        "start_min": begin,
        "minutes": (end - begin) % 1440 or 1440,
        "utc_offset_min": offset,
        "zone": zone or "",
    }


def _zone(name: str) -> str:
    try:
        read_zone(name)
    except ValueError as error:
        raise ValueError(f"no window: {error}", "Name a zone as Europe/Oslo or UTC.") from None
    return name


def _days(text: str, problem: ValueError) -> set[int]:
    days: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first not in _DAYS or (last or first) not in _DAYS:
            raise problem
        begin = _DAYS.index(first)
        end = _DAYS.index(last or first)
        days |= {(begin + i) % 7 for i in range((end - begin) % 7 + 1)}
    return days
