"""Debian's MQTT broker, for tests that need a real one."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest


def start_broker(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a broker on this machine alone; return it with its port. Skips where there is none."""
    mosquitto = shutil.which("mosquitto", path="/usr/sbin:/usr/bin:/usr/local/bin") or (
        shutil.which("mosquitto")
    )
    if mosquitto is None:
        pytest.skip("Debian's mosquitto is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    conf = folder / "mosquitto.conf"
    conf.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
    return subprocess.Popen([mosquitto, "-c", str(conf)]), port
