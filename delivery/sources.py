"""The checkout that is delivered: its root, its version, its time and the files of the wheel."""

from __future__ import annotations

import os
import shutil
import tomllib
from pathlib import Path

from delivery import tools
from provisioner.runtime.shipped import list_pages

ROOT = Path(__file__).parents[1]
NAME = "gpu-provisioner"
# the files from which the wheel is built
SOURCES = (
    "provisioner",
    "ansible",
    "docs",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "firmware_matrix.yaml",
)
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ansible")


class DeliveryError(Exception):
    """A release cannot be built; the message names the cause and the remedy."""


def run_tool(command: list[str], *, folder: Path | None = None, **environment: str) -> str:
    """Run a program and return its output. Raises DeliveryError with its last lines."""
    return tools.run_tool(*command, error=DeliveryError, folder=folder, environment=environment)


def read_version(root: Path = ROOT) -> str:
    """Return the version of the program."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def read_epoch(root: Path = ROOT) -> int:
    """Return the time that every built file carries, in seconds since 1970.

    `SOURCE_DATE_EPOCH` (https://reproducible-builds.org/specs/source-date-epoch/) goes first, then
    the time of the commit.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not epoch:
        epoch = run_tool(["git", "log", "-1", "--format=%ct"], folder=root).strip()
    if not epoch.isdecimal():
        raise DeliveryError(f"SOURCE_DATE_EPOCH {epoch!r} is no number of seconds")
    return int(epoch)


def copy_sources(place: Path, root: Path = ROOT) -> Path:
    """Copy the wheel's sources, with modes that depend on no umask."""
    place.mkdir(parents=True)
    for name in SOURCES:
        source = root / name
        if name == "docs":
            tables = (source / "tables.yaml", *source.glob("*.csv"), *source.glob("sources/*.csv"))
            for path in (*list_pages(source), *tables):  # what `provisioner help TOPIC` prints
                target = place / path.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
        elif source.is_dir():
            shutil.copytree(source, place / name, symlinks=True, ignore=LEFT_OUT)
        else:
            shutil.copy2(source, place / name)
    set_plain_modes(place)
    return place


def set_plain_modes(folder: Path) -> None:
    """Give folders and programs the mode 755, and all other files 644."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            is_open = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if is_open else 0o644)
