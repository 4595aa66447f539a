"""Compute when work may begin: change windows, freezes, and tenants' terms. Times are Unix. Pure.

Work begins only if its estimated end lies in the same opening. Adjacent openings count as one. The
day of a window is the day on which it begins, in its time zone, or in UTC plus its offset. Zones
come from the program's own data (`model/times/time_zone.py`), so that a decision can be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from provisioner.model.campaign import NodeProgress
from provisioner.model.campaign_policy import DAY_S, Freeze, TenantTerms, Window
from provisioner.model.times.time_zone import read_zone

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
