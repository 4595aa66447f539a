"""Builds /opt/provisioner: a virtual environment of Debian's Python with the locked packages.

The Debian package and the container image hold the same tree. Its programs find their Python by
their own place, so that the tree is built in one folder and runs in another. Modules are compiled
with their path at the target and a hash in place of a time: the bytes depend on the sources alone,
and a daemon that may not write to /opt starts as fast as one that may.
"""

from __future__ import annotations

import sys
from pathlib import Path

from delivery.sources import NAME, DeliveryError, read_version, run_tool, set_plain_modes

HOME = Path("opt/provisioner")
PYTHON = Path("/usr/bin/python3.11")  # Debian 12's


def build_tree(place: Path, release: Path) -> Path:
    """Install the release's wheel and packages below `place`, and return the tree's root.

    Packages come from the index that uv is configured with; each must have a digest of the release.
    """
    if not PYTHON.exists():
        raise DeliveryError(f"{PYTHON} is not installed: apt-get install python3.11")
    home = place / HOME
    uv = str(Path(sys.executable).with_name("uv"))
    install = [uv, "pip", "install", "--quiet", "--no-deps", "--link-mode", "copy"]
    target = ["--python", str(home / "bin" / "python")]
    version = read_version()
    requirements = release / f"{NAME}-{version}.requirements.txt"
    run_tool(
        [uv, "venv", "--quiet", "--relocatable", "--no-project", "--python", str(PYTHON), str(home)]
    )
    locked = ["--require-hashes", "--only-binary", ":all:", "-r", str(requirements)]
    run_tool([*install, *target, *locked])
    ours = ["--no-index", "--find-links", str(release), f"{NAME}=={version}"]
    run_tool([*install, *target, *ours])
    _remove_times(home)
    set_plain_modes(place)
    compile_all = [str(PYTHON), "-I", "-m", "compileall", "-q", "-j", "1"]
    paths = ["--invalidation-mode", "unchecked-hash", "-s", str(place), "-p", "/"]
    run_tool([*compile_all, *paths, str(home / "lib")], PYTHONHASHSEED="0")
    return home


def _remove_times(home: Path) -> None:
    """Remove the files in which uv notes when a local wheel was written, and their records."""
    for path in home.rglob("uv_cache.json"):
        record = path.with_name("RECORD")
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        record.write_text("".join(x for x in lines if path.name not in x), encoding="utf-8")
        path.unlink()
