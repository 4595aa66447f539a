"""Whether this process may still act: asked just before anything leaves for a device.

A daemon among several may have been stopped (SIGSTOP, a frozen machine) and replaced meanwhile.
When it goes on, the first thing that would leave it asks here, and finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_checks: list[Callable[[], None]] = []  # of this process: there is one daemon in it


def ask() -> None:
    """Returns if this process may act. Where it may not, the check does not return."""
    for check in _checks:
        check()


@contextmanager
def required(check: Callable[[], None]) -> Iterator[None]:
    """While inside, `check` is asked before anything leaves."""
    _checks.append(check)
    try:
        yield
    finally:
        _checks.remove(check)
