"""Starts the real ironic-python-agent in namespaces of its own, and ends it with its test.

`why_not()` says what the machine does not permit. Every process carries "end when your parent
ends", so that a killed test run leaves nothing.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
READY_S = 60.0  # a loaded machine; an idle one needs milliseconds
TOOLS = ("unshare", "setpriv", "ip", "mount")
DISK_BYTES = 4 << 20
MARK = b"what a tenant left behind "
NOBODY = 65534
numbers = itertools.count()


@dataclass(frozen=True)
class Link:
    """One veth pair: `gateway` is our end, `address` the agent's (RFC 2544 benchmark range)."""

    name: str
    gateway: str
    address: str


@dataclass
class RealAgent:
    """A running agent. `state` is what it sees as /run/state."""

    process: subprocess.Popen[bytes]
    state: Path
    link: Link

    @property
    def disks(self) -> list[Path]:
        return sorted(self.state.glob("disk*"))

    @property
    def log(self) -> str:
        return (self.state / "log").read_text(errors="replace")


@functools.cache
def why_not() -> str:
    """Why an agent cannot be started here; "" if it can."""
    if os.geteuid() != 0:
        return "needs root for namespaces"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} is not installed"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "mount", "-t", "tmpfs",
         "none", "/mnt"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tried.returncode:
        return f"namespaces are not permitted here: {tried.stderr.strip()[:200]}"
    ours, its = f"ag0p{os.getpid()}", f"ag1p{os.getpid()}"  # others may try at this moment
    made = subprocess.run(
        ["ip", "link", "add", ours, "type", "veth", "peer", "name", its],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    subprocess.run(["ip", "link", "delete", ours], capture_output=True, check=False)
    return f"no veth pairs here: {made.stderr.strip()[:200]}" if made.returncode else ""


@contextlib.contextmanager
def link() -> Iterator[Link]:
    """A cable with addresses, for one agent; our end is there at once, so that we can listen."""
    number = (os.getpid() * 16 + next(numbers)) % (1 << 15)
    first = (198 << 24) + (18 << 16) + number * 4
    ours, its = (".".join(str((first + n) >> s & 255) for s in (24, 16, 8, 0)) for n in (1, 2))
    made = Link(f"agt{number}", ours, its)
    lay(made)
    try:
        # when the agent is gone, so is the cable: nothing shall leave this machine for it then
        ip("route", "add", "unreachable", its, "metric", "4000")
        yield made
    finally:
        subprocess.run(["ip", "route", "delete", "unreachable", its], check=False)
        subprocess.run(["ip", "link", "delete", made.name], capture_output=True, check=False)


def lay(cable: Link) -> None:
    """Lay the cable, also in the place of one that an agent took with it."""
    ip("link", "add", cable.name, "type", "veth", "peer", "name", f"{cable.name}p")
    ip("address", "add", cable.gateway, "peer", cable.address, "dev", cable.name)
    ip("link", "set", cable.name, "up")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextlib.contextmanager
def real_agent(
    folder: Path,
    cable: Link,
    api_url: str,
    ca_pem: str,
    mac: str,
    disks: int = 2,
    state: Path | None = None,
    more: tuple[str, ...] = (),
) -> Iterator[RealAgent]:
    """An agent with scratch disks full of MARK; its first call comes within some seconds.

    `state` of an earlier one: the same machine boots again. `more` are options of agent_process.
    """
    state = state or folder / f"agent{next(numbers)}"
    state.mkdir(exist_ok=True)
    (state / "ca.pem").write_text(ca_pem)
    for name in ("ready", "linked"):
        (state / name).unlink(missing_ok=True)
    for number in range(disks):
        if not (state / f"disk{number}").exists():
            content = (MARK * (DISK_BYTES // len(MARK) + 1))[:DISK_BYTES]
            (state / f"disk{number}").write_bytes(content)
    for path in (state, *state.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    readable = ":".join(dict.fromkeys((sys.base_prefix, sys.prefix)))
    options = (
        "--mac", mac, "--disks", str(disks), "--api_url", api_url, "--cafile", "/run/state/ca.pem",
        "--image_download_connection_retries", "0", "--lookup_interval", "1",
        "--disk_wait_attempts", "0", *more,
    )  # fmt: skip
    with (state / "log").open("ab") as log:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork",
             "--kill-child", "--mount-proc", "sh", str(HERE / "enter.sh"), str(state), str(HERE),
             cable.address, cable.gateway, readable, sys.executable, *options],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        plug(process, state, cable)
        yield RealAgent(process, state, cable)
    finally:
        first = first_process(process.pid)
        process.kill()
        process.wait()
        assert gone(first), "the agent outlives its test"


def first_process(unshare: int) -> int | None:
    """The process that its namespace ends with, as this machine knows it."""
    with contextlib.suppress(OSError):
        for pid in Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split():
            return int(pid)
    return None


def gone(pid: int | None) -> bool:
    """Whether this process has ended, or ends soon."""
    until = time.monotonic() + READY_S
    while pid is not None and time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return pid is None


def plug(process: subprocess.Popen[bytes], state: Path, cable: Link) -> None:
    """Give the agent's namespace its end of the cable."""
    until = time.monotonic() + READY_S
    while not (state / "ready").exists():
        assert process.poll() is None, (state / "log").read_text()
        assert time.monotonic() < until, "the namespaces were not made in time"
        time.sleep(0.02)
    ip("link", "set", f"{cable.name}p", "netns", str(process.pid), "name", "eth0")
    (state / "linked").touch()
