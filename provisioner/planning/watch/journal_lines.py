"""The lines of the daemon's log that tell what happened to the site: one event, one line.

Events are rows of the journal; a line is logfmt (https://brandur.org/logfmt), `key=value` with
quotes where a value has spaces. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from provisioner.model.events.event import EventKind as Kind

VALUE_MAX = 400  # characters of one value
LINES_MAX = 8  # blockers of one event that have a line each
# What people follow a site by: changes of state, refusals, alerts, cases, campaigns, and how the
# daemon itself is. Steps, readings, sessions and requests are in the journal alone.
WARNINGS = frozenset(
    {
        Kind.WAITS,
        Kind.PARKED,
        Kind.ATTENTION,
        Kind.NOT_SANITIZED,
        Kind.AGENT_REFUSED,
        Kind.RELEASE_REFUSED,
        Kind.TRESPASS,
        Kind.TAKEN_BACK,
        Kind.HOSTS_NOT_APART,
        Kind.CASE_OPENED,
        Kind.CASE_HARDWARE,
        Kind.ALERT_RAISED,
        Kind.CLOCK_DOUBTED,
        Kind.OVERLOADED,
        Kind.DAEMON_NOTICE,
        Kind.LOOK_ONLY,
        Kind.PORT_LEFT,
    }
)
TOLD = WARNINGS | {
    Kind.DISCOVERED,
    Kind.ADOPTED,
    Kind.CAPABILITY,
    Kind.IDENTIFIED,
    Kind.STATE,
    Kind.REMEDY,
    Kind.CERTIFIED,
    Kind.SANITIZED,
    Kind.RETIRED,
    Kind.ALLOCATED,
    Kind.RELEASED,
    Kind.TENANT,
    Kind.HOSTS_KEPT_APART,
    Kind.CASE_CLOSED,
    Kind.CAMPAIGN,
    Kind.PIN,
    Kind.ALERT_CLEARED,
    Kind.CLOCK_BELIEVED,
    Kind.CLOCK_ACCEPTED,
    Kind.OVERLOAD_OVER,
    Kind.DAEMON_NOTICE_OVER,
    Kind.RESTORED,
    Kind.RESTORE_SETTLED,
}


class LogLine(NamedTuple):
    """A line of the log. `warns`: a person should read it."""

    text: str
    warns: bool


def describe_row(row: Mapping[str, Any]) -> Iterator[LogLine]:
    """Yield the lines of one row of the journal; none for a kind that is not told.

    A refusal has a line of its own for each blocker, with what would unblock it.
    """
    kind = str(row["kind"])
    node = str(row.get("node") or "")
    if kind not in TOLD:
        return
    detail = row.get("detail")
    fields = dict(detail) if isinstance(detail, Mapping) else {}
    blockers = fields.pop("blockers", None)
    refusals = [b for b in blockers if isinstance(b, Mapping)] if isinstance(blockers, list) else []
    about = {"event": kind, **({"node": node} if node else {})}
    plain = {name: value for name, value in fields.items() if isinstance(value, str | int | float)}
    warns = kind in WARNINGS or bool(refusals)
    yield LogLine(format_fields({**about, **plain, "row": row.get("seq", 0)}), warns)
    blocked = {**about, "event": "blocked"}
    for blocker in refusals[:LINES_MAX]:
        told = {name: blocker.get(name, "") for name in ("reason", "subject", "detail", "unblock")}
        yield LogLine(format_fields({**blocked, **told}), warns=True)
    if len(refusals) > LINES_MAX:
        rest = {"more": len(refusals) - LINES_MAX, "all": f"provisioner explain {node}"}
        yield LogLine(format_fields({**blocked, **rest}), warns=True)


def format_fields(fields: Mapping[str, object]) -> str:
    """Return fields as logfmt; values that are empty are left out."""
    words = []
    for name, value in fields.items():
        if value in ("", None):
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        text = text if len(text) <= VALUE_MAX else text[: VALUE_MAX - 1] + "…"
        plain = text.isprintable() and not set(text) & set(' "=\\')
        words.append(f"{name}={text if plain else json.dumps(text, ensure_ascii=False)}")
    return " ".join(words)
