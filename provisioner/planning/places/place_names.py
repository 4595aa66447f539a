"""Write the numbers of a place into a name, and read them back, by one template. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

_FIELD = re.compile(r"\{([a-z_]+)(?::0([1-9]))?\}")
NAME_MAX = 63  # RFC 1123: of a host's name


class BadTemplate(ValueError):
    """A template whose names cannot be read back unambiguously."""


def write_name(template: str, numbers: Mapping[str, int]) -> str:
    """Return the name for these numbers."""
    return template.format(**numbers)


def read(template: str, name: str) -> dict[str, int] | None:
    """Return the numbers of a name; None if the template does not write it."""
    if len(name) > NAME_MAX or (match := _pattern(template).fullmatch(name)) is None:
        return None
    numbers = {field: int(digits) for field, digits in match.groupdict().items()}
    # "n{node:02}" writes "n07", so "n7" is refused: each node has one name
    return numbers if write_name(template, numbers) == name else None


def list_fields(template: str) -> frozenset[str]:
    """Return the fields of a template."""
    return frozenset(_pattern(template).groupindex)


@lru_cache(maxsize=256)
def _pattern(template: str) -> re.Pattern[str]:
    """Return the pattern of a template. Raises BadTemplate if its names are ambiguous."""
    pattern = ""
    at = 0
    after_field = False
    used = set()
    for match in _FIELD.finditer(template):
        between = template[at : match.start()]
        if after_field and (not between or between[0].isdigit()):
            raise BadTemplate(f"{template!r}: two numbers run together")
        if between and between[-1].isdigit():
            raise BadTemplate(f"{template!r}: a digit stands before a number")
        if match[1] in used:
            raise BadTemplate(f"{template!r}: {match[1]} stands in it twice")
        used.add(match[1])
        pattern += re.escape(between) + f"(?P<{match[1]}>[0-9]{{1,6}})"
        at = match.end()
        after_field = True
    tail = template[at:]
    if "{" in re.sub(_FIELD, "", template) or "}" in re.sub(_FIELD, "", template):
        raise BadTemplate(f"{template!r}: a field is `{{name}}` or `{{name:02}}`")
    if after_field and tail[:1].isdigit():
        raise BadTemplate(f"{template!r}: a digit stands after a number")
    return re.compile(pattern + re.escape(tail))
