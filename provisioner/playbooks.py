"""Runs playbooks through ansible-runner: per-host calls in, batched processes out.

ansible-runner is started as a process of its own, in its own session, and never in-process: its
threads lose results when the daemon dies (facts: ansible 1). A host's verdict is the fact that its
play wrote, or the last failed event; the exit code says nothing about one host.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.ports import PlaybookCall, PlaybookResult

BATCH_MAX = 50  # hosts in one process: 10 MiB and 4 processes a host (facts: ansible 1)
GATHER_S = 0.2  # calls of one play that come this close together share a process
FACT_MAX_BYTES = 16 * 1024 * 1024
KILL_GRACE_S = 10.0


@dataclass(frozen=True)
class Remote:
    """How hosts are logged in to. `connection` "local" is for the machine itself."""

    user: str = "provisioner"
    private_key: Path | None = None
    known_hosts: Path | None = None
    connection: str = "ssh"
    python: str = "/usr/bin/python3"


class AnsibleRunner:
    """The `PlaybookRunner` for real hosts. At most `slots` processes run at once."""

    def __init__(self, playbooks: Path, work: Path, remote: Remote, slots: int = 4) -> None:
        self._playbooks = playbooks
        self._work = work
        self._remote = remote
        self._slots = asyncio.Semaphore(slots)
        self._waiting: dict[str, list[tuple[PlaybookCall, asyncio.Future[PlaybookResult]]]] = {}
        self._batches: set[asyncio.Task[None]] = set()

    async def run(self, call: PlaybookCall) -> PlaybookResult:
        """Run one play on one host, together with whoever asks for the same play now."""
        if not (self._playbooks / f"{call.play}.yml").is_file():
            return PlaybookResult("failed", {}, f"there is no playbook {call.play}.yml")
        future: asyncio.Future[PlaybookResult] = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(call.play, [])
        queue.append((call, future))
        if len(queue) == 1:
            task = asyncio.create_task(self._gather(call.play))
            self._batches.add(task)
            task.add_done_callback(self._batches.discard)
        return await future

    async def _gather(self, play: str) -> None:
        await asyncio.sleep(GATHER_S)
        queue = self._waiting.pop(play)
        batches = [queue[i : i + BATCH_MAX] for i in range(0, len(queue), BATCH_MAX)]
        await asyncio.gather(*(self._batch(play, batch) for batch in batches))

    async def _batch(
        self, play: str, batch: list[tuple[PlaybookCall, asyncio.Future[PlaybookResult]]]
    ) -> None:
        async with self._slots:
            folder = self._work / f"{play}-{uuid.uuid4().hex}"
            try:
                self._prepare(folder, [call for call, _ in batch])
                ended = await self._start(folder, play, max(c.timeout_s for c, _ in batch))
                results = {c.host: _result(folder, c.host, ended=ended) for c, _ in batch}
            except OSError as error:
                results = {c.host: PlaybookResult("failed", {}, str(error)) for c, _ in batch}
            finally:
                shutil.rmtree(folder, ignore_errors=True)  # it holds variables of the run
        for call, future in batch:
            if not future.done():
                future.set_result(results[call.host])

    def _prepare(self, folder: Path, calls: list[PlaybookCall]) -> None:
        """ansible-runner's private data directory, readable by nobody else."""
        folder.mkdir(mode=0o700, parents=True)
        for name in ("inventory", "env", "results"):
            (folder / name).mkdir(mode=0o700)
        hosts = {c.host: self._host_variables(c, folder) for c in calls}
        _write(folder / "inventory" / "hosts.json", {"all": {"hosts": hosts}})
        _write(folder / "env" / "settings", {"suppress_env_files": True})

    def _host_variables(self, call: PlaybookCall, folder: Path) -> Mapping[str, Any]:
        remote = self._remote
        variables: dict[str, Any] = {
            **call.variables,
            "ansible_host": call.address,
            "ansible_connection": remote.connection,
            "ansible_python_interpreter": remote.python,
            "result_file": str(folder / "results" / f"{call.host}.json"),
        }
        if remote.connection == "ssh":
            variables["ansible_user"] = remote.user
            options = ["-o ControlPersist=600s", "-o ServerAliveInterval=10"]
            if remote.known_hosts is not None:
                options.append(f"-o UserKnownHostsFile={remote.known_hosts}")
            variables["ansible_ssh_common_args"] = " ".join(options)
            if remote.private_key is not None:
                variables["ansible_ssh_private_key_file"] = str(remote.private_key)
        return variables

    async def _start(self, folder: Path, play: str, timeout_s: float) -> bool:
        """Run the process; False if it had to be ended at its limit."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ansible_runner",
            "run",
            str(folder),
            "-p",
            str(self._playbooks / f"{play}.yml"),
            "-i",
            "run",
            "--quiet",
            cwd=folder,
            env=_environment(self._playbooks.parent),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            await asyncio.wait_for(process.wait(), timeout_s)
        except TimeoutError:
            await _end(process)
            return False
        except asyncio.CancelledError:
            await _end(process)
            raise
        return True

    async def close(self) -> None:
        """Let batches that are under way come to their end in the background no more."""
        for task in list(self._batches):
            task.cancel()
        await asyncio.gather(*self._batches, return_exceptions=True)


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM lets Ansible end its workers and ssh clients; a task on the host may run on."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            os.killpg(process.pid, sign)
            try:
                await asyncio.wait_for(process.wait(), KILL_GRACE_S)
            except TimeoutError:
                continue


def _environment(ansible: Path) -> dict[str, str]:
    """No secret is in it: ansible-runner writes its environment to disk."""
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '/usr/bin')}",
        "HOME": os.environ.get("HOME", "/"),
        "LANG": "C.UTF-8",
        "ANSIBLE_CONFIG": str(ansible / "ansible.cfg"),
        "ANSIBLE_ROLES_PATH": str(ansible / "roles"),
        "ANSIBLE_LIBRARY": str(ansible / "library"),
    }


def _write(path: Path, content: object) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(content, file)


def _result(folder: Path, host: str, *, ended: bool) -> PlaybookResult:
    """The fact that the play wrote for a host, else the reason from its events."""
    path = folder / "results" / f"{host}.json"
    if path.is_file() and path.stat().st_size <= FACT_MAX_BYTES:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(facts, dict):
            return PlaybookResult("ok", facts)
    status, detail = _failure(folder, host)
    if not ended:
        return PlaybookResult("timeout", {}, detail or "the play did not end in time")
    return PlaybookResult(status, {}, detail or "the play ended without a result")


def _failure(folder: Path, host: str) -> tuple[str, str]:
    """Status and message of the host's last failed event."""
    status, detail = "failed", ""
    events = sorted(
        (folder / "artifacts" / "run" / "job_events").glob("*.json"),
        key=lambda p: int(p.name.split("-", 1)[0]) if p.name[:1].isdigit() else 0,
    )
    for path in events:
        try:
            event = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        data = event.get("event_data") or {}
        if data.get("host") != host:
            continue
        if event.get("event") == "runner_on_unreachable":
            status, detail = "unreachable", _message(data)
        elif event.get("event") == "runner_on_failed" and not data.get("ignore_errors"):
            status, detail = "failed", f"{data.get('task', '')}: {_message(data)}"
    return status, detail[:500]


def _message(data: Mapping[str, Any]) -> str:
    result = data.get("res") or {}
    return str(result.get("msg") or result.get("stderr") or "no message")
