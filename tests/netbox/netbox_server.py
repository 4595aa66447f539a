"""A real NetBox from PyPI, on PostgreSQL and redis from Debian: for `make test-netbox`.

NetBox wants Python 3.12 or newer; NETBOX_VENV names a virtual environment that has it installed
(`make test-netbox` makes one). Everything is in a temporary directory, on loopback, ended by pid.
The database as it is after all migrations is kept beside the environment: the next run has it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest
from postgres_server import PASSWORD, Server, free_port

CONFIGURATION = """
ALLOWED_HOSTS = ["127.0.0.1"]
DATABASES = {{"default": {{
    "NAME": "{database}", "USER": "postgres", "PASSWORD": "{password}",
    "HOST": "127.0.0.1", "PORT": "{postgres}", "CONN_MAX_AGE": 300,
}}}}
REDIS = {{
    name: {{"HOST": "127.0.0.1", "PORT": {redis}, "USERNAME": "", "PASSWORD": "",
           "DATABASE": number, "SSL": False}}
    for number, name in enumerate(("tasks", "caching"))
}}
SECRET_KEY = "s" * 60
API_TOKEN_PEPPERS = {{1: "p" * 60}}
"""
TOKEN = """
from users.models import Token, User
token = Token.objects.create(user=User.objects.create_superuser("ada"))
print("token=" + token.get_auth_header_prefix() + token.token)
"""
MIGRATED = "migrated.dump"  # in the environment: of the NetBox that is installed there
START_S = 3600.0  # some 700 migrations, minutes of one core; longer on a busy machine


class NetBox:
    """`url` and `token` of one that answers; `remove` ends it and leaves nothing behind."""

    def __init__(self, venv: Path) -> None:
        if shutil.which("redis-server") is None:
            pytest.skip("no redis here: apt-get install redis-server")
        self._venv = venv
        self._folder = Path(tempfile.mkdtemp(prefix="provisioner-netbox-"))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._postgres = Server(memory=True)
        self.url, self.token = "", ""

    def start(self) -> None:
        """Empty, with one superuser's token."""
        # nothing of it has to survive: migrations are ten times as fast
        self._postgres.start("-c", "fsync=off", "-c", "synchronous_commit=off")
        redis, port = free_port(), free_port()
        self._run_beside("redis-server", "--port", str(redis), "--bind", "127.0.0.1", "--save", "")
        database = self._postgres.make()
        (self._folder / "conf").mkdir()
        (self._folder / "conf" / "__init__.py").touch()
        (self._folder / "conf" / "configuration.py").write_text(
            CONFIGURATION.format(
                database=database,
                password=PASSWORD,
                postgres=self._postgres.port,
                redis=redis,
            )
        )
        self._migrate(database)
        told = self._netbox("shell", "-c", TOKEN)
        (line,) = [line for line in told.splitlines() if line.startswith("token=")]
        self.token = line.removeprefix("token=").split()[-1]
        self._run_beside(
            str(self._venv / "bin" / "gunicorn"), "--bind", f"127.0.0.1:{port}",
            "--workers", "1", "--threads", "4", "netbox.wsgi",
        )  # fmt: skip
        self.url = f"http://127.0.0.1:{port}"
        self._wait()

    def remove(self) -> None:
        """End everything that was started, newest first."""
        for process in reversed(self._processes):
            process.terminate()
            process.wait(timeout=30)
        self._postgres.remove()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _migrate(self, database: str) -> None:
        """All tables; in seconds, where an earlier run has made them."""
        kept, here = self._venv / MIGRATED, self._postgres.folder / MIGRATED
        if kept.is_file():
            shutil.copyfile(kept, here)
            self._postgres.client("pg_restore", "--no-owner", "-d", database, str(here))
        self._netbox("migrate", "--no-input")  # nothing to do, or an older NetBox made it
        if not kept.is_file():
            self._postgres.client("pg_dump", "-Fc", "-f", str(here), database)
            shutil.copyfile(here, kept)

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, "NETBOX_ROOT": str(self._folder)}

    def _netbox(self, *words: str) -> str:
        done = subprocess.run(
            [self._venv / "bin" / "netbox", *words],
            capture_output=True, text=True, timeout=START_S, env=self._environment, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def _run_beside(self, *words: str) -> None:
        with (self._folder / "log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(words, stdout=log, stderr=log, env=self._environment)
            )

    def _wait(self) -> None:
        until = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/login/", timeout=30):
                    return
            except OSError as error:
                problem = repr(error)
            log = problem + (self._folder / "log").read_text()[-2000:]
            assert self._processes[-1].poll() is None, log
            assert time.monotonic() < until, log
            time.sleep(0.5)
