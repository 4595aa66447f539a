"""Boots a throw-away copy of this machine's Debian: what is installed there is gone afterwards.

The copy is an overlay in memory over the root of this machine, in a mount namespace of its own;
systemd-nspawn boots systemd in it, without a network but its own loopback. One unit runs the
script of a test, and its end is the end of the container.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

LIMIT_S = 240
BOOT = """\
set -e
place=$1
mount -t tmpfs tmpfs "$place"
mkdir "$place/upper" "$place/work" "$place/root"
mount -t overlay -o "lowerdir=/,upperdir=$place/upper,workdir=$place/work" overlay "$place/root"
cp -r "$2" "$place/root/test"
cp "$place/root/test/test.service" "$place/root/etc/systemd/system/throwaway-test.service"
systemd-nspawn --quiet --register=no --keep-unit --link-journal=no --resolv-conf=off \
  --timezone=off --private-network -D "$place/root" --boot -- --unit=throwaway-test.service \
  </dev/null >"$3" 2>&1 && code=0 || code=$?
cat "$place/root/test/output"
exit $code
"""
UNIT = """\
[Unit]
Requires=basic.target
After=basic.target
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
ExecStart=/bin/bash /test/script
StandardOutput=append:/test/output
StandardError=append:/test/output
"""


def require_boot() -> None:
    """Skip where no copy of this machine can be booted."""
    if os.geteuid() != 0:
        pytest.skip("booting a copy of this machine needs root")
    if shutil.which("systemd-nspawn") is None:
        pytest.skip("systemd-nspawn is not here (apt-get install systemd-container)")


def run_booted(
    place: Path, script: str, files: Mapping[str, Path], limit_s: float = LIMIT_S
) -> tuple[int, str]:
    """Run the script in the booted copy; the files are beside it in /test. Return code, output."""
    folder, mounted, console = place / "test", place / "mounted", place / "console"
    folder.mkdir()
    mounted.mkdir()
    for name, file in files.items():
        shutil.copyfile(file, folder / name)
    (folder / "script").write_text(script)
    (folder / "test.service").write_text(UNIT)
    (folder / "output").touch()
    ended = subprocess.run(
        ["unshare", "--mount", "bash", "-c", BOOT, "boot", mounted, folder, console],
        capture_output=True, text=True, timeout=limit_s,
    )  # fmt: skip
    if ended.returncode != 0 and not ended.stdout:
        booted = console.read_text(errors="replace") if console.exists() else ""
        pytest.skip(f"no copy of this machine boots: {(ended.stderr + booted)[-300:]}")
    return ended.returncode, ended.stdout
