"""Finds the shipped files that are not Python: the matrix, playbooks and roles.

A checkout has them at its root, where people look for them; the links in `provisioner/content`
make them data of the package, and a wheel contains the files themselves there.
"""

from __future__ import annotations

from pathlib import Path

CONTENT = Path(__file__).parents[1] / "content"


def find_shipped(name: str) -> Path:
    """Return `name` in the working directory if it exists there, else the shipped file."""
    here = Path(name)
    return here if here.exists() else CONTENT / name
