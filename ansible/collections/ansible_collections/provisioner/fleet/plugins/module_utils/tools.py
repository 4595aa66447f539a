"""Runs vendors' tools on a host: one at a time, with bounded output, without a shell.

A tool that writes gets no time limit, because an interrupted burn is worse than a long wait. The
daemon has its own limit. The tool inherits the lock, by which the daemon finds out whether it still
runs (`flock -n /run/lock/provisioner-tools true`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import tempfile
import time

LOCK = "/run/lock/provisioner-tools"
LOCK_WAIT_S = 30.0  # only a fault of the daemon runs two plays on a host; a read ends sooner
READ_LIMIT_S = 300.0  # a query of eight cards takes seconds; a hung card must not hang the play
OUTPUT_MAX = 4 * 1024 * 1024  # bytes; mlxconfig prints some 100 KB per card
DETAIL_MAX = 400  # characters of a tool's output in a message


class Refused(Exception):
    """Raised when a request must not or cannot be met on this host; the message is for a person.

    `output` is the tool's whole output, where a tool refused.
    """

    output = ""


class Unreadable(Refused):
    """Raised when a tool's output is not in its format: garbled, cut short, or empty."""


class Missing(Refused):
    """Raised when the tool is not installed."""


@contextlib.contextmanager
def hold_lock(path=LOCK, wait_s=LOCK_WAIT_S):
    """Hold the host's lock; yield its descriptor for tools to inherit. Raises `Refused`."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Refused(f"another tool is still running: {path} is held") from None
                time.sleep(0.2)
        yield descriptor
    finally:
        os.close(descriptor)


def read(argv, limit_s=READ_LIMIT_S, exits=(0,)):
    """Run a query and return its output. Raises `Missing`, `Refused`.

    `exits`: the codes by which the tool answers. Any other is a tool that failed, and its output is
    no list of what is there.
    """
    return _run(argv, limit_s, exits, None)


def write(argv, lock, environment=None):
    """Run a tool that changes something to its end and return its output. Raises as `read`."""
    return _run(argv, None, (0,), lock, environment)


def _run(argv, limit_s, exits, lock, environment=None):
    with tempfile.TemporaryFile() as out:
        try:
            ended = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
                check=False,
                env=dict(os.environ, LC_ALL="C", **(environment or {})),
                pass_fds=() if lock is None else (lock,),
            )
        except FileNotFoundError:
            raise Missing(f"{argv[0]} is not installed") from None
        except PermissionError:
            raise Refused(f"{argv[0]} may not be run") from None
        except subprocess.TimeoutExpired:
            raise Refused(f"{argv[0]} did not end within {limit_s:.0f} s") from None
        out.seek(0)
        text = out.read(OUTPUT_MAX).decode("utf-8", errors="replace")
    if ended.returncode not in exits:
        message = replace_control_characters(" ".join(text.split())[-DETAIL_MAX:]) or "no message"
        refused = Refused(f"{argv[0]} ended with {ended.returncode}: {message}")
        refused.output = text
        raise refused
    return text


def replace_control_characters(text):
    """Replace control characters, so that a device cannot write to a person's terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
