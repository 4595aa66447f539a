"""Network namespaces with real FRRouting in them; the machine's own network sees nothing of it.

A box is a namespace that lives as long as one process of ours; a router is a box with a mount
namespace of its own, so that its VRFs (network namespaces below its /run/netns, as zebra's option
`-n` wants them) are named as on a switch and seen by nobody else. Every process carries "end when
your parent ends": even a killed test run leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

DAEMONS = Path("/usr/lib/frr")
TOOLS = ("unshare", "nsenter", "setpriv", "ip", "mount")
READY_S = 60.0  # a loaded machine; an idle one needs a fraction of a second
CLONE_NEWNET = 0x40000000
ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
DEFAULT = "default"
# zebra's netlink buffer, as Debian's /etc/frr/daemons has it: with less it misses events under load
BUFFER = ("-s", "90000000")
_SYSCTLS = """\
net/ipv4/ip_forward 1
net/ipv6/conf/all/forwarding 1
net/ipv6/conf/default/accept_dad 0
net/ipv4/conf/all/rp_filter 0
net/ipv4/conf/default/rp_filter 0
net/ipv4/icmp_ratelimit 0
net/ipv4/fib_multipath_hash_policy 1"""


def why_not() -> str:
    """Why this machine cannot have such a fabric; "" if it can."""
    if os.geteuid() != 0:
        return "a fabric of network namespaces needs root"
    if missing := [t for t in TOOLS if shutil.which(t) is None]:
        return f"a fabric of network namespaces needs {', '.join(missing)}"
    if not (DAEMONS / "bgpd").exists():
        return "FRRouting is not installed (apt-get install frr)"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "ip", "link", "add", "v0", "type", "veth"],
        capture_output=True,
        check=False,
    )
    return "" if tried.returncode == 0 else "network namespaces are not permitted here"


class Box:
    """One network namespace. `enter` leads into it, `sockets` are opened in it."""

    def __init__(self, name: str, folder: Path, unshared: Sequence[str] = ("--net",)) -> None:
        self.name = name
        self.folder = folder
        folder.mkdir(parents=True)
        self.cabled: dict[str, tuple[str, str]] = {}  # interface -> (box, interface) at its end
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.start("holder", ["unshare", *unshared, "sh", "-c", self._first()])
        self._until((folder / "ready").exists, "its first process")

    def _first(self) -> str:
        return f"ip link set lo up; touch {self.folder}/ready; exec sleep infinity"

    @property
    def pid(self) -> int:
        return self._processes["holder"].pid

    @property
    def enter(self) -> list[str]:
        """The words that lead a command into this box."""
        return ["nsenter", "-t", str(self.pid), "-n"]

    def start(self, name: str, command: Sequence[str]) -> None:
        """A process that is ended with this box at the latest; its words go to a file.

        Also with the thread that calls this: the kernel takes a thread for the parent.
        """
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*ENDS_WITH_US, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def run(self, *command: str, check: bool = True, stdin: str = "") -> str:
        """A command in this box; its output. Raises AssertionError if it fails and `check`."""
        done = subprocess.run(
            [*self.enter, *command], input=stdin, capture_output=True, text=True, check=False
        )
        if check and done.returncode:
            raise AssertionError(f"{self.name}: {command}: {done.stderr or done.stdout}{stdin}")
        return done.stdout

    def ip(self, *lines: str, vrf: str = DEFAULT) -> None:
        """Lines of `ip -batch`, in this box or in one of its VRFs."""
        where = [] if vrf == DEFAULT else ["-n", vrf]
        if lines:
            self.run("ip", *where, "-batch", "-", stdin="\n".join(lines) + "\n")

    def sysctl(self, vrf: str = DEFAULT) -> None:
        """Forward, and take addresses at once."""
        enter = [] if vrf == DEFAULT else ["ip", "netns", "exec", vrf]
        script = 'while read -r key value; do echo "$value" >"/proc/sys/$key"; done'
        self.run(*enter, "sh", "-c", script, stdin=_SYSCTLS + "\n")

    def socket(self, *kind: int, vrf: str = DEFAULT) -> socket.socket:
        """A socket of this box, to be used by anybody: it stays where it was made."""
        made: list[Any] = []
        path = f"/proc/{self.pid}/ns/net"
        if vrf != DEFAULT:
            path = f"/proc/{self.pid}/root/run/netns/{vrf}"

        def inside() -> None:
            libc = ctypes.CDLL(None, use_errno=True)
            descriptor = os.open(path, os.O_RDONLY)
            try:
                if libc.setns(descriptor, CLONE_NEWNET):  # of this thread only, which ends
                    raise OSError(ctypes.get_errno(), "setns")
                made.append(socket.socket(*kind))
            except OSError as error:
                made.append(error)
            finally:
                os.close(descriptor)

        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        if not made or isinstance(made[0], OSError):
            raise AssertionError(f"{self.name}: no socket: {made}")
        return made[0]

    def stop(self, *names: str) -> None:
        """End these processes at once, as a power cut does; without names, the box."""
        chosen = names or tuple(reversed(self._processes))
        ending = [self._processes.pop(name) for name in chosen if name in self._processes]
        for process in ending:
            process.kill()
        for process in ending:
            process.wait(timeout=30)

    def running(self, name: str) -> bool:
        return name in self._processes and self._processes[name].poll() is None

    def _until(self, holds: Any, what: str) -> None:
        until = time.monotonic() + READY_S
        while not holds():
            dead = [n for n, p in self._processes.items() if p.poll() is not None]
            if dead or time.monotonic() > until:
                said = "".join((self.folder / f"{n}.log").read_text() for n in dead)
                raise AssertionError(f"{self.name}: {what} did not come: {dead} {said}")
            time.sleep(0.01)


class Router(Box):
    """A box with zebra, bgpd and staticd. `vrfs`: it has VRFs, each a network namespace."""

    def __init__(self, name: str, folder: Path, *, vrfs: bool = False) -> None:
        self._vrfs = vrfs
        self._sockets = folder / "frr"
        super().__init__(name, folder, ("--net", "--mount", "--uts"))
        self._sockets.mkdir()
        self.sysctl()
        self.boot()

    def _first(self) -> str:
        # the daemons stay root, and insist that they belong to the group of their sockets: seen
        # from here, root does
        groups = f"{self.folder}/group"
        return (
            "set -e; mount --make-rprivate /; mount -t tmpfs run /run; mkdir /run/netns; "
            f"sed '/^frrvty:/s/$/,root/' /etc/group >{groups}; mount --bind {groups} /etc/group; "
            f"hostname {self.name}; {super()._first()}"
        )

    @property
    def enter(self) -> list[str]:
        return ["nsenter", "-t", str(self.pid), "-n", "-m", "-u"]

    def boot(self) -> None:
        """The routing daemons, without any configuration."""
        frr = self._sockets
        for daemon in ("zebra", "staticd", "bgpd"):
            own = [*BUFFER, *(["-n"] if self._vrfs else [])] if daemon == "zebra" else []
            (frr / f"{daemon}.vty").unlink(missing_ok=True)
            (frr / f"{daemon}.conf").write_text(f"hostname {self.name}\n")
            words = [f"{DAEMONS}/{daemon}", *own, "-u", "root", "-g", "root", "-P", "0"]
            words += ["--vty_socket", str(frr), "-z", f"{frr}/zserv.api", "-F", "datacenter"]
            words += ["-i", f"{frr}/{daemon}.pid", "-f", f"{frr}/{daemon}.conf"]
            words += ["--log", "stdout", "--log-level", "warnings"]
            self.start(daemon, [*self.enter, *words])
            self._until((frr / f"{daemon}.vty").exists, daemon)

    def halt(self) -> None:
        """The daemons' end; their routes go with them only if somebody takes them away."""
        self.stop("bgpd", "staticd", "zebra")

    def show(self, daemon: str, command: str) -> str:
        """What a daemon answers to one command."""
        return self.ask(daemon, (command,))[0]

    def ask(self, daemon: str, commands: Iterable[str], *, strict: bool = True) -> list[str]:
        """Commands over a daemon's own socket, as `vtysh` sends them: text, NUL; the answer ends
        with three NULs and a status. Raises AssertionError for a refused one if `strict`."""
        answers = []
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(READY_S)
            line.connect(str(self._sockets / f"{daemon}.vty"))
            for command in ("enable", *commands):
                line.sendall(command.encode() + b"\0")
                text, status = _answer(line)
                if strict and status not in (0, 1):  # 1: a warning
                    raise AssertionError(f"{self.name} {daemon}: {command!r}: {status} {text}")
                answers.append(text)
        return answers[1:]

    def configure(self, daemon: str, lines: Iterable[str], *, strict: bool = True) -> None:
        """Configuration, line by line, behind everybody's back."""
        self.ask(daemon, ("configure terminal", *lines, "end"), strict=strict)


def _answer(line: socket.socket) -> tuple[str, int]:
    got = bytearray()
    while len(got) < 4 or bytes(got[-4:-1]) != b"\0\0\0":
        part = line.recv(1 << 16)
        if not part:
            raise AssertionError(f"a daemon hung up: {bytes(got[-200:])!r}")
        got += part
    return got[:-4].decode(errors="replace"), got[-1]


def cable(one: Box, name: str, other: Box, other_name: str, mtu: int = 9216) -> None:
    """A cable between two boxes, both ends up."""
    one.ip(f"link add {name} mtu {mtu} type veth peer name {other_name} netns {other.pid}")
    one.ip(f"link set {name} up")
    other.ip(f"link set {other_name} mtu {mtu}", f"link set {other_name} up")
    one.cabled[name] = (other.name, other_name)
    other.cabled[other_name] = (one.name, name)


@contextlib.contextmanager
def ending(boxes: list[Box]) -> Any:
    """All of these boxes end, whatever happens."""
    try:
        yield boxes
    finally:
        for box in boxes:
            box.stop()
