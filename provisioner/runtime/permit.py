"""The one gate that everything that leaves for a device passes: may this process still act?

A daemon among several may have been stopped (SIGSTOP, a frozen machine) and replaced meanwhile.
When it goes on, the first thing that would leave it asks here, and finds out. And a daemon whose
database lost writes only looks: whatever would change a device is refused here, before it leaves.

The rule that a reader would otherwise break: what does not say that it only reads, writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from provisioner.ports.errors import LookOnly
from provisioner.runtime import process_scope

_reads: ContextVar[bool] = ContextVar("reads", default=False)


def ask(*, writes: bool = True) -> None:
    """Return if this may leave. Where the process may not act at all, the check does not return.

    Raises `LookOnly` for what `writes`, outside of `reading`, while the gate is closed.
    """
    scope = process_scope.current()
    for check in scope.checks:
        check()
    if writes and scope.closed and not _reads.get():
        raise LookOnly(f"nothing is written to any device: {scope.closed[-1]}")


def why_closed() -> str:
    """Why nothing may be written to devices; "" if it may."""
    reasons = process_scope.current().closed
    return reasons[-1] if reasons else ""


@contextmanager
def required(check: Callable[[], None]) -> Iterator[None]:
    """While inside, `check` is asked before anything leaves."""
    checks = process_scope.current().checks
    checks.append(check)
    try:
        yield
    finally:
        checks.remove(check)


@contextmanager
def closed(why: str) -> Iterator[None]:
    """While inside, nothing that writes may leave: the daemon only looks."""
    reasons = process_scope.current().closed
    reasons.append(why)
    try:
        yield
    finally:
        reasons.remove(why)


@contextmanager
def reading() -> Iterator[None]:
    """While inside, this task vouches that what it sends changes nothing."""
    token = _reads.set(True)
    try:
        yield
    finally:
        _reads.reset(token)
