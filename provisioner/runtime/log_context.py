"""The node, operation and step that the current task works for; every log line carries them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

_NOTHING: Mapping[str, str] = {}
_ABOUT: ContextVar[Mapping[str, str]] = ContextVar("about", default=_NOTHING)


@contextmanager
def set_log_context(**names: str) -> Iterator[None]:
    """Set names for the block and for tasks created in it: `about(node="n7", operation="n7#3")`."""
    before = _ABOUT.set({**_ABOUT.get(), **names})
    try:
        yield
    finally:
        _ABOUT.reset(before)


def get_log_context() -> Mapping[str, str]:
    return _ABOUT.get()
