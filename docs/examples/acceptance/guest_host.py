#!/usr/bin/env python3
"""A real system behind one host of the demonstration, for ids that want one that answers SSH.

It is Debian with systemd, OpenSSH and cloud-init, started by systemd-nspawn in namespaces of its
own. The simulated host starts and ends it: each boot of the host is a boot of the system, and each
configuration drive that the daemon writes is a new system, which cloud-init reads. Hardware and
kernel are not the host's own. Needs root, mmdebstrap and systemd-nspawn.

    guest_host.py STATE-FILE BOOT-ID LINE      run a line as root in it, once that boot is up
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path.append(str(HERE.parents[3]))  # a simulated host starts this file in a folder of its own

from delivery.tools import ToolError, read_last_lines, run_tool  # noqa: E402

PACKAGES = (
    *("systemd-sysv", "dbus", "udev", "openssh-server", "cloud-init", "netplan.io", "curl"),
    *("python3", "iproute2", "sudo", "procps", "ca-certificates"),
)
TOOLS = ("mmdebstrap", "systemd-nspawn", "nsenter", "ip", "ssh-keygen")
GATEWAY = "169.254.77.1"
LOOK_S = 0.3
SECTOR = 2048
UP_S = 400.0
BUILD_S = 1800


def find_obstacle() -> str:
    """Return why no guest can run here; empty: one can."""
    if os.geteuid() != 0:
        return "a system with SSH needs root here"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"a system with SSH needs {', '.join(missing)} here" if missing else ""


def build_system(folder: Path) -> Path:
    """Return the folder with the system; it is made of Debian's packages once."""
    base = folder / "base"
    folder.mkdir(parents=True, exist_ok=True)  # mmdebstrap makes no folder above its own
    if not (folder / "ready").exists():
        shutil.rmtree(base, ignore_errors=True)
        mask = "ln -sf /dev/null $1/etc/systemd/system/systemd-networkd-wait-online.service"
        locale = "echo 'locale: false' > $1/etc/cloud/cloud.cfg.d/90-no-locale.cfg"
        keys = "rm -f $1/etc/ssh/ssh_host_*"
        words = ["--variant=minbase", f"--include={','.join(PACKAGES)}", "--format=directory"]
        words += [f"--customize-hook={hook}" for hook in (mask, locale, keys)]
        words += ["bookworm", str(base)]
        _call("mmdebstrap", "--quiet", *words)
        (folder / "ready").touch()
    return base


class Guest:
    """The system behind one host: its key, its network, and the boot that runs."""

    def __init__(self, folder: Path, base: Path, node: str, address: str) -> None:
        self.node = node
        self.address = address
        self.state = folder / "state.json"
        self.keys = {name: folder / name for name in ("tenant-key", "other-key")}
        self._folder = folder
        self._base = base
        self._space = f"guest{os.getpid()}"
        self._process: subprocess.Popen[bytes] | None = None
        self._boot = ""
        for file in self.keys.values():
            _call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file))

    def connect(self) -> None:
        """Make its network: one cable from this machine to it, with the host's own address."""
        _call("ip", "netns", "add", self._space)
        near = f"gu{os.getpid()}"
        far = ("peer", "name", "eth0", "netns", self._space)
        _call("ip", "link", "add", near, "type", "veth", *far)
        _call("ip", "address", "add", GATEWAY, "peer", self.address, "dev", near)
        _call("ip", "link", "set", near, "up")
        inside = ("ip", "-n", self._space)
        _call(*inside, "address", "add", self.address, "peer", GATEWAY, "dev", "eth0")
        _call(*inside, "link", "set", "eth0", "up")
        _call(*inside, "link", "set", "lo", "up")

    def follow(self, state: dict[str, Any]) -> None:
        """Run the boot that the host runs, of the system that was written to its disk."""
        boot = state["boot_id"] or ""
        if boot == self._boot:
            return
        self.end()
        self._boot = boot
        if boot:
            self._start(self._place(state["drive"]))

    def end(self) -> None:
        """Cut its power."""
        self.state.unlink(missing_ok=True)
        if self._process is None:
            return
        with contextlib.suppress(OSError, LookupError):
            os.kill(_find_leader(self._process.pid), signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._process = None

    def disconnect(self) -> None:
        """Remove its network and its file systems."""
        self.end()
        _call("ip", "netns", "del", self._space)
        for root in self._folder.glob("systems/*/root"):
            _call("umount", "--lazy", str(root))

    def _place(self, drive: str) -> Path:
        """Return the root of the system of a configuration drive; a new drive: a new system."""
        volume = gzip.decompress(base64.b64decode(drive))
        own = self._folder / "systems" / hashlib.sha256(volume).hexdigest()[:12]
        root = own / "root"
        if root.exists():
            return root
        for name in ("upper", "work", "root"):
            (own / name).mkdir(parents=True)
        layers = f"lowerdir={self._base},upperdir={own / 'upper'},workdir={own / 'work'}"
        _call("mount", "-t", "overlay", "overlay", "-o", layers, str(root))
        seed = root / "var" / "lib" / "cloud" / "seed" / "nocloud"
        seed.mkdir(parents=True)
        for file, content in read_volume(volume).items():
            (seed / file).write_bytes(content)
        return root

    def _start(self, root: Path) -> None:
        words = [
            "systemd-nspawn",
            "--quiet",
            "--register=no",
            "--keep-unit",
            "--boot",
            "--console=pipe",
        ]
        words += ["--capability=CAP_NET_ADMIN", "--console=pipe"]
        words += [f"--machine={self.node}", f"--directory={root}"]
        words += [f"--network-namespace-path=/run/netns/{self._space}"]
        with (self._folder / "console.log").open("ab") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until = time.monotonic() + UP_S
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(OSError, LookupError):
                leader = _find_leader(self._process.pid)
                self.state.write_text(json.dumps({"boot": self._boot, "leader": leader}))
                return
            time.sleep(0.1)
        told = read_last_lines(self._folder / "console.log")
        raise ToolError(f"the guest of {self.node} did not start{told}")


def read_volume(volume: bytes) -> dict[str, bytes]:
    """Return the files of a small ISO 9660 volume by their Joliet names (ECMA-119, section 9.1)."""
    headers = (volume[at : at + SECTOR] for at in range(16 * SECTOR, len(volume), SECTOR))
    root = next(header[156:190] for header in headers if header[0] == 2)
    at, size = struct.unpack_from("<I", root, 2)[0] * SECTOR, struct.unpack_from("<I", root, 10)[0]
    folder = volume[at : at + size]
    files = {}
    at = 0
    while at < len(folder) and folder[at]:
        place, _, length = struct.unpack_from("<III", folder, at + 2)
        name = folder[at + 33 : at + 33 + folder[at + 32]].decode("utf-16-be", "replace")
        if not folder[at + 25] & 2:  # no folder
            files[name.removesuffix(";1")] = volume[place * SECTOR : place * SECTOR + length]
        at += folder[at]
    return files


def _call(*words: str) -> None:
    run_tool(*words, timeout_s=BUILD_S)


def _find_leader(process: int) -> int:
    """Return the process that is the first one in the guest."""
    return int(Path(f"/proc/{process}/task/{process}/children").read_text().split()[0])


@contextmanager
def run_guest(
    folder: Path, system: Path, node: str, address: str, ask: Callable[..., Any]
) -> Iterator[Guest]:
    """Put a guest behind a host, which it follows until the end. `ask`: of the simulator."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    guest = Guest(folder, build_system(system), node, address)
    over = threading.Event()

    def follow() -> None:
        while not over.wait(LOOK_S):
            guest.follow(ask("GET", "/guests")[node])

    guest.connect()
    program = [sys.executable, str(HERE), str(guest.state)]
    ask("POST", "/guests", {"node": node, "program": program})
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield guest
    finally:
        over.set()
        thread.join()
        guest.disconnect()


def run_line(state: Path, boot: str, line: str) -> int:
    """Run a line in the guest once this boot of it is up, and return its exit code."""
    until = time.monotonic() + UP_S
    while time.monotonic() < until:
        with contextlib.suppress(OSError, ValueError, KeyError):
            runs = json.loads(state.read_text(encoding="utf-8"))
            enter = ("nsenter", "-t", str(runs["leader"]), "-m", "-u", "-i", "-n", "-p")
            up = (*enter, "cloud-init", "status")
            if runs["boot"] == boot and "done" in _read(up):
                return subprocess.run([*enter, "sh", "-c", line], check=False).returncode
        time.sleep(1.0)
    return 255


def _read(words: tuple[str, ...]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout


if __name__ == "__main__":
    sys.exit(run_line(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
