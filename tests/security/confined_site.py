"""A whole journey by `provisioner serve`, as a user who may write to one directory; what it leaves.

The site is served by `provisioner sim serve` over HTTPS. Everything that the daemon says or stores
is gathered: its log, its database, its answers, what `ps` and /proc show of it while it works.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import yaml
from cryptography.hazmat.primitives import serialization

from provisioner.access.tokens import new_token
from provisioner.adapters.redfish.discovery import probe_all
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.api import table
from provisioner.cli.client.connection import Connection, NoAnswer, Place, connect
from provisioner.daemon.data import open_data, read_expected, read_secrets
from provisioner.execution.observe.intake import find_nodes, take_in
from provisioner.integrations.demo import running
from provisioner.integrations.demo.site import DemoFiles, choose_settings, prepare_files
from provisioner.integrations.demo.stay import BASE
from provisioner.integrations.simulated_site.simulated_agents import SimulatedRunner
from provisioner.model.access import Role
from provisioner.model.node import State
from provisioner.ports import Secret
from provisioner.runtime.wall_clock import WallClock
from provisioner.store.rows import request_rows as token_rows

MATRIX = Path(__file__).parents[2] / "firmware_matrix.yaml"
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
             "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")  # fmt: skip
SPEED = 600.0
LIMIT_S = 300.0  # of a loaded machine
KEYS = frozenset({"master.key"})  # the only file that holds a secret in clear
TICKET_SECRET = "signs-tickets-8c1f5e0b7a"
REACHED = (State.CERTIFIED, State.RELEASED)


@dataclass
class Left:
    """What there is after the journey."""

    states: dict[str, State] = field(default_factory=dict)
    secrets: dict[str, bytes] = field(default_factory=dict)
    places: dict[str, bytes] = field(default_factory=dict)  # where a secret must not be
    keys: dict[str, bytes] = field(default_factory=dict)  # where one must be
    limits: str = ""  # /proc/PID/limits of the daemon
    status: str = ""  # /proc/PID/status
    memory_of: int = -1  # user id that /proc/PID/environ belongs to
    ended: int | None = None
    outside: list[str] = field(default_factory=list)  # files that it left elsewhere


def may_run() -> str:
    """Why another user cannot run the program here; "": it can."""
    if os.getuid() != 0:
        return "only root may become another user (run the tests as root)"
    done = subprocess.run([*AS_NOBODY, sys.executable, "-c", "import provisioner"], cwd="/")
    return "" if done.returncode == 0 else "user nobody may not read this checkout or its Python"


async def journey(folder: Path) -> Left:
    """From cabled to a tenant, or as far as that with one host."""
    left = Left()
    asked = running.Asked(nodes=1, speed=SPEED)
    async with running.run_simulator(asked, folder / "site") as site:
        files = prepare_files(folder / "site", await site.get("/expected"), 1)
        # what the site has already: this is about secrets, and firmware takes minutes
        listed = json.loads(files.expected.read_text()) | {"release": BASE}
        files.expected.write_text(json.dumps(listed))
        told = await site.get("/clock")
        clock = WallClock(told["speed"], told["epoch"])
        data = folder / "data"
        token = await _take_in(site, files, clock, data, left)
        (folder / "settings.yaml").write_text(yaml.safe_dump(_settings(asked)))
        _hand_over(folder, data)
        began = time.time()
        async with _daemon(folder, files, left) as process:
            url = await _url(folder / "daemon.log", process)
            file = folder / "token"
            file.write_text(token.reveal())
            ca = str(data / "agent-ca.pem")
            client = connect(Place(server=url, token_file=str(file), ca=ca))
            file.unlink()
            await _watch(client, process.pid, left)
            await _gather_answers(client, left)
            for file in data.glob("provisioner.db*"):  # with the log that its end will empty
                left.places[f"{file.name}, while it ran"] = file.read_bytes()
            process.terminate()
            left.ended = await asyncio.to_thread(process.wait, 60)
        await _read_secrets(data, clock, left)
        _gather_files(folder, data, left)
        left.outside = list(_written_elsewhere(folder, began))
    return left


async def _take_in(
    site: SimulatedRunner, files: DemoFiles, clock: WallClock, data: Path, left: Left
) -> Secret:
    expected = read_expected(files.expected)
    secrets = read_secrets(expected, {})
    for vendor, (_, secret) in secrets.factory.items():
        left.secrets[f"factory password of {vendor}"] = secret.reveal().encode()
    for switch, (_, secret) in secrets.switches.items():
        left.secrets[f"password of {switch}"] = secret.reveal().encode()
    transport = RedfishTransport()
    endpoints: dict[str, str] = await site.get("/endpoints")
    urls = sorted(url for name, url in endpoints.items() if "/" in name)
    token, record = new_token("auditor", Role.OPERATOR, "", 30.0, clock.now())
    left.secrets["token of the API"] = token.encode()
    data.mkdir(mode=0o700)  # noqa: ASYNC240 (once, before anything runs)
    try:
        async with open_data(data, clock.now()) as opened:
            probes = await probe_all(transport, urls)
            found = await find_nodes(
                transport, opened.store, opened.vault, expected, secrets, probes, clock.now()
            )
            assembly, addresses, silent = found
            assert not silent, silent[0]
            await take_in(
                opened.store, opened.vault, expected, secrets, assembly, addresses, clock.now()
            )
            keep = partial(token_rows.add_token, token=record, now=clock.now())
            await opened.store.write(keep)
    finally:
        await transport.close()
    return Secret(token)


def _settings(asked: running.Asked) -> dict[str, object]:
    chosen = choose_settings(asked.nodes, asked.speed).model_dump(
        mode="json", exclude_defaults=True
    )
    return {**chosen, "api_port": 0, "api_host": "127.0.0.1"}


def _hand_over(folder: Path, data: Path) -> None:
    """The data directory is nobody's; the simulator's socket may be asked by anybody."""
    for path in (data, *data.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    folder.chmod(0o755)
    (folder / "site").chmod(0o755)
    (folder / "site" / "control.sock").chmod(0o666)


@asynccontextmanager
async def _daemon(
    folder: Path, files: DemoFiles, left: Left
) -> AsyncIterator[subprocess.Popen[bytes]]:
    command = [
        *AS_NOBODY, sys.executable, "-m", "provisioner", "serve", "--data", str(folder / "data"),
        "--matrix", str(MATRIX), "--matrix", str(files.overlay),
        "--artifacts", str(files.artifacts), "--artifact-port", "0",
        "--settings", str(folder / "settings.yaml"),
        "--simulator", str(folder / "site" / "control.sock"), "--lab",
    ]  # fmt: skip
    left.secrets["secret of tickets"] = TICKET_SECRET.encode()
    given = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": str(MATRIX.parent)}
    with (folder / "daemon.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 (as a person starts it)
            command, stdout=log, stderr=log, cwd=folder / "data", umask=0o077,
            env={**given, "PROVISIONER_TICKET_SECRET": TICKET_SECRET},
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def _url(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Where the API is, as the log says."""
    until = time.monotonic() + LIMIT_S
    while True:
        text = log.read_text(errors="replace")  # noqa: ASYNC240 (a short file)
        found = [w for w in text.split() if w.startswith("https://") and "API is at" in text]
        if found and "serving" in text:
            return found[0].rstrip(",;.")
        assert process.poll() is None, text
        assert time.monotonic() < until, text
        await asyncio.sleep(0.2)


async def _watch(client: Connection, pid: int, left: Left) -> None:
    """Until the host is certified; what /proc shows is looked at again and again."""
    until = time.monotonic() + LIMIT_S
    proc = Path(f"/proc/{pid}")
    left.limits, left.status = (proc / "limits").read_text(), (proc / "status").read_text()
    left.memory_of = (proc / "environ").stat().st_uid
    while True:
        for member in _family(pid):
            for name in ("cmdline", "environ"):
                if member == pid and name == "environ":
                    continue  # what its operator gave it, and only root reads it
                text = _read(Path(f"/proc/{member}/{name}"))
                left.places[f"{name} of a process"] = (
                    left.places.get(f"{name} of a process", b"") + text
                )
        rows = (await asyncio.to_thread(client.send_request, "GET", "/nodes")).document["items"]
        left.states = {row["id"]: State(row["state"]) for row in rows if row["kind"] == "host"}
        if left.states and all(state in REACHED for state in left.states.values()):
            return
        assert time.monotonic() < until, rows
        await asyncio.sleep(0.5)


def _family(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _read(children).split():
            yield from _family(int(child))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


async def _gather_answers(client: Connection, left: Left) -> None:
    """Every GET that needs no more than the name of the host."""
    (host,) = left.states
    for route in table.ALL:
        path = route.path.replace("{node}", host)
        if route.verb != "GET" or "{" in path or "events" in path:
            continue
        try:
            answer = await asyncio.to_thread(client.send_request, "GET", path)
        except NoAnswer:
            continue
        left.places[f"GET /v1{path}"] = answer.content


async def _read_secrets(data: Path, clock: WallClock, left: Left) -> None:
    """All that the vault holds by now, which is no longer what the factory gave."""
    async with open_data(data, clock.now()) as opened:
        for name in await opened.vault.names():
            for login in (await opened.vault.current(name), await opened.vault.pending(name)):
                if login is not None:
                    left.secrets[f"credential {name}"] = login[1].reveal().encode()
        left.secrets["master key"] = opened.master.newest().text().strip().encode()
        private = opened.signer._key.private_bytes(
            serialization.Encoding.Raw,
            serialization.PrivateFormat.Raw,
            serialization.NoEncryption(),
        )
        left.secrets["signing key"] = private


def _gather_files(folder: Path, data: Path, left: Left) -> None:
    left.places["the log"] = (folder / "daemon.log").read_bytes()
    for file in data.rglob("*"):
        if file.is_file():
            kept = left.keys if file.name in KEYS else left.places
            kept[str(file.relative_to(data))] = file.read_bytes()


def _written_elsewhere(folder: Path, since: float) -> Iterator[str]:
    """What is of user nobody where anybody may write: a name there, or a folder of its own."""
    for place in map(Path, ("/tmp", "/var/tmp", "/dev/shm")):
        for path in place.iterdir():
            try:
                told = path.lstat()
            except OSError:
                continue
            if told.st_uid == NOBODY and told.st_mtime >= since and path != folder:
                yield str(path)


def remove(folder: Path) -> None:
    """All of it."""
    shutil.rmtree(folder, ignore_errors=True)
