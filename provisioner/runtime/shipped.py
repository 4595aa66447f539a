"""Finds what came with the program and is not Python: the matrix, playbooks and roles.

A checkout has them at its root, where people look for them; the links in `provisioner/content`
make them data of the package, and a wheel holds the files themselves there.
"""

from __future__ import annotations

from pathlib import Path

CONTENT = Path(__file__).parents[1] / "content"


def shipped(name: str) -> Path:
    """`name` here, if it is here; else the one that came with the program."""
    here = Path(name)
    return here if here.exists() else CONTENT / name
