"""Builds the wheel so that the same sources give the same bytes on each machine.

    python -m delivery.wheel dist

A wheel is a zip archive. Its bytes depend on the time and the mode of each file and on the version
of setuptools: the time is the commit's, the modes are set, setuptools is pinned by the lock.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from delivery.sources import ROOT, DeliveryError, copy_sources, read_epoch, run_tool

BUILD = "import sys, setuptools.build_meta as b; print(b.build_wheel(sys.argv[1]))"


def build_wheel(folder: Path, epoch: int, root: Path = ROOT) -> Path:
    """Build the wheel into `folder` from a copy: nothing is left in the checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        source = copy_sources(Path(place) / "source", root)
        out = Path(place) / "out"
        run_tool(
            [sys.executable, "-c", BUILD, str(out)],
            folder=source,
            SOURCE_DATE_EPOCH=str(epoch),
            PYTHONHASHSEED="0",
            LC_ALL="C.UTF-8",
            TZ="UTC",
        )
        (wheel,) = out.glob("*.whl")
        return Path(shutil.copy(wheel, folder / wheel.name))


def main() -> int:
    """Build the wheel into the folder of the first argument."""
    try:
        wheel = build_wheel(Path(sys.argv[1]), read_epoch())
    except DeliveryError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    sys.stdout.write(f"{wheel}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
