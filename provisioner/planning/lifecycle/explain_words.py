"""Durations and foreign text, formatted for `explain` and the watch views. Pure."""

from __future__ import annotations

WORD_MAX = 300  # characters of text from a device or a person
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def format_span(seconds: float) -> str:
    """Return a duration by its two largest units: "2 d 3 h", "5 min", "12 s"."""
    if seconds < 60:
        return f"{max(0, int(seconds))} s"
    for index, (unit_s, name) in enumerate(_UNITS):
        if seconds < unit_s:
            continue
        whole, remainder = divmod(seconds, unit_s)
        if index + 1 < len(_UNITS):
            small_s, small = _UNITS[index + 1]
            if remainder >= small_s:
                return f"{int(whole)} {name} {int(remainder // small_s)} {small}"
        return f"{int(whole)} {name}"
    raise AssertionError(seconds)


def format_age(seconds: float) -> str:
    """Return the time since an event as text; a negative one (a clock set back) counts as now."""
    return f"{format_span(seconds)} ago" if seconds >= 1 else "just now"


def clean_text(text: str) -> str:
    """Return foreign text in one bounded line, without characters that move a terminal's cursor."""
    clean = "".join(c if c.isprintable() else "\ufffd" for c in text)
    clean = clean.rstrip(".") if clean.endswith(".") and not clean.endswith("..") else clean
    return clean if len(clean) <= WORD_MAX else f"{clean[: WORD_MAX - 1]}…"
