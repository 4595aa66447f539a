"""The private data directory of ansible-runner, with the variables of every host.

Two rules. Every string is marked as no template: a value may come from a device, and Ansible would
otherwise evaluate "{{ ... }}" on the daemon's machine. And all of it is on a tmpfs, because it may
hold secrets; they are in no argument and in no environment either (docs/decisions/0009).
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from provisioner.ports import PlaybookCall, Remote, Secret

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
