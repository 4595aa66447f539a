"""Times on the command line: a day, an instant with its zone, or seconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from provisioner.model.input_error import InputError


def parse_time(option: str, text: str) -> float:
    """Return the seconds since 1970; without a zone the time is UTC. Raises InputError."""
    try:
        if re.fullmatch(r"\d{9,11}(?:\.\d+)?", text):
            return float(text)
        parsed = datetime.fromisoformat(text)
    except ValueError:
        remedy = "Write it as 2026-11-22, or as 2026-11-22T12:00:00Z."
        raise InputError(option, text[:40], "it is no time", remedy) from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
