"""The program in this process, from its arguments to its exit code.

A process of its own would take seconds to import everything, sixty times.
"""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.cli import main


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    returncode: int
    stdout: str
    stderr: str


def run(words: list[str], cwd: Path) -> Done:
    """What `provisioner WORDS` in the directory `cwd` does."""
    out, err = io.StringIO(), io.StringIO()
    code: str | int | None = None
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["provisioner", *words])
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    return Done(code if isinstance(code, int) else 0, out.getvalue(), err.getvalue())
