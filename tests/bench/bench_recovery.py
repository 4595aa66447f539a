"""Kill -9 with 10,000 operations in flight: how long until all of them are driven again.

    make bench-recovery                                  (ARGS="--operations 2000")

A first process has a real SQLite file and as many nodes, each with an active operation and an open
row in the ledger: they know the task of their update, but of one in 100 the answer was lost. Its
daemon drives all of them and is killed with SIGKILL. A second process is started on what it left.
An operation counts as driven again when the new driver has taken it (a new epoch) and has asked its
node's BMC for the task, or for what is installed; asking who the vendor is does not count. Times
count from before the second interpreter is started.

The BMCs are one simulated host's (`provisioner.sim`), in the memory of each process, behind a
transport that answers without a network; every node has its own address and credential, and its own
client. So this measures ours: interpreter, database, credentials, clients, parsing. The last line
is JSON; the exit code is 1 if something was sent twice or a limit was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import bench_firmware as firmware
from sqlalchemy import Connection, func, insert, select

from provisioner.daemon import Daemon, Parts
from provisioner.event_loop import new_event_loop
from provisioner.execution.artifacts import Artifacts
from provisioner.model.inventory import Inventory
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.model.operation import ActionStatus
from provisioner.model.plan import Step
from provisioner.opening import DATABASE, Data, open_data
from provisioner.planning.matrix_text import parse
from provisioner.planning.planner import plan
from provisioner.ports import BmcAddress, Call, Reply, Secret
from provisioner.quirks import identify
from provisioner.redfish.client import Redfish
from provisioner.settings import Settings
from provisioner.sim.bmc import make_service
from provisioner.sim.clock import FastClock
from provisioner.sim.parts import Durations
from provisioner.sim.site import Site
from provisioner.store import operation_rows, turn_rows
from provisioner.store.node_rows import add_node
from provisioner.store.schema import credentials, inventories, ledger, nodes, operations
from provisioner.store.sql_store import open_store
from provisioner.twin.hosts import MemoryRunner, MemoryShell
from provisioner.twin.wires import MemoryBmcs, MemorySwitches, Wire
from provisioner.wall_clock import WallClock

OPERATIONS = 10_000
FIRST_MAX_S, ALL_MAX_S = 5.0, 60.0  # what must be reached
LOST = 100  # of so many requests that changed something, one was under way: its answer is lost
EARLIER_S = 300.0  # intents are this old: their window is over, and is not measured
SEEDED = 500  # nodes to a transaction


class AtOnce(Wire):
    """A wire on which nothing takes time and nothing is lost."""

    def __init__(self) -> None:
        super().__init__(None, 0.0)  # type: ignore[arg-type]  # no chance is asked

    async def travel(self) -> str:
        self.requests += 1
        await asyncio.sleep(0)
        return ""


class SharedBmc(MemoryBmcs):
    """One BMC at all addresses; notes when each was first asked, and all that changes something."""

    def __init__(self, site: Site) -> None:
        machine = next(iter(site.machines.values()))
        self.service = make_service(machine, "host", site.clock)
        self.user = machine.bmcs["host"].username, Secret(machine.bmcs["host"].password)
        super().__init__({}, AtOnce())
        self.first: dict[str, float] = {}
        self.awaited, self.all_asked = -1, asyncio.Event()
        self.requests = self.writes = 0

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        self._services.setdefault(bmc.url, self.service)
        if call.path.rstrip("/") != "/redfish/v1":  # who answers there is no look at what it does
            self.first.setdefault(bmc.url, time.monotonic())
        if len(self.first) == self.awaited:
            self.all_asked.set()
        self.requests += 1
        self.writes += call.method != "GET"
        return await super().request(bmc, call)


def a_site() -> Site:
    """One host whose update takes longer than the benchmark."""
    took = Durations(transfer_s=7200.0, write_s=7200.0)
    site = Site(1, 7, clock=FastClock(1.0), durations=took)
    for machine in site.machines.values():
        machine.firmware["host", "BIOS"].running = firmware.OLD
    return site


def named(number: int) -> Node:
    """A node that is being updated in the maintenance VRF."""
    name = f"n{number:05d}"
    return Node(
        id=name,
        kind=NodeKind.HOST,
        state=State.CONVERGING,
        placement=Placement.MAINTENANCE,
        release="bench",
        profile="any",
        bmcs=(BmcRef(name="host", url=f"https://{name}.bench", pin="00" * 32, rotated=True),),
    )


async def pushed(bmc: SharedBmc, file: Path) -> tuple[Inventory, Step, str]:
    """Push the image once: what was seen before, the step, and the address of its task."""
    address = BmcAddress("https://first.bench", *bmc.user, pin="00" * 32)
    root = (await bmc.request(address, Call("GET", "/redfish/v1"))).json()
    client = Redfish(bmc, address, identify(root))
    seen = await client.collect("n00000", "host")
    matrix = parse([("bench", json.dumps(firmware.MATRIX))])
    wanted = plan(seen, matrix, "bench", "any")
    assert wanted.steps, wanted.blockers
    sent = await client.push("host.bios", wanted.steps[0].slots, file)
    assert not hasattr(sent, "reason"), sent
    bmc.first.clear()
    bmc.requests = bmc.writes = 0
    return seen, wanted.steps[0], sent.path


def seed(
    connection: Connection, numbers: Sequence[int], seen: Inventory, step: Step, task: str
) -> None:
    """Nodes whose update was sent, as a daemon leaves them."""
    now = time.time() - EARLIER_S
    before = {
        "step": step.model_dump(mode="json"),
        "slots": list(step.slots),
        "seen": {"versions": {}, "tasks": []},
    }
    for number in numbers:
        node = add_node(connection, named(number))
        operation = operation_rows.open_operation(connection, node.id, "converging", now)
        assert operation is not None
        operation = operation_rows.take(connection, operation.id)
        parts = (seen.model_copy(update={"node": node.id}), None, None, None)
        operation, _ = turn_rows.record(connection, operation, None, parts, (), now)
        action = f"update {step.component} {' '.join(step.slots)} to {step.to_version}"
        operation, entry = operation_rows.intend(connection, operation, action, before, now)
        if number % LOST:
            sent = ActionStatus.SENT
            operation_rows.settle(
                connection, operation, entry, sent, task=task, outcome="", now=now
            )


def cloned(connection: Connection, numbers: Sequence[int], key_id: str, seals: Any) -> None:
    """The rows of the first two nodes once more for others: row by row would take minutes."""
    for table in (nodes, operations, inventories, ledger):
        column = table.c.id if table is nodes else table.c.node
        rows = []
        for kind in (0, 1):
            first = named(kind).id
            own = connection.execute(select(table).where(column == first)).mappings().one()
            for number in (n for n in numbers if min(n % LOST, 1) == kind):
                new = {k: _renamed(v, first, named(number).id) for k, v in own.items()}
                if table is nodes:
                    new["changed"] = number + 1
                elif table is not operations:
                    del new["id"]
                rows.append(new)
        connection.execute(insert(table), rows)
    sealed = [{"name": n, "key_id": key_id, "current": seal} for n, seal in seals]
    connection.execute(insert(credentials), sealed)


def _renamed(value: Any, old: str, new: str) -> Any:
    return value.replace(old, new) if isinstance(value, str) else value


async def seeded(data: Data, count: int, told: tuple[Inventory, Step, str], user: Any) -> None:
    """All nodes, many to a transaction, and a credential for each."""
    seen, step, task = told
    await data.store.write(partial(seed, numbers=(0, 1), seen=seen, step=step, task=task))
    for number in (0, 1):
        await data.vault.put(f"n{number:05d}/host", *user)
    for begin in range(2, count, SEEDED):
        numbers = range(begin, min(begin + SEEDED, count))
        seals = [(f"n{n:05d}/host", data.vault._seal(f"n{n:05d}/host", user)) for n in numbers]
        key_id = data.master.id
        await data.store.write(partial(cloned, numbers=numbers, key_id=key_id, seals=seals))


async def child(folder: Path, count: int, began: float, *, first: bool) -> None:
    """A daemon that drives all of them; tells its times in one line, then goes on."""
    imported = time.monotonic()
    site = a_site()
    bmc = SharedBmc(site)
    told = await pushed(bmc, folder / firmware.FILE)
    prepared = time.monotonic()
    async with open_data(folder / "data", time.time()) as data:
        if first:
            await seeded(data, count, told, bmc.user)
        opened = time.monotonic()
        bmc.awaited = count
        daemon = Daemon(parts_of(data, site, bmc, folder, count))
        await daemon.start()
        await bmc.all_asked.wait()
        times = sorted(bmc.first.values())
        found = {
            "interpreter_s": imported - began,
            "stand_in_s": prepared - imported,
            "open_s": opened - prepared,
            "first_s": times[0] - began,
            "half_s": times[count // 2] - began,
            "all_s": times[-1] - began,
            "cpu_s": time.process_time(),
            "requests": bmc.requests,
            "writes": bmc.writes,
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        await asyncio.sleep(3600)


def parts_of(data: Data, site: Site, bmc: SharedBmc, folder: Path, count: int) -> Parts:
    """The daemon's parts: all are real but the wire, and the tests in hosts, which none needs."""
    return Parts(
        store=data.store,
        credentials=data.vault,
        clock=WallClock(),
        settings=Settings(operations_max=count),
        transport=bmc,
        switches=MemorySwitches(site, AtOnce()),
        runner=MemoryRunner(site),
        shell=MemoryShell(site),
        agents=None,  # type: ignore[arg-type]  # no ramdisk is booted
        artifacts=Artifacts(folder, ""),
        matrix=parse([("bench", json.dumps(firmware.MATRIX))]),
        signer=data.signer,
    )


def run_child(folder: Path, count: int, *, first: bool, limit_s: float) -> dict[str, float]:
    """Start a process, hear its times, kill it with SIGKILL."""
    began = time.monotonic()
    command = [sys.executable, __file__, "--child", str(folder), "--operations", str(count)]
    command += ["--began", repr(began), *(["--first"] if first else [])]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    deadline = time.monotonic() + limit_s
    try:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        line = b""
        while not line.endswith(b"\n"):
            assert process.poll() is None, f"the daemon ended with {process.returncode}"
            assert time.monotonic() < deadline, "the daemon did not drive all in time"
            time.sleep(0.05)
            line += process.stdout.read() or b""
        told: dict[str, float] = json.loads(line)
        return told
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def standing(folder: Path) -> dict[str, int]:
    """What is in the file now."""
    store = open_store(folder / "data" / DATABASE)
    try:

        def look(connection: Connection) -> dict[str, int]:
            active = operations.c.status == "active"
            rows = select(func.count()).select_from(ledger)
            taken = select(func.count()).where(active, operations.c.epoch > 2)
            return {
                "active": connection.scalar(select(func.count()).where(active)) or 0,
                "taken_again": connection.scalar(taken) or 0,
                "ledger_rows": connection.scalar(rows) or 0,
                "open_intents": connection.scalar(rows.where(ledger.c.status == "intended")) or 0,
            }

        return await store.read(look)
    finally:
        await store.close()


def measure(count: int, limit_s: float) -> dict[str, Any]:
    """Both processes, and what is in the file after each."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / firmware.FILE).write_bytes(firmware.IMAGE)
        assert hashlib.sha256(firmware.IMAGE).hexdigest()
        before = run_child(folder, count, first=True, limit_s=limit_s)
        left = asyncio.run(standing(folder))
        again = run_child(folder, count, first=False, limit_s=limit_s)
        after = asyncio.run(standing(folder))
        size_mb = (folder / "data" / DATABASE).stat().st_size / 1e6
    return {
        "operations": count,
        "first_s": again["first_s"],
        "half_s": again["half_s"],
        "all_s": again["all_s"],
        "interpreter_s": again["interpreter_s"],
        "open_s": again["open_s"],
        "cpu_s": again["cpu_s"],
        "requests": again["requests"],
        "sent_again": before["writes"] + again["writes"],
        "rss_mb": again["rss_mb"],
        "database_mb": size_mb,
        "active_when_killed": left["active"],
        "taken_again": after["taken_again"],
        "ledger_rows": after["ledger_rows"],
        "intents_left_by_the_kill": left["open_intents"],
    }


def main() -> int:
    """Print the table and the JSON."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--operations", type=int, default=OPERATIONS)
    ask.add_argument("--limit-s", type=float, default=1800.0)
    ask.add_argument("--child", type=Path)
    ask.add_argument("--began", type=float, default=0.0)
    ask.add_argument("--first", action="store_true")
    asked = ask.parse_args()
    if asked.child is not None:
        work = child(asked.child, asked.operations, asked.began, first=asked.first)
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(work)
        return 0
    found = measure(asked.operations, asked.limit_s)
    right = found["taken_again"] == found["ledger_rows"] == asked.operations
    right = right and found["sent_again"] == 0
    told = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{k: round(v, 2) if isinstance(v, float) else v for k, v in found.items()},
        "all_taken_and_nothing_sent_twice": right,
        "reached": right and found["first_s"] < FIRST_MAX_S and found["all_s"] < ALL_MAX_S,
    }
    for name, value in told.items():
        sys.stdout.write(f"{name:>34}  {value}\n")
    sys.stdout.write(json.dumps(told) + "\n")
    return 0 if told["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
