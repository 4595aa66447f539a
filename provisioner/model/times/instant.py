"""Instants: seconds since the epoch in memory and in the store, RFC 3339 in UTC at the API.

A record declares a time as `Instant`, or as `InstantOrNone` where it may be unset (0.0 inside).
Both are floats. A dump with the context `AT_EDGE` writes them as text, "2026-12-24T18:00:00.000Z",
and an unset one as null; without the context, as in the store and in digests, they stay numbers.
Values that no record types, as an event's detail, are told by their names: `Detail`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import (
    BeforeValidator,
    PlainSerializer,
    SerializationInfo,
    ValidationInfo,
    WithJsonSchema,
)
from tzdata import IANA_VERSION as DATA_VERSION

# ------------------------------------------------------------------------------
# Time zones by their IANA names, from the data that is installed with the program.
#
# The system's own zone files are not read: two daemons, or one daemon before and after an upgrade
# of the system, would otherwise open the same change window at different times. `DATA_VERSION`
# names the edition of the data, and is kept with each campaign whose windows name a zone.


__all__ = ["DATA_VERSION", "read_zone"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,30}(?:/[A-Za-z][A-Za-z0-9_+-]{0,30}){0,2}")


@lru_cache(maxsize=1024)  # there are some 600 names
def read_zone(name: str) -> ZoneInfo:
    """The time zone of an IANA name such as `Europe/Berlin`; raise ValueError for other names."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:40]!r} is not the name of a time zone")
    file = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    if not file.is_file():
        raise ValueError(f"there is no time zone {name!r} in the IANA data {DATA_VERSION}")
    with file.open("rb") as stream:
        return ZoneInfo.from_file(stream, key=name)


AT_EDGE: Mapping[str, bool] = {"edge": True}  # the context of a dump or a validation of the API
NAMES = frozenset({"at", "since", "until"})
ENDINGS = ("_at", "_until", "_since")
RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
LATEST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
TEXT = {"type": "string", "format": "date-time"}


def format_instant(at: float) -> str:
    """Return a time as RFC 3339 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(max(0.0, min(at, LATEST)), UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_instant(text: str) -> float:
    """Return the seconds since the epoch of a text of RFC 3339. Raises ValueError."""
    if not RFC_3339.fullmatch(text):
        raise ValueError("it is no time of RFC 3339, as 2026-12-24T18:00:00Z is")
    moment = datetime.fromisoformat(text.upper()).timestamp()
    if moment < 0:
        raise ValueError("it is before 1970")
    return moment


def is_time(name: str) -> bool:
    """Return whether a field of this name is a time, by the rule for names."""
    return name in NAMES or name.endswith(ENDINGS)


def write_instants(value: Any) -> Any:
    """Return JSON's values with the times of untyped records as text; 0 becomes null."""
    if isinstance(value, Mapping):
        return {key: _write_named(str(key), inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [write_instants(inner) for inner in value]
    return value


def _write_named(name: str, value: Any) -> Any:
    if is_time(name) and isinstance(value, int | float) and not isinstance(value, bool):
        return format_instant(value) if value else None
    return write_instants(value)


def _at_edge(info: SerializationInfo | ValidationInfo) -> bool:
    context = info.context
    return isinstance(context, Mapping) and bool(context.get("edge"))


def _read(value: Any, info: ValidationInfo) -> Any:
    if isinstance(value, str):
        return parse_instant(value)
    if _at_edge(info):
        raise ValueError("write the time as text of RFC 3339, as 2026-12-24T18:00:00Z")
    return value


def _read_or_none(value: Any, info: ValidationInfo) -> Any:
    return 0.0 if value is None else _read(value, info)


def _write(value: float, info: SerializationInfo) -> Any:
    return format_instant(value) if _at_edge(info) else value


def _write_or_none(value: float, info: SerializationInfo) -> Any:
    if not _at_edge(info):
        return value
    return format_instant(value) if value else None


def _write_detail(value: Any, info: SerializationInfo) -> Any:
    return write_instants(value) if _at_edge(info) else value


Instant = Annotated[
    float, BeforeValidator(_read), PlainSerializer(_write, when_used="json"), WithJsonSchema(TEXT)
]
InstantOrNone = Annotated[
    float,
    BeforeValidator(_read_or_none),
    PlainSerializer(_write_or_none, when_used="json"),
    WithJsonSchema({"anyOf": [TEXT, {"type": "null"}]}),
]
Detail = Annotated[
    dict[str, Any],
    PlainSerializer(_write_detail, when_used="json"),
    WithJsonSchema({"type": "object", "additionalProperties": True}),
]
