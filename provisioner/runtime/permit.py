"""The gate before every request to a device: it decides whether this process may still act.

A daemon among several may have been stopped (SIGSTOP, a frozen machine) and replaced meanwhile.
When it continues, its first request to a device checks here and finds out. A daemon whose database
lost writes only reads: every request that would change a device is refused here, before it is sent.
So does a daemon that was started with `--observe`, for as long as it runs.

Where adopted nodes exist, a write leaves only inside of `name_act`: a part that forgot the gate of
capabilities cannot write to any device.

A request counts as a write unless its caller declares that it only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from provisioner.ports.errors import LookOnly, NotGranted
from provisioner.runtime import process_scope

WITHHELD = "withheld"  # the count of acts that were not sent
OBSERVES = "it was started with --observe"
Guard = Callable[[], str]  # returns why an act may not be sent now; "" if it may
_reads: ContextVar[bool] = ContextVar("reads", default=False)
_act: ContextVar[Guard | None] = ContextVar("act", default=None)


def ask(*, writes: bool = True) -> None:
    """Return if the request may be sent; in a process that may not act, a check does not return.

    Raises `LookOnly` for a request that `writes`, outside of `reading`, while the gate is closed.
    """
    scope = process_scope.get_scope()
    for check in scope.checks:
        check()
    if writes and scope.closed and not _reads.get():
        count_withheld()
        raise LookOnly(f"nothing is written to any device: {scope.closed[-1]}")
    if writes and scope.names_acts and not _reads.get():
        guard = _act.get()
        why = "an act whose device was not named to the gate" if guard is None else guard()
        if why:
            count_withheld()
            raise NotGranted(why)


@contextmanager
def name_act(guard: Guard) -> Iterator[None]:
    """Within the block, this task sends an act on devices that the gate knows, and `guard` judges.

    The guard is asked again just before each request leaves: a grant may have been withdrawn since.
    """
    token = _act.set(guard)
    try:
        yield
    finally:
        _act.reset(token)


def require_names(*, required: bool) -> None:
    """From now on, refuse every write that no gate has named: adopted nodes exist."""
    process_scope.get_scope().names_acts = required


def get_closing_reason() -> str:
    """Return why no device may be changed; "" if the gate is open."""
    reasons = process_scope.get_scope().closed
    return reasons[-1] if reasons else ""


def count_withheld() -> None:
    """Count an act that was refused before it was sent."""
    counts = process_scope.get_scope().counts
    counts[WITHHELD] = counts.get(WITHHELD, 0) + 1


def is_observing() -> bool:
    """Return whether this process was started to read alone, and never acts."""
    return process_scope.get_scope().observes


@contextmanager
def observe() -> Iterator[None]:
    """Within the block, this process only reads: no later decision opens the gate."""
    scope = process_scope.get_scope()
    scope.observes = True
    try:
        with close_gate(OBSERVES):
            yield
    finally:
        scope.observes = False


@contextmanager
def require_check(check: Callable[[], None]) -> Iterator[None]:
    """Within the block, call `check` before every request to a device."""
    checks = process_scope.get_scope().checks
    checks.append(check)
    try:
        yield
    finally:
        checks.remove(check)


@contextmanager
def close_gate(why: str) -> Iterator[None]:
    """Within the block, refuse every request that writes: the daemon only reads."""
    reasons = process_scope.get_scope().closed
    reasons.append(why)
    try:
        yield
    finally:
        reasons.remove(why)


@contextmanager
def allow_reads() -> Iterator[None]:
    """Within the block, this task declares that its requests change nothing."""
    token = _reads.set(True)
    try:
        yield
    finally:
        _reads.reset(token)
