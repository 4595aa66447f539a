"""Kill -9 with 10,000 operations in flight: how long until all of them are driven again.

    make bench NAME=recovery                                  (ARGS="--operations 2000")

A first process has a real SQLite file and as many nodes, each with an active operation and an open
row in the ledger: they know the task of their update, but of one in 100 the answer was lost. Its
daemon drives all of them and is killed with SIGKILL. A second process is started on what it left.
An operation counts as driven again when the new driver has taken it (a new epoch) and has asked its
node's BMC for the task, or for what is installed; asking who the vendor is does not count. Times
count from before the second interpreter is started.

The BMCs are one simulated host's (`provisioner.integrations.sim`), in the memory of each process,
behind a transport that answers without a network; every node has its own address and credential,
and its own client. So this measures ours: interpreter, database, credentials, clients, parsing. The
last line is JSON; the exit code is 1 if something was sent twice or a limit was missed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import bench_firmware as firmware
import this_machine
from sqlalchemy import Connection, func, select
from updating_fleet import SharedBmc, a_site, parts_of, pushed, seeded

from provisioner.daemon.daemon import Daemon
from provisioner.daemon.data import DATABASE, open_data
from provisioner.runtime.event_loop import new_event_loop
from provisioner.store.schema.schema import ledger, operations
from provisioner.store.sql_store import open_store

OPERATIONS = 10_000
FIRST_MAX_S, ALL_MAX_S = 5.0, 60.0  # what must be reached


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
        **this_machine.told(),
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
