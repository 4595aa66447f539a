"""Whether this process may still act: asked just before anything leaves for a device.

A daemon among several may have been stopped (SIGSTOP, a frozen machine) and replaced meanwhile.
When it goes on, the first thing that would leave it asks here, and finds out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from provisioner import process_scope


def ask() -> None:
    """Returns if this process may act. Where it may not, the check does not return."""
    for check in process_scope.current().checks:
        check()


@contextmanager
def required(check: Callable[[], None]) -> Iterator[None]:
    """While inside, `check` is asked before anything leaves."""
    checks = process_scope.current().checks
    checks.append(check)
    try:
        yield
    finally:
        checks.remove(check)
