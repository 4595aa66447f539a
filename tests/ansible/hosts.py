"""Throw-away hosts for Ansible: real sshd, own root, network and boot id; nothing of ours stays.

`with hosts(3, folder) as (a, b, c):` takes about a second. A host is a network, mount, pid and
hostname namespace; its root is the machine's through an overlay on a small tmpfs (its "disk"),
its /dev has no disk, its /sys is an empty folder for fakes, and `shutdown` reboots it. It needs
root; `why_not()` says what is missing. Every process carries "end when your parent ends", so that
even a killed test run leaves nothing.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
READY_S = 60.0  # a loaded machine; an idle one needs a second
TOOLS = ("unshare", "nsenter", "setpriv", "ip", "ssh", "ssh-keygen", "pivot_root", "/usr/sbin/sshd")

_SSHD = """\
Port 22
ListenAddress {address}
HostKey /etc/provisioner-test/host_key
AuthorizedKeysFile /etc/provisioner-test/authorized
StrictModes no
UsePAM no
UseDNS no
PermitRootLogin prohibit-password
PasswordAuthentication no
PidFile none
LogLevel ERROR
Subsystem sftp internal-sftp
MaxStartups 100:30:200
MaxSessions 100
SetEnv SHLVL=2 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""


@dataclass(frozen=True)
class Host:
    """One throw-away host; log in as root with `key`, its host key is in `known_hosts`."""

    name: str
    address: str
    port: int
    key: Path
    known_hosts: Path
    folder: Path
    supervisor: int  # pid that owns the network namespace

    @property
    def netns(self) -> Path:
        """For `nsenter --net=`."""
        return Path(f"/proc/{self.supervisor}/ns/net")

    @property
    def boot_id(self) -> str:
        return (self.folder / "boot_id").read_text().strip()

    def run(
        self, command: str, *, check: bool = True, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """A shell command inside the host, without ssh; raises if it fails and `check`."""
        done = subprocess.run(
            ["nsenter", "-t", str(self._first()), "-m", "-u", "-p", "-n", "sh", "-c", command],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise AssertionError(f"{self.name}: {command!r}: {done.returncode}: {done.stderr}")
        return done

    def put(self, path: str, text: str, mode: int = 0o644) -> None:
        self.run(
            f"mkdir -p '{Path(path).parent}' && cat >'{path}' && chmod {mode:o} '{path}'",
            stdin=text,
        )

    def get(self, path: str) -> str:
        return self.run(f"cat '{path}'").stdout

    def copy(self, source: Path, target: str) -> None:
        """The content of a folder of ours into a folder of the host's."""
        packed = subprocess.run(["tar", "-C", source, "-c", "."], capture_output=True, check=True)
        command = f"mkdir -p '{target}' && tar -C '{target}' --no-same-owner -x"
        subprocess.run(
            ["nsenter", "-t", str(self._first()), "-m", "-p", "sh", "-c", command],
            input=packed.stdout,
            check=True,
        )

    def runs(self, word: str) -> bool:
        """Whether a process has these words on its command line."""
        hidden = f"[{word[0]}]{word[1:]}"  # grep's own command line does not match
        found = self.run(
            f"cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -a '{hidden}'", check=False
        )
        return found.returncode == 0

    def power_off(self) -> None:
        """At once, as if the cable were pulled; its disk stays."""
        (self.folder / "off").touch()
        (self.folder / "cold").touch()
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(self._first(), signal.SIGKILL)
        until = time.monotonic() + READY_S
        while (self.folder / "pid").exists() and time.monotonic() < until:
            time.sleep(0.02)

    def boot(self) -> None:
        """Power on (a cold boot) and wait for sshd."""
        (self.folder / "off").unlink(missing_ok=True)
        self.wait()

    def wait(self, not_boot: str = "") -> None:
        """Until sshd answers, under another boot id than `not_boot`."""
        until = time.monotonic() + READY_S
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(self.at, timeout=1.0):
                if self.boot_id != not_boot and (self.folder / "pid").exists():
                    return
            time.sleep(0.03)
        raise AssertionError(f"{self.name} does not answer; see {self.folder}/log")

    @property
    def at(self) -> tuple[str, int]:
        return (self.address, self.port)

    def _first(self) -> int:
        return int((self.folder / "pid").read_text())


def why_not() -> str:
    """Why this machine cannot have such hosts; "" if it can."""
    if os.geteuid() != 0:
        return "throw-away hosts need root"
    if missing := [t for t in TOOLS if shutil.which(t) is None]:
        return f"throw-away hosts need {', '.join(missing)}"
    made = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False
    )
    if made.returncode != 0:
        return "namespaces are not permitted here"
    return (
        "" if has_own_root() else "throw-away hosts are not made in a chroot: they would leave it"
    )


def has_own_root() -> bool:
    """Whether our root is that of our mount namespace; nsenter comes out at the latter."""
    command = ["nsenter", "--mount=/proc/self/ns/mnt", "stat", "-c", "%d:%i", "/"]
    entered = subprocess.run(command, capture_output=True, text=True, check=False)
    own = Path("/").stat()
    return entered.stdout.strip() == f"{own.st_dev}:{own.st_ino}"


@contextlib.contextmanager
def hosts(
    count: int, folder: Path, *, disk_mib: int = 256, boot_s: float = 0.2
) -> Iterator[list[Host]]:
    """That many hosts, answering. `folder` is for keys and logs; `boot_s`: how long a reboot is."""
    folder.mkdir(parents=True, exist_ok=True)
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]
    subprocess.run([*keygen, folder / "id"], check=True)
    with contextlib.ExitStack() as stack:
        made = []
        for number in range(1, count + 1):
            own = folder / f"host-{number}"
            own.mkdir()
            subprocess.run([*keygen, own / "host_key"], check=True)
            shutil.copy(folder / "id.pub", own / "authorized")
            made.append(stack.enter_context(_host(own, folder / "id", disk_mib, boot_s)))
        with (folder / "known_hosts").open("w") as file:
            for host in made:
                file.write(f"{host.address} {(host.folder / 'host_key.pub').read_text()}")
        for host in made:
            host.wait()
        yield made


@contextlib.contextmanager
def _host(own: Path, key: Path, disk_mib: int, boot_s: float) -> Iterator[Host]:
    gateway, address = _addresses()
    (own / "sshd_config").write_text(_SSHD.format(address=address))
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount"]
    command += ["sh", str(HERE / "host_supervisor.sh"), str(own), own.name]
    command += [address, gateway, str(disk_mib), str(boot_s)]
    with (own / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        until = time.monotonic() + READY_S
        while not (own / "ready").exists():
            if process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"{own.name} did not start: {(own / 'log').read_text()}")
            time.sleep(0.01)
        _link(process.pid, gateway, address)
        (own / "linked").touch()
        host = Host(own.name, address, 22, key, own.parent / "known_hosts", own, process.pid)
        yield host
    finally:
        process.kill()  # its namespaces, and all in them, end with it
        process.wait(timeout=30)


def _addresses() -> tuple[str, str]:
    """A pair from the shared address space (RFC 6598); a collision is told by the kernel."""
    value = random.SystemRandom().randrange(1 << 21) * 2  # another process takes others
    base = f"100.{64 + (value >> 16)}.{(value >> 8) & 255}"
    return f"{base}.{value & 255}", f"{base}.{(value & 255) + 1}"


def _link(pid: int, gateway: str, address: str) -> None:
    name = f"th{pid}"
    for words in (
        ["link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(pid)],
        ["address", "add", gateway, "peer", address, "dev", name],
        ["link", "set", name, "up"],
    ):
        subprocess.run(["ip", *words], check=True, capture_output=True)
