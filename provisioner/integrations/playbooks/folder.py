"""One run on disk: its request, its process, its events, and whether it has ended.

A lock that the run's own processes hold shows whether it lives: no process id can be mistaken for
another's. The file rc appears when the run came to its end by itself; without lock and rc it died.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.integrations.playbooks.events import list_spellings, redact_secrets
from provisioner.ports import PlaybookCall, Remote, Secret
from provisioner.runtime.whole_files import replace_file

# ------------------------------------------------------------------------------
# The private data directory of ansible-runner, with the variables of every host.
#
# Two rules. Every string is marked as no template: a value may come from a device, and Ansible
# would otherwise evaluate "{{ ... }}" on the daemon's machine. And all of it is on a tmpfs, because
# it may hold secrets; they are in no argument and in no environment either (docs/decisions/0009).


MARK = "PROVISIONER_RUN"  # in the environment of all that a run starts, here and in the hosts
EVENTS = "events"
OUTPUT = "output"
PRINTED = Path("artifacts") / "run" / "stdout"  # where ansible-runner puts it
INVENTORY = Path("inventory") / "hosts.yml"
SECRETS = "secrets.json"
TMPFS = ("tmpfs", "ramfs")
DEPTH_MAX = 32  # of a call's variables


def volatile_root() -> Path | None:
    """Return a directory that is in memory only; None: this machine has none that we may write."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    for place in (runtime, "/dev/shm", "/run"):  # noqa: S108 - a new 0700 folder is made in it
        if place and os.access(place, os.W_OK | os.X_OK) and in_memory(Path(place)):
            return Path(place)
    return None


def in_memory(path: Path) -> bool:
    """Return whether files there reach no disk (swap apart)."""
    mount = ""
    kind = ""
    real = str(path.resolve())
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields = line.split(" ")
        point = fields[4]
        after = fields[fields.index("-") + 1 :]
        within = real == point or real.startswith(point.rstrip("/") + "/")
        if within and len(point) >= len(mount):
            mount = point
            kind = after[0]
    return kind in TMPFS


def write_data_directory(
    folder: Path, run_id: str, calls: Sequence[PlaybookCall], remote: Remote
) -> None:
    """Write ansible-runner's private data directory, readable by our user only."""
    folder.mkdir(mode=0o700)
    for name in ("inventory", "env", "control", "temporary", "home"):
        (folder / name).mkdir(mode=0o700)
    hosts = [
        f"{_quoted(c.host)}: !unsafe {_json({**c.variables, **_connection(c, remote, run_id)})}"
        for c in calls
    ]
    _write(folder / INVENTORY, f'{{"all": {{"hosts": {{{", ".join(hosts)}}}}}}}\n')
    _write(folder / "env" / "settings", json.dumps({"suppress_env_files": True}))
    _write(folder / SECRETS, json.dumps(sorted({s for c in calls for s in _secrets(c.variables)})))


def read_secrets(folder: Path) -> list[str]:
    """Return the secrets of a run from its own folder, to be taken out of its output."""
    try:
        document = json.loads((folder / SECRETS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [s for s in document if isinstance(s, str)] if isinstance(document, list) else []


def has_secrets(call: PlaybookCall) -> bool:
    """Return whether its variables may only be written to memory."""
    return any(True for _ in _secrets(call.variables))


def command(folder: Path, playbook: Path) -> list[str]:
    """Return ansible-runner's command line. Nothing in it is secret: others can read it."""
    runner = [sys.executable, "-m", "ansible_runner", "run", str(folder)]
    return [*runner, "-p", str(playbook), "-i", "run", "--quiet"]


def environment(folder: Path, run_id: str, ansible: Path, hosts: int) -> dict[str, str]:
    """Return the environment, without secrets: ansible-runner writes it to a file."""
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '/usr/bin')}",
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        MARK: run_id,
        "PROVISIONER_EVENTS": str(folder / EVENTS),
        "ANSIBLE_CONFIG": str(ansible / "ansible.cfg"),
        "ANSIBLE_ROLES_PATH": str(ansible / "roles"),
        "ANSIBLE_LIBRARY": str(ansible / "library"),
        "ANSIBLE_CALLBACK_PLUGINS": str(ansible / "callback_plugins"),
        "ANSIBLE_CALLBACKS_ENABLED": "provisioner_events",
        # ansible-runner turns host key checking off unless its environment says otherwise,
        # whatever ansible.cfg says (ansible_runner/config/_base.py)
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_FORKS": str(hosts),  # no host waits for another one's slot
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(folder / "control"),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "temporary"),
    }


def _connection(call: PlaybookCall, remote: Remote, run_id: str) -> dict[str, Any]:
    variables: dict[str, Any] = {
        "ansible_host": call.address,
        "ansible_connection": remote.connection,
        "ansible_python_interpreter": remote.python,
        # each play puts it into its environment, so that a probe can find its processes in a host
        "provisioner_run": run_id,
    }
    if remote.connection != "ssh":
        return variables
    variables |= {"ansible_user": remote.user, "ansible_port": remote.port}
    options = ["BatchMode=yes", "ControlPersist=600s"]  # 60 s doubles the cost at 200 hosts
    options += ["ServerAliveInterval=10", "ServerAliveCountMax=3", "UpdateHostKeys=no"]
    if remote.known_hosts is not None:
        options.append(f"UserKnownHostsFile={remote.known_hosts}")
        options.append("GlobalKnownHostsFile=/dev/null")
    if remote.learn:
        options += [f"HostKeyAlias={call.host}", "StrictHostKeyChecking=accept-new"]
        options += ["HashKnownHosts=no", "CheckHostIP=no"]
    else:
        options.append("StrictHostKeyChecking=yes")
    # Ansible puts these after its own, and ssh takes the first value it meets: so `ssh_args`
    variables["ansible_ssh_args"] = " ".join(
        ["-o ControlMaster=auto", *(f"-o {shlex.quote(o)}" for o in options)]
    )
    if remote.private_key is not None:
        variables["ansible_ssh_private_key_file"] = str(remote.private_key)
    return variables


def _secrets(value: object, depth: int = 0) -> Iterator[str]:
    assert depth <= DEPTH_MAX, "variables are nested too deep"
    if isinstance(value, Secret):
        yield value.reveal()
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _secrets(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets(item, depth + 1)


def _json(value: object, depth: int = 0) -> str:
    """JSON that is YAML too. (The tag is on the whole: on a string, it would make "2.10" 2.1.)"""
    assert depth <= DEPTH_MAX, "variables are nested too deep"
    if isinstance(value, Secret):
        value = value.reveal()
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Mapping):
        items = (f"{_quoted(str(k))}: {_json(v, depth + 1)}" for k, v in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_json(v, depth + 1) for v in value) + "]"
    return json.dumps(value)


def _quoted(text: str) -> str:
    """A double-quoted YAML scalar (YAML 1.2 § 5.7): all but plain ASCII is escaped."""
    return '"' + "".join(c if c.isalnum() and c.isascii() else _escaped(c) for c in text) + '"'


def _escaped(character: str) -> str:
    code = ord(character)
    if character in " -_.:/@,=+":
        return character
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _write(path: Path, content: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content)


READ_MAX = 1024 * 1024  # bytes of events read at once, so that no run holds the loop up
OUTPUT_MAX = 64 * 1024  # bytes stored of the output of the process itself
EVENTS_MAX = 256 * 1024 * 1024  # bytes; 50 hosts with 100 tasks write 2 MB


@dataclass(frozen=True)
class RunFolder:
    """`path` stays until it is pruned; `volatile` is in memory and goes when the run is over."""

    path: Path
    volatile: Path
    cgroup: str = ""

    @classmethod
    def create(cls, path: Path, volatile: Path, cgroup: str, asked: Mapping[str, Any]) -> RunFolder:
        """Make a new folder, whose lock is free. Raises OSError."""
        path.mkdir(mode=0o700, parents=True)
        request = {**asked, "volatile": str(volatile), "cgroup": cgroup}
        for name, text in (("lock", ""), ("request.json", json.dumps(request))):
            descriptor = os.open(path / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        return cls(path, volatile, cgroup)

    @classmethod
    def find(cls, path: Path) -> RunFolder | None:
        """Return a predecessor's folder; None: it is missing, or was not finished."""
        try:
            request = json.loads((path / "request.json").read_text(encoding="utf-8"))
            return cls(path, Path(request["volatile"]), str(request["cgroup"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def control(self) -> str:
        return str(self.volatile / "control")

    @contextlib.contextmanager
    def locked(self) -> Iterator[int]:
        """Hold the lock while the process starts and inherits it: at no moment is it free."""
        descriptor = os.open(self.path / "lock", os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield descriptor
        finally:
            os.close(descriptor)

    def has_finished(self) -> bool:
        return (self.path / "rc").exists()

    def is_alive(self) -> bool:
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    def events(self, offset: int) -> bytes:
        """Return the events from `offset` on, at most READ_MAX bytes."""
        if offset > EVENTS_MAX:
            return b""
        for folder in (self.volatile, self.path):
            with contextlib.suppress(OSError), (folder / EVENTS).open("rb") as file:
                file.seek(offset)
                return file.read(READ_MAX)
        return b""

    def output(self) -> str:
        """Return Ansible's output, and after it that of ansible-runner, which runs quietly."""
        parts = [self.volatile / PRINTED, self.volatile / OUTPUT]
        texts = [_beginning(p) for p in (parts if self.volatile.is_dir() else [self.path / OUTPUT])]
        return "".join(texts)[:OUTPUT_MAX]

    def secrets(self) -> list[str]:
        """Return the secrets that must not be stored with its output."""
        return read_secrets(self.volatile)

    def settle(self) -> None:
        """Close the folder of a run that has ended: store its output without secrets.

        May be repeated at any point.
        """
        if self.volatile.is_dir() and self.path.is_dir():
            spelled = list_spellings(self.secrets())
            events = _beginning(self.volatile / EVENTS, EVENTS_MAX)
            replace_file(self.path / EVENTS, redact_secrets(events, spelled))
            # printed text wraps and quotes freely: a secret in it may not be recognised
            replace_file(self.path / OUTPUT, "" if spelled else self.output())
        shutil.rmtree(self.volatile, ignore_errors=True)


def remove(path: Path, work: Path) -> None:
    """Delete an old run's folder; nothing outside of the work directory, whatever a row says."""
    if path.parent == work and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)


def _beginning(path: Path, size_max: int = OUTPUT_MAX) -> str:
    try:
        with path.open("rb") as file:
            return file.read(size_max).decode("utf-8", "replace")
    except OSError:
        return ""


# ------------------------------------------------------------------------------
# Detached processes: started to outlive us, identified by a mark, ended completely.
#
# A killed process group is not enough: Ansible's workers make sessions of their own, and ssh's
# masters stay (docs/sources/host.md#ansible-processes). All processes of a run carry its id in
# their environment; where the kernel permits, the run is in a cgroup of its own too, whose kill
# reaches every process (Linux 5.14).


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
    """Ask Ansible to end: it takes its workers and ssh clients along
    (docs/sources/host.md#ansible-interrupt).
    """
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
