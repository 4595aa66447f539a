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
from collections.abc import Callable
from datetime import datetime

from pydantic import ValidationError

from provisioner.model.campaign_policy import Policy
from provisioner.model.times.time_zone import read_zone
from provisioner.planning.matrix.located_yaml import Located, Path, Tree, load

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
    """Return whether a list at this path holds windows, of the site or of a tenant."""
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
