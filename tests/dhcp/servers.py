"""DHCP servers from Debian's packages, for a test each: without a client, and in its own folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

HOOK = "/usr/lib/x86_64-linux-gnu/kea/hooks/libdhcp_lease_cmds.so"
START_S = 30.0


def find_program(name: str) -> str:
    """Return the path of a server; the test is skipped where it is not installed."""
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        pytest.skip(f"{name} is not installed (.ci/packages)")
    return path


def kea_environment(folder: Path) -> dict[str, str]:
    """Return the environment in which kea-dhcp4 writes its files into a folder."""
    return {**os.environ, "KEA_PIDFILE_DIR": str(folder), "KEA_LOCKFILE_DIR": str(folder)}


def _answers(place: Path) -> bool:
    """Return whether a program listens on a socket; the file alone is there a moment before."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        return client.connect_ex(str(place)) == 0


@contextlib.contextmanager
def serve_kea(folder: Path, leases: str, *, hook: bool = True) -> Iterator[Path]:
    """Run kea-dhcp4 with the leases of a file; yield its control socket. It hears no client."""
    program = find_program("kea-dhcp4")
    library = next(iter(Path("/usr/lib").glob("*/kea/hooks/libdhcp_lease_cmds.so")), Path(HOOK))
    (folder / "leases.csv").write_text(leases)
    place = folder / "socket"
    settings = {
        "interfaces-config": {"interfaces": []},
        "control-socket": {"socket-type": "unix", "socket-name": str(place)},
        "lease-database": {"type": "memfile", "name": str(folder / "leases.csv")},
        "hooks-libraries": [{"library": str(library)}] if hook else [],
        "subnet4": [{"id": 1, "subnet": "10.0.0.0/8", "pools": []}],
    }
    (folder / "kea.json").write_text(json.dumps({"Dhcp4": settings}))
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [program, "-c", str(folder / "kea.json")],
            env=kea_environment(folder),
            stdout=log,
            stderr=log,
        )
    try:
        until = time.monotonic() + START_S
        while not _answers(place) and server.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        assert _answers(place), (folder / "log").read_text()
        yield place
    finally:
        server.terminate()
        server.wait(START_S)
