"""The trial of mounts against a real NFS server: NFS-Ganesha and libnfs in network namespaces.

Debian's packages, also unpacked elsewhere (`dpkg -x` of nfs-ganesha, nfs-ganesha-mem, libntirpc4.3,
libnfs-utils, libnfs13, libnfsidmap1, libwbclient0, liburcu8; NFS_ROOT names the place). Where the
kernel's client is installed, the line takes that one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from frr_boxes import TOOLS, Box, cable

from provisioner.integrations.vast.mount_trials import judge_trial, write_trial
from provisioner.model.recovery import GateCheck, RowVerdict
from provisioner.model.storage import SeenExport, SpaceState, make_set_of
from provisioner.ports import ShellOutput

ROOT = Path(os.environ.get("NFS_ROOT", "/"))
SERVER = ROOT / "usr/bin/ganesha.nfsd"
LIBRARIES = f"{ROOT}/usr/lib/ganesha:{ROOT}/usr/lib/x86_64-linux-gnu"
NODES = {"red": "10.9.1.2", "blue": "10.9.2.2"}
AT = "10.9.0.1"
OPEN, SHUT = GateCheck.STORAGE_OPEN, GateCheck.STORAGE_SHUT
PASS, FAIL, UNKNOWN = RowVerdict.PASS, RowVerdict.FAIL, RowVerdict.UNKNOWN
CONFIG = """
NFS_CORE_PARAM { Protocols = 4; NFS_Port = 2049; Enable_NLM = false; Enable_RQUOTA = false;
  Enable_UDP = false; Plugins_Dir = "PLUGINS"; }
NFSV4 { Graceless = true; UseGetpwnam = true; Only_Numeric_Owners = true; }
LOG { Default_Log_Level = WARN; }
"""
EXPORT = """
EXPORT { Export_Id = NUMBER; Path = "/NAME/scratch"; Pseudo = "/NAME/scratch"; Protocols = 4;
  Access_Type = NONE; SecType = sys; CLIENT { Clients = CLIENTS; Access_Type = RW; Protocols = 4; }
  FSAL { Name = MEM; } }
"""


def why_not() -> str:
    if os.geteuid() != 0 or any(shutil.which(t) is None for t in TOOLS):
        return "network namespaces need root and iproute2"
    client = shutil.which("nfs-ls", path=f"{ROOT}/usr/bin") or shutil.which("mount.nfs")
    missing = not SERVER.exists() or client is None
    return "NFS-Ganesha or libnfs is not installed (or NFS_ROOT)" if missing else ""


pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(why_not()), reason=why_not())]


class Lab:
    """A server with an export for each tenant, and a node of each behind a cable of its own."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self.folder = folder
        self.server = Box("server", folder / "server", ("--net", "--mount"))
        stack.callback(self.server.stop)
        self.server.ip(f"addr add {AT}/32 dev lo")
        self.nodes = {}
        for number, (name, address) in enumerate(NODES.items(), 1):
            box = self.nodes[name] = Box(name, folder / name)
            stack.callback(box.stop)
            cable(self.server, f"swp{number}", box, "eth0")
            self.server.ip(f"addr add 10.9.{number}.1/24 dev swp{number}")
            box.ip(f"addr add {address}/24 dev eth0", f"route add {AT}/32 via 10.9.{number}.1")

    def serve(self, clients: Mapping[str, str]) -> None:
        """Start the server anew: of each tenant, whom it lets in."""
        self.server.stop("nfsd")
        text = CONFIG.replace("PLUGINS", f"{ROOT}/usr/lib/x86_64-linux-gnu/ganesha")
        for number, (name, listed) in enumerate(clients.items(), 1):
            part = EXPORT.replace("NUMBER", str(number)).replace("NAME/", f"{name}/")
            text += part.replace("CLIENTS", listed)
        (self.folder / "ganesha.conf").write_text(text)
        enter = ["nsenter", "-t", str(self.server.pid), "-n", "-m"]
        mounts = "mount -t tmpfs run /run; mkdir -p /run/ganesha; mount -t tmpfs lib /var/lib; "
        words = f"mkdir -p /var/lib/nfs/ganesha; LD_LIBRARY_PATH={LIBRARIES} exec {SERVER} -F"
        words += f" -L /dev/stderr -p /run/g.pid -f {self.folder}/ganesha.conf"
        self.server.start("nfsd", [*enter, "sh", "-c", mounts + words])
        until = time.monotonic() + 60.0
        while not self._listens():
            log = (self.server.folder / "nfsd.log").read_text()
            assert self.server.running("nfsd"), log
            assert time.monotonic() < until, log
            time.sleep(0.1)

    def _listens(self) -> bool:
        made = self.server.socket(socket.AF_INET, socket.SOCK_STREAM)
        with contextlib.closing(made):
            return made.connect_ex((AT, 2049)) == 0

    def tries(self, name: str, path: str | None = None) -> list[tuple[GateCheck, RowVerdict, str]]:
        """What the node of a tenant shows, its own export first."""
        other = next(n for n in NODES if n != name)
        seen = {space: make_space(space) for space in (name, other)}
        command = write_trial(seen)
        assert command is not None
        tools = path or f"{ROOT}/usr/bin:{os.environ['PATH']}"
        done = subprocess.run(
            [*self.nodes[name].enter, "env", f"PATH={tools}", f"LD_LIBRARY_PATH={LIBRARIES}",
             "/bin/sh", "-c", command.line],
            capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip
        rows = judge_trial(name, seen, ShellOutput(done.returncode, done.stdout, done.stderr))
        return [(row.check, row.verdict, row.seen) for row in rows]


def make_space(name: str) -> SpaceState:
    clients = make_set_of([NODES[name]])
    mount = f"{AT}:/{name}/scratch"
    export = SeenExport("scratch", "/scratch", False, True, clients, mount=mount)
    return SpaceState(handle=name, clients=clients, exports={"scratch": export})


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with contextlib.ExitStack() as stack:
        yield Lab(tmp_path_factory.mktemp("nfs") / "lab", stack)


def verdicts(rows: list[tuple[GateCheck, RowVerdict, str]]) -> list[tuple[GateCheck, RowVerdict]]:
    return [(check, verdict) for check, verdict, _ in rows]


def test_a_node_mounts_its_own_export_and_is_refused_anothers(lab: Lab) -> None:
    lab.serve(NODES)

    for name in NODES:
        assert verdicts(lab.tries(name)) == [(OPEN, PASS), (SHUT, PASS)], lab.tries(name)


@pytest.mark.parametrize(
    ("clients", "shown"),
    [
        # a rule that lets anybody in is found by the mount, whatever was read back
        ({"red": NODES["red"], "blue": "*"}, [(OPEN, PASS), (SHUT, FAIL)]),
        ({"red": NODES["red"], "blue": "10.9.0.0/16"}, [(OPEN, PASS), (SHUT, FAIL)]),
        # who is refused its own proves nothing by being refused another's
        ({"red": "10.9.1.7", "blue": NODES["blue"]}, [(OPEN, FAIL), (SHUT, UNKNOWN)]),
        ({"red": NODES["blue"], "blue": NODES["red"]}, [(OPEN, FAIL), (SHUT, FAIL)]),
    ],
)
def test_what_the_server_does_decides(
    lab: Lab, clients: Mapping[str, str], shown: list[tuple[GateCheck, RowVerdict]]
) -> None:
    lab.serve(clients)

    assert verdicts(lab.tries("red")) == shown, lab.tries("red")


def test_a_server_that_is_gone_is_no_refusal(lab: Lab) -> None:
    lab.server.stop("nfsd")

    assert verdicts(lab.tries("red")) == [(OPEN, FAIL), (SHUT, UNKNOWN)]


def test_a_host_without_a_client_says_so(lab: Lab, tmp_path: Path) -> None:
    rows = lab.tries("red", path=str(tmp_path))

    assert [(check, verdict) for check, verdict, _ in rows] == [(OPEN, RowVerdict.NONE)]
    assert "by the rules alone" in rows[0][2]
