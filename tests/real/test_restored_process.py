"""A restore end to end, as processes: `serve` notices it, only looks, and acts once it is settled.

A host is handed over after a backup was made; the backup is restored, so that the rows do not know
of the handover. The site is `provisioner sim serve` over HTTPS.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.adapters.redfish.discovery import probe_all
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.daemon.data import open_data, read_expected, read_secrets
from provisioner.execution.observe.intake import find_nodes, take_in
from provisioner.integrations.demo import running
from provisioner.integrations.demo.site import DemoFiles, choose_settings, prepare_files
from provisioner.integrations.demo.stay import BASE
from provisioner.integrations.simulated_site.simulated_agents import SimulatedRunner
from provisioner.runtime.wall_clock import WallClock
from provisioner.store.database.backup import copy_file

MATRIX = Path(__file__).parents[2] / "firmware_matrix.yaml"
HOST, SPEED, LIMIT_S = "su0-n00", 600.0, 240.0  # of a loaded machine


class Place:
    """A data directory beside a simulated site, and the program on it."""

    def __init__(self, folder: Path, site: SimulatedRunner, files: DemoFiles) -> None:
        self.folder, self.site, self.files = folder, site, files
        self.data, self.log = folder / "data", folder / "daemon.log"
        self.running: subprocess.Popen[bytes] | None = None

    def run(self, *words: str) -> str:
        """A command's output; it must succeed, once the daemon answers."""
        command = [sys.executable, "-m", "provisioner", *words]
        end = time.monotonic() + LIMIT_S
        while True:
            done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
            if "no daemon answers here" not in done.stderr or time.monotonic() > end:
                assert done.returncode == 0, done.stdout + done.stderr
                return done.stdout
            time.sleep(0.5)

    def recovery(self) -> dict[str, Any]:
        """`recovery list --json`."""
        document = json.loads(self.run("recovery", "list", "--data", "data", "--json"))
        assert isinstance(document, dict)
        return document

    def state(self, *more: str) -> str:
        """The host's state by its row; `--offline` while no daemon runs."""
        document = json.loads(self.run("node", "show", HOST, "--data", "data", "--json", *more))
        return str(document["state"])

    def stored_state(self) -> str:
        """The host's state by its row: a command each half second would keep a core busy."""
        with closing(
            sqlite3.connect(f"file:{self.data / 'provisioner.db'}?mode=ro", uri=True)
        ) as db:
            (state,) = db.execute("SELECT state FROM nodes WHERE id = ?", (HOST,)).fetchone()
        return str(state)

    async def vrfs(self) -> set[str]:
        """The networks of the host's ports, as the simulated leaves forward."""
        truth = await self.site.get("/truth")
        return set(truth["nodes"][HOST]["ports"].values())

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until it holds; the daemon's log if it does not."""
        end = time.monotonic() + LIMIT_S
        while not await asyncio.to_thread(holds):
            assert self.running is not None
            assert self.running.poll() is None, self.log.read_text()[-4000:]
            assert time.monotonic() < end, f"{what}: {self.log.read_text()[-4000:]}"
            await asyncio.sleep(0.5)

    async def want(self) -> None:
        """A tenant wants the host from now on."""
        async with open_data(self.data, time.time()) as opened:
            tenant = next(t for t in await opened.store.tenants.list() if t.name)
            await opened.store.tenants.put(tenant.model_copy(update={"nodes_wanted": 1}))

    def said(self, words: str) -> bool:
        return words in self.log.read_text()

    @asynccontextmanager
    async def daemon(self, *more: str) -> AsyncIterator[subprocess.Popen[bytes]]:
        """`provisioner serve`, ended in order."""
        command = [
            sys.executable, "-m", "provisioner", "serve", "--data", str(self.data),
            "--matrix", str(MATRIX), "--matrix", str(self.files.overlay),
            "--artifacts", str(self.files.artifacts), "--artifact-port", "0",
            "--settings", str(self.folder / "settings.yaml"),
            "--simulator", str(self.folder / "site" / "control.sock"), "--lab", *more,
        ]  # fmt: skip
        with self.log.open("wb") as log:
            process = subprocess.Popen(  # noqa: ASYNC220 (as a person starts it)
                command, stdout=log, stderr=log, cwd=self.folder
            )
        self.running = process
        try:
            yield process
            process.terminate()
            assert await asyncio.to_thread(process.wait, 60) == 0, self.log.read_text()[-4000:]
        finally:
            process.kill()
            process.wait()


async def take_site_in(site: SimulatedRunner, files: DemoFiles, data: Path) -> None:
    told = await site.get("/clock")
    clock = WallClock(told["speed"], told["epoch"])
    expected = read_expected(files.expected)
    secrets = read_secrets(expected, {})
    endpoints: dict[str, str] = await site.get("/endpoints")
    transport = RedfishTransport()
    data.mkdir(mode=0o700)  # noqa: ASYNC240 (once, before anything runs)
    try:
        async with open_data(data, clock.now()) as opened:
            probes = await probe_all(transport, sorted(u for n, u in endpoints.items() if "/" in n))
            assembly, addresses, silent = await find_nodes(
                transport, opened.store, opened.vault, expected, secrets, probes, clock.now()
            )
            assert not silent, silent[0]
            given = (expected, secrets, assembly, addresses, clock.now())
            await take_in(opened.store, opened.vault, *given)
    finally:
        await transport.close()


def keep(place: Place, way: str) -> None:
    """Make the backup while the daemon runs."""
    if way == "backup":
        place.run("backup", "--data", "data", "--output", "old.tar")
        return
    # as a snapshot of the machine: what the directory remembers is as old as the rows
    shutil.copy(place.data / "high-water", place.folder / "high-water")
    copy_file(place.data / "provisioner.db", place.folder / "old.db")


def restore(place: Place, way: str) -> None:
    """Put it back, with the daemon stopped."""
    for file in place.data.glob("provisioner.db*"):
        file.rename(place.folder / file.name)  # as the page on restores says: moved away
    if way == "backup":
        place.run("restore", "old.tar", "--data", "data")
        return
    shutil.copy(place.folder / "high-water", place.data / "high-water")
    shutil.copy(place.folder / "old.db", place.data / "provisioner.db")
    (place.data / "provisioner.db").chmod(0o600)


async def story(folder: Path, way: str, why: str) -> None:
    asked = running.Asked(nodes=1, speed=SPEED)
    async with running.run_simulator(asked, folder / "site") as site:
        files = prepare_files(folder / "site", await site.get("/expected"), 1)
        listed = json.loads(files.expected.read_text()) | {"release": BASE}
        for tenant in listed["tenants"]:
            tenant["nodes_wanted"] = 0  # until the backup is made
        files.expected.write_text(json.dumps(listed))
        place = Place(folder, site, files)
        await take_site_in(site, files, place.data)
        chosen = choose_settings(1, SPEED).model_dump(mode="json", exclude_defaults=True)
        mine = {k: v for k, v in chosen.items() if not k.startswith("api_session")}
        (folder / "settings.yaml").write_text(yaml.safe_dump({**mine, "api_serve": False}))

        async with place.daemon():
            await place.until("certified", lambda: place.stored_state() == "certified")
            assert place.state() == "certified"
            keep(place, way)
            await place.want()
            await place.until("handed over", lambda: place.stored_state() == "released")
        customers = await place.vrfs()
        assert len(customers) == 1
        assert not customers & {"MAINT", "default", ""}

        restore(place, way)
        assert place.state("--offline") == "certified"

        async with place.daemon():
            await place.until("looks", lambda: place.said("nothing is written to any device"))
            await place.until("surveyed", lambda: place.recovery()["surveyed_at"] is not None)
            found = place.recovery()
            assert why in found["look_only"]
            (one,) = found["items"]
            assert (one["subject"], one["kind"], {one["vrf"]}) == (HOST, "serves", customers)
            await asyncio.sleep(3.0)  # half an hour at the site
            assert await place.vrfs() == customers
            place.run("recovery", "settle", HOST, "adopt", "--yes", "--data", "data")
            assert await place.vrfs() == customers
            place.run("recovery", "finish", "--data", "data")
            await place.until("acts", lambda: place.said("the restore is settled"))
            await place.until("serves", lambda: place.said("serving"))
            await asyncio.sleep(3.0)
            assert place.state() == "released"
            assert await place.vrfs() == customers
            assert place.recovery()["look_only"] == ""

        async with place.daemon("--restored"):
            await place.until("looks", lambda: place.said("nothing is written to any device"))
            await place.until("surveyed", lambda: place.recovery()["surveyed_at"] is not None)
            again = place.recovery()
            assert "a person asked" in again["look_only"]
            assert again["items"] == []
            place.run("recovery", "finish", "--data", "data")
            await place.until("acts", lambda: place.said("the restore is settled"))
        rows = json.loads(place.run("audit", "verify", "--data", "data", "--json"))
        assert rows["intact"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("backup", "was restored"),
        ("snapshot", "ports were moved later"),
    ],
)
def test_a_restore_is_noticed_settled_and_left_behind(tmp_path: Path, way: str, why: str) -> None:
    """`snapshot`: the data directory went back in time with its database; the leaves did not."""
    asyncio.run(story(tmp_path, way, why))
