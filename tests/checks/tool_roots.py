"""Root directories of Debian suites with the tools of the checks, in which their lines are run.

mmdebstrap unpacks the packages without installing them. A suite stands for every distribution that
has the same upstream version, or one between two suites' versions; `distributions.toml` has both.
Files below /sys are those that a check's good example lists: the programs that read them are real.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from provisioner.model.cohort import Evidence

SUITES = ("bullseye", "bookworm", "trixie")
PACKAGES = (
    "base-files,dash,mawk,coreutils,grep,sed,util-linux,ipmitool,smartmontools,lldpd,ethtool,"
    "iputils-ping,iproute2,fio,stress-ng,perftest,perl-base"
)
# lldpd keeps its unprivileged half in a directory of a user that its package makes
ACCOUNTS = "root:x:0:0:::\n_lldpd:x:101:101:::\n"
RAILS = (("enp24s0np0", "leaf-su0-r0", "swp1s0"), ("enp64s0np0", "leaf-su0-r1", "swp1s0"))
VERSIONS = {
    "lscpu": "lscpu -V", "dmesg": "dmesg -V", "df": "df --version", "ipmitool": "ipmitool -V",
    "lldpctl": "lldpd -v", "smartctl": "smartctl -V", "ethtool": "ethtool --version",
    "ping": "ping -V", "ip": "ip -V", "fio": "fio --version", "stress-ng": "stress-ng --version",
    "ib_write_bw": "ib_write_bw --version",
}  # fmt: skip
SEND = """
import socket, sys, time
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as leaf:
    leaf.bind((sys.argv[1], 0))
    while True:
        leaf.send(bytes.fromhex(sys.argv[2]))
        time.sleep(0.5)
"""
# ipmitool(1), sel add: revision, sensor type and number, type and three bytes of the event
EVENTS = "0x04 0x12 0x83 0x6f 0x05 0x00 0xff\n0x04 0x08 0x51 0xef 0x03 0xff 0xff\n"
_MOUNTS = (
    "mount --bind {root} {root} && mount --bind /proc {root}/proc"
    " && mount --rbind /dev {root}/dev && cd {root} && "
)
# a component of a path has a colon in it where it is a PCI address
_NAMED = re.compile(r"(/sys/(?:[^/:]+/|[^/]*[0-9a-f]{4}:[0-9a-f]{2}[^/]*/)*[^/:]+):(.*)")
_SYS = "mount --rbind /sys {root}/sys && "


def why_not() -> str:
    """Return the reason why no root directory can be made here; "" if there is none."""
    if os.geteuid() != 0:
        return "needs root to enter a root directory"
    if shutil.which("mmdebstrap") is None:
        return "mmdebstrap is not installed: apt install mmdebstrap"
    return ""


@dataclass(frozen=True)
class Root:
    """One suite's tools, in a directory of their own."""

    suite: str
    path: Path

    def run(self, line: str, *, devices: bool = False, space: str = "", asks: str = "") -> Evidence:
        """Run a command line as a check does, with /proc and /dev of this machine.

        `devices`: with its /sys instead of files of ours. `space`: in a network namespace. `asks`
        is the check's own line, where another one with fewer seconds stands for it.
        """
        mounts = _MOUNTS.replace("cd {root}", _SYS + "cd {root}") if devices else _MOUNTS
        entered = mounts.format(root=self.path) + 'exec chroot . /bin/sh -c "$0"'
        inside = ["ip", "netns", "exec", space] if space else []
        done = subprocess.run(
            [*inside, "unshare", "-m", "sh", "-c", entered, line],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TZ": "UTC"},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return Evidence(source=asks or line, exit_code=done.returncode, text=done.stdout)

    def lay(self, listed: str) -> None:
        """Write the files that lines of `grep -H` name, with their values."""
        texts: dict[str, list[str]] = {}
        for row in listed.splitlines():
            if parts := _NAMED.fullmatch(row):
                texts.setdefault(parts[1], []).append(parts[2])
        for name, rows in texts.items():
            file = self.path / name.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{row}\n" for row in rows))
            if name.startswith("/sys/devices/pci"):
                link = self.path / "sys/bus/pci/devices" / file.parent.name
                link.parent.mkdir(parents=True, exist_ok=True)
                if not link.is_symlink():
                    link.symlink_to(os.path.relpath(file.parent, link.parent))

    def read_version(self, tool: str) -> str:
        """Return the version that a tool names itself."""
        text = self.run(f"{VERSIONS[tool]} 2>&1").text
        named = re.search(r"\d+(?:\.\d+)+|\b20\d{6}\b", text)
        assert named is not None, text
        return named[0]


def make_root(suite: str, folder: Path) -> Root | None:
    """Unpack the tools of a suite; None where its mirror cannot be reached."""
    path = folder / suite
    done = subprocess.run(
        ["mmdebstrap", "--variant=extract", f"--include={PACKAGES}", suite, str(path),
         "http://deb.debian.org/debian"],
        capture_output=True, timeout=300, check=False,
    )  # fmt: skip
    if done.returncode:
        return None
    (path / "usr/bin/awk").symlink_to("mawk")  # by update-alternatives where it is installed
    (path / "etc/passwd").write_text(ACCOUNTS)
    (path / "etc/group").write_text("root:x:0:\n_lldpd:x:101:\n")
    (path / "run/lldpd").mkdir(parents=True)
    (path / "srv").mkdir(exist_ok=True)
    return Root(suite, path)


@contextmanager
def open_neighbours(root: Root) -> Iterator[str]:
    """Cable a host with lldpd to the leaves of `context.json`; yield the host's namespace.

    Each leaf is a namespace that sends frames in the form of IEEE 802.1AB, as a switch does.
    """
    name = f"lldp-{os.getpid()}-{root.suite}"
    spaces = [f"{name}-{n}" for n in range(len(RAILS))]
    started: list[subprocess.Popen[bytes]] = []
    _call(*(f"ip netns add {space}" for space in (name, *spaces)))
    try:
        for (own, leaf, port), space in zip(RAILS, spaces, strict=True):
            _call(
                f"ip -n {name} link add {own} type veth peer name {port} netns {space}",
                f"ip -n {name} link set {own} up",
                f"ip -n {space} link set {port} up",
            )
            send = [sys.executable, "-c", SEND, port, build_frame(leaf, port).hex()]
            started.append(subprocess.Popen(["ip", "netns", "exec", space, *send]))
        line = f"exec lldpd -d -I {','.join(own for own, _, _ in RAILS)} 2>/dev/null"
        entered = _MOUNTS.format(root=root.path) + 'exec chroot . /bin/sh -c "$0"'
        words = ["ip", "netns", "exec", name, "unshare", "-m", "sh", "-c", entered, line]
        started.append(subprocess.Popen(words))
        yield name
    finally:
        for process in started:
            process.terminate()
            process.wait()
        for space in (name, *spaces):
            subprocess.run(["ip", "netns", "del", space], check=False)


def build_frame(leaf: str, port: str) -> bytes:
    """Return an LLDP frame: chassis by MAC, port by name, two minutes to live, system name."""
    address = bytes.fromhex("9c05910000") + leaf[-1:].encode()
    pairs = (
        (1, b"\x04" + address),
        (2, b"\x05" + port.encode()),
        (3, (120).to_bytes(2, "big")),
        (5, leaf.encode()),
        (0, b""),
    )
    units = b"".join((kind << 9 | len(v)).to_bytes(2, "big") + v for kind, v in pairs)
    return bytes.fromhex("0180c200000e") + address + b"\x88\xcc" + units


def _call(*lines: str) -> None:
    for line in lines:
        subprocess.run(line.split(), check=True, capture_output=True)


@contextmanager
def open_rails(root: Root) -> Iterator[str]:
    """Cable the two rails of `context.json` to one leaf; yield the host's namespace."""
    host, leaf = (f"rails-{os.getpid()}-{root.suite}-{end}" for end in ("host", "leaf"))
    _call(f"ip netns add {host}", f"ip netns add {leaf}")
    try:
        for number, net in ((1, "172.0.0"), (2, "172.32.0")):
            _call(
                f"ip -n {host} link add ens{number}np0 mtu 9216 type veth"
                f" peer name swp{number} mtu 9216 netns {leaf}",
                f"ip -n {host} address add {net}.0/31 dev ens{number}np0",
                f"ip -n {leaf} address add {net}.1/31 dev swp{number}",
                f"ip -n {host} link set ens{number}np0 up",
                f"ip -n {leaf} link set swp{number} up",
                f"ip -n {host} route add default via {net}.1 table {100 + number}",
                f"ip -n {host} rule add from {net}.0 table {100 + number}",
            )
        yield host
    finally:
        for space in (host, leaf):
            subprocess.run(["ip", "netns", "del", space], check=False)


def read_events(root: Root, port: int, password: str) -> str:
    """Return `sel elist` of this suite's ipmitool, after two events that it adds to a BMC.

    The BMC has no sensor records, which ipmitool says in two lines before the events.
    """
    given = f"ipmitool -I lanplus -H 127.0.0.1 -p {port} -U provisioner -E"
    for words in ("sel time set now", "sel add /srv/events", "sel elist"):
        (root.path / "srv/events").write_text(EVENTS)
        done = subprocess.run(
            ["chroot", str(root.path), *f"{given} {words}".split()],
            env={"IPMI_PASSWORD": password, "TZ": "UTC", "PATH": "/usr/sbin:/usr/bin:/bin"},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    return "".join(r for r in done.stdout.splitlines(keepends=True) if "|" in r)
