"""How long a site takes to change the passwords of all its BMCs, in virtual time.

    make bench NAME=rotation                   (ARGS="--nodes 1024" for a quick one)
    make bench NAME=rotation ARGS="--state FOLDER"     goes on where a run that was stopped had
    saved

An emergency demands all of them at once: 65,536 hosts with eleven BMCs each. Keeper, engine,
rotator, vault and journal are the daemon's, on one SQLite database in memory, and so is the client
with its sessions, its limit of requests and the governor of logins. Only the exchange is replaced:
a BMC answers root, sessions, account service, accounts and systems as the simulator's does, after
a time by chance. Some answers are lost, some BMCs are silent for an hour, and the daemon dies again
and again. A BMC locks its account at the third wrong password within half an hour.

All 720,896 take half an hour of a core. With `--state` everything is saved at each death of the
daemon, when nothing but the database and the BMCs counts, so that the run may be stopped at any
time and goes on from the last death.

Every limit is the default of the settings. The last line is JSON; exit code 1 if a password was
lost, an account was locked, or eight hours were not enough.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import pickle
import random
import resource
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import this_machine
from sqlalchemy import Connection, insert

from provisioner.adapters.redfish.governor import LoginGovernor
from provisioner.adapters.redfish.session import Login
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.control.context import Context
from provisioner.control.engine.engine import EmbeddedEngine
from provisioner.control.node.credential_rotator import CredentialRotator
from provisioner.control.node.reconciler import Drivers, Reconciler
from provisioner.control.watch.credential_keeper import CredentialKeeper
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site
from provisioner.integrations.twin.loop import VirtualClock, run
from provisioner.model.credential import RotationCause
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.ports import BmcAddress, Call, Reply, Unreachable
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.rows import node_rows
from provisioner.store.schema import schema
from provisioner.store.sql_store import open_store

NODES, MUST_S = 65_536, 8 * 3600.0
NAMES = ("host", "DPU_0", "DPU_1", *(f"NIC_{n}" for n in range(8)))
USER, OLD = "root", "Old-Password.0001"
ANSWER_S = (0.2, 0.9)  # an assumption: BMCs in use answer within a second
LOST, SILENT = 0.0005, 0.002  # answers lost; BMCs that are silent for an hour of the first two
LOCK_AT, LOCK_S = 3, 1800.0  # the lowest threshold in the field (docs/sources/bmc-faults.md#s9)
DEATHS, BETWEEN_S = 12, 1800.0
LOOK_S = 60.0  # between two counts of what is due; of a whole fleet each one takes 0.3 s of CPU
ROOT = "/redfish/v1"
TREE: dict[str, Any] = {
    ROOT: {
        "Links": {"Sessions": {"@odata.id": f"{ROOT}/SessionService/Sessions"}},
        "SessionService": {"@odata.id": f"{ROOT}/SessionService"},
        "AccountService": {"@odata.id": f"{ROOT}/AccountService"},
        "Systems": {"@odata.id": f"{ROOT}/Systems"},
    },
    f"{ROOT}/AccountService": {"Accounts": {"@odata.id": f"{ROOT}/AccountService/Accounts"}},
    f"{ROOT}/AccountService/Accounts": {
        "Members": [{"@odata.id": f"{ROOT}/AccountService/Accounts/1"}]
    },
    f"{ROOT}/AccountService/Accounts/1": {"UserName": USER, "RoleId": "Administrator"},
    f"{ROOT}/Systems": {"Members": []},
}
KEPT = ("fleet", "nodes", "began", "most_at", "deaths", "demanded", "cpu_s")  # of a World
BODIES = {path: json.dumps({"@odata.id": path, **body}).encode() for path, body in TREE.items()}
SESSIONS = f"{ROOT}/SessionService/Sessions"
JSON = {"content-type": "application/json"}


class Fleet:
    """The BMCs' truth: passwords, sessions, wrong passwords; and the wire."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.passwords: dict[str, str] = {}
        self.sessions: dict[str, str] = {}  # BMC -> token
        self.wrong: dict[str, list[float]] = {}
        self.silent: dict[str, float] = {}  # BMC -> from then on, for an hour
        self.count = Counter[str]()
        self.busy = self.busiest = 0

    async def send(
        self, bmc: BmcAddress, call: Call, login: Login | None, *_: str, keep_alive: bool
    ) -> Reply:
        """One exchange, as `HttpExchange.send`."""
        self.count["requests"] += 1
        self.busy += 1
        self.busiest = max(self.busy, self.busiest)
        try:
            await asyncio.sleep(self.rng.uniform(*ANSWER_S))
        finally:
            self.busy -= 1
        now = asyncio.get_running_loop().time()
        since = self.silent.get(bmc.url)
        if since is not None and since <= now < since + 3600.0:
            raise Unreachable("no answer", maybe_executed=False)
        reply = self._answer(bmc.url, call, login, now)
        if self.rng.random() < LOST:
            self.count["lost"] += 1
            raise Unreachable("the answer was lost", maybe_executed=call.method != "GET")
        return reply

    def _answer(self, url: str, call: Call, login: Login | None, now: float) -> Reply:
        path = urlsplit(call.path).path.rstrip("/")
        if path == ROOT:
            return Reply(200, JSON, BODIES[ROOT])
        if path == SESSIONS and call.method == "POST":
            return self._log_in(url, cast("dict[str, str]", call.body), now)
        token = None if login is None or login.token is None else login.token.reveal()
        if token is None or self.sessions.get(url) != token:
            return Reply(401, JSON, b"{}")
        if call.method == "DELETE":
            self.sessions.pop(url, None)
            return Reply(204, {}, b"")
        if call.method == "PATCH":
            self.passwords[url] = cast("dict[str, str]", call.body)["Password"]
            self.count["changes"] += 1
            return Reply(204, {}, b"")
        body = BODIES.get(path)
        return Reply(404, JSON, b"{}") if body is None else Reply(200, JSON, body)

    def _log_in(self, url: str, body: dict[str, str], now: float) -> Reply:
        wrong = [at for at in self.wrong.get(url, ()) if at > now - LOCK_S]
        if len(wrong) >= LOCK_AT:
            self.count["locked"] += 1
            return Reply(401, JSON, b'{"error": "the account is locked"}')
        if body["Password"] != self.passwords[url]:
            self.wrong[url] = [*wrong, now]
            self.count["wrong"] += 1
            return Reply(401, JSON, b"{}")
        self.wrong.pop(url, None)
        token = f"{self.rng.getrandbits(64):x}"
        self.sessions[url] = token
        return Reply(201, {**JSON, "x-auth-token": token, "location": f"{SESSIONS}/1"}, b"{}")

    async def close(self) -> None:
        """Nothing is open."""


class World:
    """The rows, the fleet, and daemons that come and go."""

    def __init__(self, nodes: int, memory: Path) -> None:
        self.memory = memory  # of failed logins, which a restart does not forget
        self.clock = VirtualClock()
        self.settings = Settings(site="bench")
        self.store = open_store(":memory:", inline=True)
        self.key = MasterKey.generate()
        self.vault = Vault(self.store, self.key)
        self.fleet = Fleet(random.Random(7))
        self.nodes = nodes
        self.began = self.most_at = 0.0  # the demand; when 99 of 100 were changed
        self.deaths = self.demanded = 0
        self.cpu_s = 0.0

    async def fill(self) -> None:
        """All hosts, released, with their logins."""
        for begin in range(0, self.nodes, 1024):
            numbers = range(begin, min(begin + 1024, self.nodes))
            await self.store.write(partial(self._fill, numbers=numbers))
        for url in self.fleet.passwords:
            if self.fleet.rng.random() < SILENT:
                least_s = len(NAMES) * self.nodes / self.settings.credential_rotations_per_s
                self.fleet.silent[url] = self.fleet.rng.uniform(0.0, least_s)

    def _fill(self, connection: Connection, numbers: range) -> None:
        from provisioner.ports import Secret

        rows, sealed = [], []
        login = (USER, Secret(OLD))
        for number in numbers:
            name = f"n{number:05d}"
            node = Node(
                id=name,
                kind=NodeKind.HOST,
                state=State.RELEASED,
                placement=Placement.CUSTOMER,
                bmcs=tuple(
                    BmcRef(name=b, url=f"https://{name}.{b}", pin="00", rotated=True) for b in NAMES
                ),
            )
            rows.append({"id": name, **node_rows._columns(node), "changed": number})
            for bmc in node.bmcs:
                self.fleet.passwords[bmc.url] = OLD
                key = f"{name}/{bmc.name}"
                seal = self.vault._seal(key, login)
                sealed.append({"name": key, "key_id": self.key.id, "current": seal})
        connection.execute(insert(schema.nodes), rows)
        connection.execute(insert(schema.credentials), sealed)

    def begin(self) -> tuple[EmbeddedEngine, CredentialKeeper]:
        """A new daemon, with nothing but what is stored."""
        governor = LoginGovernor(clock=self.clock.now, memory=self.memory)
        transport = RedfishTransport(self.settings.requests_max, governor=governor)
        transport._http = cast("Any", self.fleet)
        nothing = cast("Any", None)
        reach = Reach(transport, nothing, self.vault, pause=self.clock.sleep)
        site = Site(self.clock, self.settings, reach, nothing, nothing, nothing, nothing)
        context = Context(self.store, self.clock, self.settings)
        drivers = Drivers(rotator=CredentialRotator(context, site))
        reconciler = Reconciler(context, nothing, nothing, drivers=drivers)
        engine = EmbeddedEngine(self.store, reconciler.drive, self.settings.operations_max)
        return engine, CredentialKeeper(context, engine.submit)

    async def live(self, engine: EmbeddedEngine, keeper: CredentialKeeper, until: float) -> bool:
        """Let a daemon work until then, or until nothing is due; whether something is."""
        await engine.start()
        loop = asyncio.create_task(keeper.run())
        due = True
        look_s = LOOK_S if self.nodes < 16_384 else 5 * LOOK_S
        while due and self.clock.now() < until:
            await self.clock.sleep(min(look_s, until - self.clock.now()))
            left = (await self.store.credential_standings.summarize(self.clock.now())).due
            due = left > 0
            if left <= 0.01 * len(self.fleet.passwords):
                self.most_at = self.most_at or self.clock.now()
        loop.cancel()
        await asyncio.gather(loop, return_exceptions=True)
        await engine.stop()  # as a death: nothing that it was about to do is done
        return due

    def save(self, folder: Path) -> None:
        """Write the database and everything else, while no daemon lives."""
        new = folder / "next.db"
        new.unlink(missing_ok=True)
        with sqlite3.connect(new) as copy:
            self._sqlite().backup(copy)
        copy.close()
        kept = {name: getattr(self, name) for name in KEPT}
        kept |= {"key": self.key.text(), "now": asyncio.get_running_loop().time()}
        kept |= {"failed_logins": self.memory.read_bytes() if self.memory.exists() else b""}
        (folder / "next.pickle").write_bytes(pickle.dumps(kept))
        for name in ("next.db", "next.pickle"):
            (folder / name).replace(folder / name.replace("next", "last"))

    async def load(self, folder: Path) -> None:
        """Take up what `save` wrote."""
        kept = pickle.loads((folder / "last.pickle").read_bytes())
        with sqlite3.connect(folder / "last.db") as copy:
            copy.backup(self._sqlite())
        copy.close()
        self.key = MasterKey.parse(kept["key"], "the state")
        self.vault = Vault(self.store, self.key)
        self.memory.write_bytes(kept["failed_logins"])
        for name in KEPT:
            setattr(self, name, kept[name])
        await asyncio.sleep(kept["now"] - asyncio.get_running_loop().time())

    def _sqlite(self) -> sqlite3.Connection:
        bare = self.store.engine.raw_connection().driver_connection
        assert isinstance(bare, sqlite3.Connection)
        return bare

    async def lost(self) -> int:
        """BMCs that no stored password opens."""
        count = 0
        for url, password in self.fleet.passwords.items():
            name, _, bmc = url.removeprefix("https://").partition(".")
            logins = (
                await self.vault.current(f"{name}/{bmc}"),
                await self.vault.pending(f"{name}/{bmc}"),
            )
            count += password not in {login[1].reveal() for login in logins if login is not None}
        return count


async def begin(nodes: int, memory: Path, state: Path | None) -> World:
    """Return a fleet whose passwords are all demanded, or the saved one."""
    world = World(nodes, memory)
    if state is not None and (state / "last.pickle").exists():
        await world.load(state)
        return world
    await world.fill()
    _, keeper = world.begin()
    stored = {node.id: node for node in await world.store.nodes.list()}
    await keeper._enroll(stored, world.clock.now())
    world.began = world.clock.now()
    standings = world.store.credential_standings
    world.demanded = await standings.demand(RotationCause.EMERGENCY, world.began)
    return world


async def bench(nodes: int, state: Path | None = None) -> dict[str, Any]:
    """Change everything."""
    folder = tempfile.TemporaryDirectory()
    world = await begin(nodes, Path(folder.name) / "logins", state)
    between_s = max(60.0, BETWEEN_S * nodes / NODES)  # a smaller fleet has a shorter way
    due = True
    gc.freeze()  # as the daemon does with what it holds
    while due and world.clock.now() < world.began + 2 * MUST_S:
        cpu = time.process_time()
        engine, keeper = world.begin()
        more = world.deaths < DEATHS
        until = world.clock.now() + (between_s if more else 2 * MUST_S)
        due = await world.live(engine, keeper, until)
        world.deaths += due and more
        world.cpu_s += time.process_time() - cpu
        if due and state is not None:
            world.save(state)
            left = (await world.store.credential_standings.summarize(world.clock.now())).due
            hours = (world.clock.now() - world.began) / 3600.0
            sys.stderr.write(f"saved at {hours:.2f} h: {left} of {world.demanded} are left\n")
    folder.cleanup()
    return await judge(world)


async def judge(world: World) -> dict[str, Any]:
    """Return the figures of a fleet that is done."""
    demanded = world.demanded
    took_s = world.clock.now() - world.began
    most_s = world.most_at - world.began
    summary = await world.store.credential_standings.summarize(world.clock.now())
    unchanged = sum(password == OLD for password in world.fleet.passwords.values())
    return {
        "nodes": world.nodes,
        "bmcs": demanded,
        "virtual_hours": round(took_s / 3600.0, 2),
        "virtual_hours_of_99_percent": round(most_s / 3600.0, 2),
        "bmcs_per_s": round(0.99 * demanded / most_s, 1),
        "hours_of_720896_at_that_rate": round(NODES * len(NAMES) * most_s / demanded / 3564.0, 2),
        "rate_limit_per_s": world.settings.credential_rotations_per_s,
        "requests_at_once": world.fleet.busiest,
        "requests_per_bmc": round(world.fleet.count["requests"] / demanded, 1),
        "answers_lost": world.fleet.count["lost"],
        "silent_bmcs": len(world.fleet.silent),
        "deaths_of_the_daemon": world.deaths,
        "wrong_passwords": world.fleet.count["wrong"],
        "accounts_locked": world.fleet.count["locked"],
        "passwords_lost": await world.lost(),
        "unchanged": unchanged,
        "still_due": summary.due,
        "cpu_ms_per_bmc": round(1000 * world.cpu_s / demanded, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> int:
    """Print the figures and the JSON."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--nodes", type=int, default=NODES)
    ask.add_argument("--state", type=Path, help="a folder to go on from, and to save to")
    logging.disable(logging.WARNING)
    asked = ask.parse_args()
    if asked.state is not None:
        asked.state.mkdir(parents=True, exist_ok=True)
    found = {**this_machine.told(), **run(bench(asked.nodes, asked.state))}
    bad = found["passwords_lost"] + found["accounts_locked"] + found["unchanged"]
    hours = max(found["virtual_hours"], found["hours_of_720896_at_that_rate"])
    found["reached"] = not bad and hours * 3600 <= MUST_S
    for name, value in found.items():
        sys.stdout.write(f"{name:>22}  {value}\n")
    sys.stdout.write(json.dumps(found) + "\n")
    return 0 if found["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
