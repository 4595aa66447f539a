"""A served console on a filled store: a campaign, a case, a node that lies; or a large fleet.

It runs in a thread of its own with TLS, as the daemon serves it, because the browser asks from the
test's thread and its cookie is for TLS only.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from console_fleet import fill_console
from console_leaves import PaperLeaves, paper_plan
from console_racks import put_racks
from console_release import console_matrix
from large_fleet import put_fleet
from served import FILE, no_leaves

from provisioner.access.tokens import new_token
from provisioner.adapters.consoles.console_files import ConsoleFiles
from provisioner.api.parts import ApiParts
from provisioner.control.context import Context
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.daemon.api import api_parts, serve_api
from provisioner.integrations.playbooks.folder import EVENTS, RunFolder
from provisioner.model.access import Role
from provisioner.model.campaign import Campaign, CampaignRow
from provisioner.model.times.instant import format_instant
from provisioner.ports import BmcTransport
from provisioner.ports.inband import Run
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.repositories.agents import SqlRunRepository
from provisioner.store.repositories.signing_keys import MasterKey, open_signer
from provisioner.store.repositories.vault import Vault
from provisioner.store.rows import request_rows as token_rows
from provisioner.store.sql_store import SqlStore, open_store

# one person opens a page for each test, faster than the server notices that the last one is gone
MANY = {"api_streams_per_caller": 120, "api_requests_per_min": 100_000, "api_changes_per_min": 1000}


class PaperTwin:
    """Implements `ports.rehearsals`: every host of the twin ends well at once."""

    async def rehearse(
        self, store: SqlStore, campaign: Campaign, rows: Sequence[CampaignRow], hosts: int
    ) -> Mapping[str, Any]:
        now = format_instant(WallClock().now())
        times = {"began_at": now, "ended_at": now, "minutes_median": 42.0}
        report = {"state": "done", "states": {"done": hosts}, "left": [], **times}
        return {"report": report, "blockers": [], "violations": []}


class Site:
    """The URL, a token by role, and a way to do something in its loop."""

    def __init__(
        self,
        folder: Path,
        fleet: int = 0,
        *,
        liar: bool = True,
        leaves: bool = False,
        chosen: Mapping[str, Any] | None = None,
    ) -> None:
        self._chosen = {"api_port": 0, **MANY, **(chosen or {})}
        self._folder, self._fleet, self._liar, self._leaves = folder, fleet, liar, leaves
        self._loop = asyncio.new_event_loop()
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._serve, name="console site", daemon=True)
        self._failed: BaseException | None = None
        self.url, self.tokens = "", dict[str, str]()
        self.store: SqlStore
        self.vault: Vault
        self._parts: ApiParts

    def __enter__(self) -> Site:
        self._thread.start()
        assert self._ready.wait(timeout=600)  # a fill may have little of a busy machine
        if self._failed is not None:
            raise self._failed
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=120)
        self._loop.close()

    def is_alive(self) -> bool:
        """Whether its loop still runs: an error in it ends the thread."""
        return self._thread.is_alive() and self._failed is None

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Carry it out in the site's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=300)

    @contextmanager
    def reaching(self, transport: BmcTransport) -> Iterator[None]:
        """Reach BMCs for a while, as the daemon does; this process otherwise reaches none."""
        object.__setattr__(self._parts, "transport", transport)  # frozen for the product alone
        try:
            yield
        finally:
            object.__setattr__(self._parts, "transport", None)

    def _serve(self) -> None:
        try:
            self._loop.run_until_complete(self._run())
        except BaseException as error:
            self._failed = error
            self._ready.set()

    def now(self) -> float:
        """Return the time of the site's clock."""
        return WallClock().now()

    def print_lines(self, node: str, lines: Sequence[str]) -> None:
        """Print lines on a node's console."""
        book = ConsoleFiles(self._folder / "data", 10**6)
        self.do(book.append(node, lines, self.now()))

    def begin_play(self, node: str, now: float) -> Path:
        """Begin a playbook run on a node; return the file of its events."""
        folder = self._folder / f"run-{node}"
        (memory := self._folder / f"memory-{node}").mkdir()
        made = RunFolder.create(folder, memory, "", {})
        row = Run(f"run-{node}", "host_software.yml", {node: "d"}, str(made.path), now, 3600.0)
        self.do(SqlRunRepository(self.store).begin(row))
        return memory / EVENTS

    def keep_days(self, leaf: str, days: Sequence[str]) -> None:
        """Keep days of a leaf's ports, as lines of the series of optics."""
        folder = self._folder / "data" / "optics" / leaf
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "days.jsonl").write_text("\n".join(days) + "\n")

    def hold(self, file: str) -> None:
        """Put a firmware file into the artifact store."""
        (self._folder / file).touch()

    async def _run(self) -> None:
        data, clock = self._folder / "data", WallClock()
        self.store = store = open_store(data / "provisioner.db")
        try:
            if self._fleet:
                await store.write(partial(put_fleet, size=self._fleet))
            else:
                await fill_console(store, clock.now(), liar=self._liar)
            for role in Role:
                tenant = "red" if role is Role.TENANT else ""
                token, record = new_token(f"{role.value}@example", role, tenant, 30.0, clock.now())
                await store.write(partial(token_rows.add_token, token=record, now=clock.now()))
                self.tokens[role.value] = token
            keeper = TenantKeeper(store, clock, [], no_leaves)
            if self._leaves:
                keeper = TenantKeeper(store, clock, [PaperLeaves()], paper_plan)
            # tests share a site for longer than a proof lasts: those about it choose their own
            put_racks(racks := self._folder / "racks", clock.now())
            given = {"api_session_proof_s": 3600.0, "racks_folder": str(racks)}
            settings = Settings(**{**given, **self._chosen})
            key = MasterKey.generate()
            self.vault = Vault(store, key)
            parts = api_parts(
                store,
                keeper,
                console_matrix(),
                self._folder,
                Context(store, clock, settings),
                vault=self.vault,
                signer=await open_signer(store, key, clock.now()),
                rehearsals=PaperTwin(),
                matrix_texts=[(FILE.name, FILE.read_text(encoding="utf-8"))],
            )
            # lines of consoles are there, and folders of playbook runs
            parts = replace(parts, directory=data, runs=SqlRunRepository(store))
            self._parts = parts
            async with serve_api(parts, data, key) as url:
                self.url = url.removesuffix("/").removesuffix("/v1")
                self._ready.set()
                await self._stop.wait()
        finally:
            await store.close()
