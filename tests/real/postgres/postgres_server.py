"""Debian's PostgreSQL, started by a test: own directory, own user, loopback only, ended by pid.

It keeps its promises as in production (fsync is on): what is tried is what happens to it.
"""

from __future__ import annotations

import atexit
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

BINARIES = Path("/usr/lib/postgresql")
ROOMY = Path("/dev/shm")
PASSWORD = "correct horse battery staple"  # of a server that lives as long as a test


def binaries() -> Path:
    """The directory of the newest server's programs; skips where there is none."""
    found = sorted(BINARIES.glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if not found:
        pytest.skip("no PostgreSQL server here: apt-get install postgresql")
    return found[-1].parent


def unprivileged() -> dict[str, object]:
    """PostgreSQL refuses to run as root: arguments of Popen to be somebody else, if we are."""
    if os.getuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _room(place: Path) -> bool:
    return place.is_dir() and shutil.disk_usage(place).free > 2**30


def free_port() -> int:
    """A TCP port of loopback that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


_made: list[Path] = []  # one, which this process made


def _made_cluster(server: Server) -> Path:
    """Return a folder with a new cluster: `initdb` takes a second, a copy a tenth of it."""
    if not _made:
        folder = server._make_folder()
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        secret = folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        server.run("initdb", "-D", str(folder / "data"), "-U", "postgres",
                   "--auth=scram-sha-256", f"--pwfile={secret}", "--locale=C", "--encoding=UTF8",
                   "--no-sync")  # fmt: skip
        _made.append(folder)
    return _made[0]


@dataclass
class Server:
    """One server. `start` waits until it answers; `stop` and `kill` until it is gone."""

    port: int = field(default_factory=free_port)
    bin: Path = field(default_factory=binaries)
    memory: bool = False  # keep its files in memory, if the machine has room: no power is cut
    folder: Path = field(init=False)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder = self._make_folder()
        made = _made_cluster(self)
        # a copy is the same cluster to PostgreSQL, as a standby is: no test has two that are not
        copy = ["cp", "-a", f"{made}/.", str(self.folder)]
        subprocess.run(copy, check=True, timeout=120)

    def _make_folder(self) -> Path:
        """Return one beside pytest's, which others than their owner may not enter."""
        place = ROOMY if self.memory and _room(ROOMY) else None
        folder = Path(tempfile.mkdtemp(prefix="provisioner-pg-", dir=place))
        if os.getuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        return folder

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def environment(self) -> dict[str, str]:
        """Where clients find the password: in no argument."""
        return {**os.environ, "PGPASSWORD": PASSWORD}

    def url(self, database: str, port: int = 0) -> str:
        """The URL of a database, without a password."""
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{database}"

    def run(self, program: str, *arguments: str) -> str:
        """One of PostgreSQL's programs, to its end; what it printed."""
        done = subprocess.run(
            [str(self.bin / program), *arguments], capture_output=True, text=True, timeout=120,
            env=self.environment, cwd=self.folder, check=False, **unprivileged(),
        )  # fmt: skip
        assert done.returncode == 0, (program, done.stderr)
        return done.stdout

    def client(self, program: str, *arguments: str) -> str:
        """`run`, for a program that connects."""
        reach = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        return self.run(program, *reach, *arguments)

    def start(self, *more: str) -> None:
        """`more`: further options of the server."""
        options = [
            "-D", str(self.data), "-p", str(self.port), "-k", str(self.folder),
            "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200",
            *more,
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.bin / "postgres"), *options],
                stdout=log, stderr=log, cwd=self.folder, **unprivileged(),
            )  # fmt: skip
        until = time.monotonic() + 60
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.05)

    def _answers(self) -> bool:
        ready = [str(self.bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def make(self, template: str = "template0") -> str:
        """A new database like the template; its name."""
        name = f"d{secrets.token_hex(4)}"
        self.client("createdb", f"--template={template}", "--locale=C", name)
        return name

    def sql(self, database: str, statement: str) -> Sequence[str]:
        """The lines that psql prints for a statement."""
        options = ["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", database]
        return self.client("psql", *options, "-c", statement).splitlines()

    def stop(self, sign: int = signal.SIGQUIT) -> None:
        """End it; SIGQUIT is "immediate": as after a loss of power, it recovers at its start."""
        if self.process is not None:
            self.process.send_signal(sign)
            self.process.wait(timeout=60)
            self.process = None

    def remove(self) -> None:
        """End it, and leave nothing on the disk."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
