"""Which node, operation and step this task works for: what every line of its log says too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_NOTHING: Mapping[str, str] = {}
_ABOUT: ContextVar[Mapping[str, str]] = ContextVar("about", default=_NOTHING)


@contextmanager
def about(**names: str) -> Iterator[None]:
    """Within it, and in tasks that are made within it: `about(node="n07", operation="n07#3")`."""
    before = _ABOUT.set({**_ABOUT.get(), **names})
    try:
        yield
    finally:
        _ABOUT.reset(before)


def named() -> Mapping[str, str]:
    """What is set now."""
    return _ABOUT.get()
