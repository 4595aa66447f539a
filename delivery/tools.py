"""Programs that a make target calls: quiet while they work, their own last words when they fail."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

LAST_LINES = 12
LINE_CHARACTERS = 400  # of a line that is kept: some programs write a whole file into one


class ToolError(Exception):
    """A program is missing, failed or did not end; the message has its last lines."""


def run_tool(
    *command: str | Path,
    error: type[Exception] = ToolError,
    folder: Path | None = None,
    content: str | None = None,
    timeout_s: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a program and return its output; `content` is its standard input, `environment` is added.

    Raises `error` with the program's last lines. Output in another encoding is no failure.
    """
    words = [str(word) for word in command]
    if shutil.which(words[0]) is None:
        raise error(f"{words[0]} is not installed")
    shown = shlex.join(words)
    shown = shown if len(shown) <= 200 else f"{shown[:200]} ..."
    try:
        ended = subprocess.run(  # noqa: S603 (only programs and files that the caller names)
            words,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            input=content,
            stdin=subprocess.DEVNULL if content is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            umask=0o022,
        )
    except subprocess.TimeoutExpired as slow:
        said = [_decode(part) for part in (slow.stdout, slow.stderr)]
        raise error(f"{shown} did not end within {timeout_s:g} s{_tell(*said)}") from slow
    except OSError as broken:
        raise error(f"{shown} cannot be started: {broken}") from broken
    if ended.returncode:
        code = ended.returncode
        how = f"ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
        raise error(f"{shown} {how}{_tell(ended.stdout, ended.stderr)}")
    return ended.stdout


def read_last_lines(log: Path) -> str:
    """Return what a message ends with about a program that wrote into a file."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError as broken:
        return f" ({log} cannot be read: {broken.strerror})"
    return f", see {log}{_tell(text, '')}"


def _tell(output: str, errors: str) -> str:
    """Return the last lines of a program: of its errors, before them of its output."""
    lines = [line[:LINE_CHARACTERS] for line in (*output.splitlines(), *errors.splitlines())]
    last = [line for line in lines if line.strip()][-LAST_LINES:]
    return "".join(f"\n  {line}" for line in last) or " and said nothing"


def _decode(part: str | bytes | None) -> str:
    return part.decode(errors="replace") if isinstance(part, bytes) else part or ""
