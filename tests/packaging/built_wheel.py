"""Builds the wheel for tests, from a copy of the checkout and without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = (
    "provisioner",
    "ansible",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "firmware_matrix.yaml",
)
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", ".ansible")


def build_wheel(place: Path) -> Path:
    """Return the wheel, built in `place` from a copy: nothing is left in the checkout."""
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / "source" / name, symlinks=True, ignore=LEFT_OUT)
        else:
            (place / "source").mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place / "source" / name)
    build = "import sys, setuptools.build_meta as b; print(b.build_wheel(sys.argv[1]))"
    words = [sys.executable, "-c", build, str(place)]
    done = subprocess.run(words, cwd=place / "source", capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = place.glob("*.whl")
    return wheel
