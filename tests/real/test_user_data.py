"""A tenant's user data in a real system: Debian's cloud-init carries it out at the next boot alone.

The system is that of the acceptance run (docs/examples/acceptance/guest_host.py), which mmdebstrap
builds once; it boots under systemd-nspawn, in namespaces.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.model.node import Node, NodeKind
from provisioner.model.recovery import RowVerdict
from provisioner.planning.release.tenant_login import (
    SEED,
    build_placement,
    build_removal,
    judge_placement,
    judge_removal,
)

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "examples" / "acceptance"))
from guest_host import build_system, find_obstacle  # noqa: E402

pytestmark = pytest.mark.long
NODE = Node(id="h0", kind=NodeKind.HOST)
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
OURS = {
    "users": [{"name": "provisioner", "lock_passwd": True, "ssh_authorized_keys": [KEY]}],
    "disable_root": True,
}
CONFIG = "#cloud-config\nruncmd:\n- [sh, -c, 'echo config >> /srv/ran']\n"
SCRIPT = "#!/bin/sh\necho script >> /srv/ran\n"
UP_S = 300.0


class Guest:
    """A system in a folder that boots, runs lines as root, and loses its power."""

    def __init__(self, root: Path, log: Path) -> None:
        self.root = root
        self._log = log
        self._leader = ""
        self._process: subprocess.Popen[bytes] | None = None

    def boot(self) -> None:
        words = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot"]
        words += ["--console=pipe", "--private-network", "--machine=h0", f"--directory={self.root}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        until = time.monotonic() + UP_S
        while time.monotonic() < until and self._process.poll() is None:
            self._leader = "".join(children.read_text().split()[:1])
            if self._leader and "done" in self.run("cloud-init status"):
                return
            time.sleep(0.5)
        raise AssertionError(self._log.read_text(errors="replace")[-2000:])

    def run(self, line: str, sent: str = "") -> str:
        enter = ("nsenter", "-t", self._leader, "-m", "-u", "-i", "-n", "-p", "sh", "-c", line)
        done = subprocess.run(
            enter, input=sent, capture_output=True, text=True, check=False, timeout=120
        )
        return done.stdout

    def end(self) -> None:
        if self._process is not None:
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(self._leader), signal.SIGKILL)
            self._process.kill()
            self._process.wait()


@pytest.fixture
def guest(tmp_path: Path) -> Iterator[Guest]:
    if obstacle := find_obstacle():
        pytest.skip(obstacle)
    base = build_system(ROOT / "build" / "acceptance-guest")
    for name in ("upper", "work", "root"):
        (tmp_path / name).mkdir()
    root = tmp_path / "root"
    layers = f"lowerdir={base},upperdir={tmp_path / 'upper'},workdir={tmp_path / 'work'}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, str(root)], check=True)
    seed = root / SEED.lstrip("/")
    seed.mkdir(parents=True)
    (seed / "meta-data").write_text(json.dumps({"instance-id": "h0-1", "local-hostname": "h0"}))
    (seed / "user-data").write_text("#cloud-config\n" + json.dumps(OURS))
    one = Guest(root, tmp_path / "console.log")
    try:
        yield one
    finally:
        one.end()
        subprocess.run(["umount", "--lazy", str(root)], check=True)


@pytest.mark.parametrize(("text", "ran"), [(CONFIG, "config\n"), (SCRIPT, "script\n")])
def test_it_runs_once_and_not_before_the_tenants_boot(guest: Guest, text: str, ran: str) -> None:
    guest.boot()
    host_keys = guest.run("cat /etc/ssh/ssh_host_*_key.pub")
    placed = judge_placement(NODE, text, guest.run(build_placement(NODE, "v1"), text))
    removal = guest.run(build_removal("provisioner", KEY, seeded=True))
    before = guest.run("cat /srv/ran 2>/dev/null")
    guest.end()
    guest.boot()
    after = guest.run("cat /srv/ran")
    account = guest.run("getent passwd provisioner")
    kept = guest.run("cat /etc/ssh/ssh_host_*_key.pub")
    guest.end()
    guest.boot()

    assert placed.verdict is RowVerdict.PASS, placed
    assert judge_removal(NODE, removal, admitted=False).verdict is RowVerdict.PASS
    assert (before, after, account) == ("", ran, "")
    assert kept == host_keys != ""
    assert guest.run("cat /srv/ran") == ran
