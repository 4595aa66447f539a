"""Names that tell the place, and the place a name tells: templates that read both ways. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

_FIELD = re.compile(r"\{([a-z_]+)(?::0([1-9]))?\}")
NAME_MAX = 63  # RFC 1123: of a host's name


class BadTemplate(ValueError):
    """A template that cannot be read back."""


def written(template: str, numbers: Mapping[str, int]) -> str:
    """The name of these numbers."""
    return template.format(**numbers)


def read(template: str, name: str) -> dict[str, int] | None:
    """The numbers of a name; None if the template never writes it."""
    if len(name) > NAME_MAX or (found := _pattern(template).fullmatch(name)) is None:
        return None
    numbers = {field: int(digits) for field, digits in found.groupdict().items()}
    # "n7" is not what "n{node:02}" writes: one thing has one name
    return numbers if written(template, numbers) == name else None


def fields(template: str) -> frozenset[str]:
    """The fields of a template."""
    return frozenset(_pattern(template).groupindex)


@lru_cache(maxsize=256)
def _pattern(template: str) -> re.Pattern[str]:
    """Raises BadTemplate for one whose names could be read in two ways."""
    pattern, at, after_field = "", 0, False
    seen = set()
    for found in _FIELD.finditer(template):
        between = template[at : found.start()]
        if after_field and (not between or between[0].isdigit()):
            raise BadTemplate(f"{template!r}: two numbers run together")
        if between and between[-1].isdigit():
            raise BadTemplate(f"{template!r}: a digit stands before a number")
        if found[1] in seen:
            raise BadTemplate(f"{template!r}: {found[1]} stands in it twice")
        seen.add(found[1])
        pattern += re.escape(between) + f"(?P<{found[1]}>[0-9]{{1,6}})"
        at, after_field = found.end(), True
    rest = template[at:]
    if "{" in re.sub(_FIELD, "", template) or "}" in re.sub(_FIELD, "", template):
        raise BadTemplate(f"{template!r}: a field is `{{name}}` or `{{name:02}}`")
    if after_field and rest[:1].isdigit():
        raise BadTemplate(f"{template!r}: a digit stands after a number")
    return re.compile(pattern + re.escape(rest))
