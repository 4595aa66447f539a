"""Times and foreign words as `explain` and the watch views say them. Pure."""

from __future__ import annotations

WORD_MAX = 300  # characters of what came from a device or a person
_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def span(seconds: float) -> str:
    """A length of time by its two largest units: "2 d 3 h", "5 min", "12 s"."""
    if seconds < 60:
        return f"{max(0, int(seconds))} s"
    for index, (unit_s, name) in enumerate(_UNITS):
        if seconds < unit_s:
            continue
        whole, rest = divmod(seconds, unit_s)
        if index + 1 < len(_UNITS):
            small_s, small = _UNITS[index + 1]
            if rest >= small_s:
                return f"{int(whole)} {name} {int(rest // small_s)} {small}"
        return f"{int(whole)} {name}"
    raise AssertionError(seconds)


def ago(seconds: float) -> str:
    """How long something is past; a clock that went back counts as now."""
    return f"{span(seconds)} ago" if seconds >= 1 else "just now"


def word(said: str) -> str:
    """What was told from outside: in bounds, one line, nothing that moves a terminal's cursor."""
    clean = "".join(c if c.isprintable() else "\ufffd" for c in said)
    clean = clean.rstrip(".") if clean.endswith(".") and not clean.endswith("..") else clean
    return clean if len(clean) <= WORD_MAX else f"{clean[: WORD_MAX - 1]}…"
