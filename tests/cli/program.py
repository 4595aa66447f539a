"""The program in this process, from its arguments to its exit code.

A process of its own would take seconds to import everything, sixty times. A command that asks a
daemon finds one: at the socket of the directory that it names, for as long as it runs.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from local_daemon import daemon

from provisioner.cli import main
from provisioner.cli.client.surface import LOCAL, read_specs
from provisioner.daemon.api import SOCKET
from provisioner.daemon.data import DATABASE
from provisioner.model.matrix import Matrix

BY_HAND = (
    "netbox plan",
    "netbox apply",
    "bundle create",
    "compare ironic",
    "compare maas",
    "compare netbox",
    "compare nico",
)
ALONE = (
    "audit verify",
    "audit check-archive",
    "certificate verify",
    "case verify-bundle",
)


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    returncode: int
    stdout: str
    stderr: str


def run(words: list[str], cwd: Path, matrix: Matrix | None = None, **settings: Any) -> Done:
    """What `provisioner WORDS` in the directory `cwd` does, beside a daemon with these settings."""
    directory = _directory(words, cwd)
    if not _asks_a_daemon(words) or not (directory / DATABASE).exists():
        return alone(words, cwd)
    if (directory / SOCKET).exists():  # the test serves it itself
        return alone(words, cwd)
    with daemon(directory, matrix=matrix, **settings):
        return alone(words, cwd)


def _asks_a_daemon(words: Sequence[str]) -> bool:
    names = (" ".join(words[:2]), words[0] if words else "")
    known = any(n in read_specs() or n in LOCAL or n in BY_HAND for n in names)
    return known and names[0] not in ALONE and "--offline" not in words and "--server" not in words


def _directory(words: Sequence[str], cwd: Path) -> Path:
    named = dict(itertools.pairwise(words)).get("--data", "var")
    return cwd / named


def alone(words: Sequence[str], cwd: Path) -> Done:
    """What the command does by itself."""
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
