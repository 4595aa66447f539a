"""Detached processes: started to outlive us, identified by a mark, ended completely.

A killed process group is not enough: Ansible's workers make sessions of their own, and ssh's
masters stay (facts: ansible 1). All processes of a run carry its id in their environment; where the
kernel permits, the run is in a cgroup of its own too, whose kill reaches every process (Linux
5.14).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from provisioner.adapters.playbooks.folder import RunFolder
from provisioner.adapters.playbooks.inventory import MARK, OUTPUT

LOCK_DESCRIPTOR = 9  # the descriptor under which the wrapper inherits the lock
KILL_ROUNDS = 50  # 0.1 s apart: a process in the middle of a disk write dies late

# `"$@"` runs with the lock held by the shell and by ansible-runner; rc appears whole or not at all
_WRAPPER = """\
trap "" HUP
[ -z "$2" ] || echo 0 >"$2/cgroup.procs" || :
cd "$1" || exit 1
folder=$1
shift 2
"$@"
code=$?
umask 077
echo $code >"$folder/rc.new" && mv "$folder/rc.new" "$folder/rc"
"""


def start(
    folder: RunFolder, lock: int, command: Sequence[str], environment: Mapping[str, str]
) -> int:
    """Start the wrapper in a session of its own, holding the folder's lock; return its process id.

    No pipe leads to us and no object of ours ends it: our death cannot break it. Raises OSError.
    """
    output = str(folder.volatile / OUTPUT)
    return os.posix_spawn(
        "/bin/sh",
        ["sh", "-c", _WRAPPER, "run", str(folder.path), folder.cgroup, *command],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            (os.POSIX_SPAWN_DUP2, lock, LOCK_DESCRIPTOR),
        ],
        setsid=True,
        setsigmask=[],
        setsigdef=[signal.SIGPIPE, signal.SIGINT],
    )


def reap(pid: int) -> None:
    """Reap a child of ours that has ended; 0 is no process."""
    with contextlib.suppress(ChildProcessError):
        if pid > 0:
            os.waitpid(pid, os.WNOHANG)


def make_cgroup(run_id: str) -> str:
    """A cgroup for a run beneath our own; "" where we may make none."""
    own = _own_cgroup()
    if own is None:
        return ""
    path = own / f"provisioner-run-{run_id}"
    try:
        path.mkdir()
    except OSError:
        return ""
    if (path / "cgroup.kill").exists():
        return str(path)
    with contextlib.suppress(OSError):
        path.rmdir()
    return ""


def _own_cgroup() -> Path | None:
    """Return our place in the cgroup v2 tree."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
        place = next(line[3:] for line in lines if line.startswith("0::"))
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            fields = line.split(" ")
            if fields[fields.index("-") + 1] == "cgroup2":
                return Path(fields[4]) / place.lstrip("/")
    return None


def find_marked(run_id: str, control: str = "") -> list[int]:
    """Processes of a run. `control`: its folder of ssh sockets, which an ssh master is named by.

    (A master's title overwrites its environment, as setproctitle does on Linux.)
    """
    mark = f"{MARK}={run_id}".encode()
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    return [pid for pid in pids if _belongs(pid, mark, control)]


def _belongs(pid: int, wanted: bytes, control: str) -> bool:
    try:
        if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return True
        if not control:
            return False
        title = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # ended meanwhile, or of another user
        return False
    return title.startswith(b"ssh: ") and control.encode() in title


def interrupt(run_id: str) -> None:
    """Ask Ansible to end: it takes its workers and ssh clients along (facts: ansible 2)."""
    plays = {pid for pid in find_marked(run_id) if _is_play(pid)}
    for pid in plays:
        with contextlib.suppress(OSError):
            if _parent(pid) not in plays:  # its workers are copies of it
                os.kill(pid, signal.SIGTERM)


def _is_play(pid: int) -> bool:
    with contextlib.suppress(OSError):
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return any(w.endswith(b"/ansible-playbook") for w in arguments[:2])
    return False


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def kill_all(run_id: str, cgroup: str, control: str) -> bool:
    """End every process of a run; blocks for seconds at worst. False: a process would not die."""
    for _ in range(KILL_ROUNDS):
        if cgroup:
            with contextlib.suppress(OSError):
                (Path(cgroup) / "cgroup.kill").write_text("1", encoding="ascii")
        remaining = find_marked(run_id, control)
        for pid in remaining:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            reap(pid)
        if not remaining:
            break
        time.sleep(0.1)
    else:
        return False
    for _ in range(KILL_ROUNDS if cgroup and Path(cgroup).exists() else 0):
        with contextlib.suppress(OSError):
            Path(cgroup).rmdir()
            break
        time.sleep(0.1)
    return True
