"""Forty hosts, one BIOS update of 20 seconds each: the planner and the executor, over HTTPS.

What OpenStack Ironic 39 was measured with: 40 nodes, one update whose task takes 20 s, default
settings: 2,271 s, 29 done, 11 failed and left powered off. Here every BMC is a simulated endpoint
of its own at the speed of the wall clock; the image is pushed, the task followed, the host
power-cycled, and the new version read back from it. All settings are the defaults of a daemon.

The reference is quoted, not run: its figure is of 40 BMCs whose hosts reboot at once, so `--boot-s`
is how long a host here takes to be up again (0 as there; a real one takes minutes, for both alike).
The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import this_machine
import uvloop

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.daemon.daemon import Daemon, Parts
from provisioner.daemon.data import open_data
from provisioner.execution.actions.hold import Hold
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.executor import Executor
from provisioner.integrations.sim.hardware.build import make_image
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.hardware.parts import Durations
from provisioner.integrations.sim.site.serve_site import serve_site
from provisioner.integrations.sim.site.site import Site
from provisioner.integrations.twin.hosts import MemoryRunner, MemoryShell
from provisioner.integrations.twin.wires import MemorySwitches, Wire
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.path.history import build_history
from provisioner.planning.path.planner import plan
from provisioner.ports import BmcAddress, Secret
from provisioner.runtime.event_loop import new_event_loop
from provisioner.runtime.switch_systems import make_switches
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings

PEER_S = 2271.0  # Ironic 39.0.0, password hash patched, defaults; two cores
PEER_FAILED = 11
TASK_S = 20.0
OLD, NEW = "BIOS Date: 08/04/2023 Ver 1.4", "BIOS Date: 05/06/2024 Ver 1.5"
FILE = "bios-1.5.bin"
IMAGE = make_image("host.bios", {"BIOS": NEW})
MATRIX = {
    "releases": {
        "bench": {
            "profiles": {
                "any": {
                    "match": {"kind": "host"},
                    "pins": {"host.bios": {"version": NEW, "evidence": "benchmark"}},
                }
            }
        }
    },
    "edges": {
        "host.bios": [
            {
                "from": [OLD],
                "to": NEW,
                "artifact": FILE,
                "sha256": hashlib.sha256(IMAGE).hexdigest(),
                "activates_by": "cold_boot",
                "evidence": "benchmark",
            }
        ]
    },
}


class Served:
    """The site in a thread of its own; read its machines when the work is over."""

    def __init__(self, hosts: int, boot_s: float) -> None:
        took = Durations(transfer_s=1.0, write_s=TASK_S, post_s=boot_s, os_boot_s=0.0)
        self.site = Site(hosts, 7, clock=FastClock(1.0), durations=took, sleep=_at_once)
        for machine in self.site.machines.values():
            machine.firmware["host", "BIOS"].running = OLD
        self._loop, self._ready = uvloop.new_event_loop(), threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(
            target=partial(self._loop.run_until_complete, self._run()), daemon=True
        )

    async def _run(self) -> None:
        server = await serve_site(self.site)
        self._ready.set()
        await self._stop.wait()
        await server.close()

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        self._loop.close()


async def _at_once(_seconds: float) -> None:
    """In-band commands, which the reference has none of, take no time here."""


async def updated(daemon: Daemon, node: Node, matrix: Any) -> str:
    """Bring one host to the new BIOS by its plan; "" or what stood in the way."""
    store, clock = daemon.parts.store, daemon.parts.clock
    operation = await store.operations.open(node.id, "bench", clock.now())
    assert operation is not None
    hold = Hold(store, clock, await store.operations.take(operation.id))
    executor = Executor(daemon.site, {})
    while True:
        inventory, unseen = await daemon.observer.collect(node)
        if inventory is None:
            return str(unseen[0])
        await hold.record(inventory=inventory)
        past = build_history(await store.operations.list_entries(node.id), operation.id)
        wanted = plan(inventory, matrix, "bench", "any", history=past)
        if wanted.blockers:
            return str(wanted.blockers[0])
        if not wanted.steps:
            return ""
        problems = await executor.execute(hold, node, wanted.steps[0], inventory)
        if problems:
            return str(problems[0])


async def taken_in(data: Any, served: Served, transport: RedfishTransport) -> list[Node]:
    """Each host with its own BMC and factory password, its certificate pinned."""
    nodes = []
    for name, machine in served.site.machines.items():
        url = served.site.urls[f"{name}/host"]
        pin = await transport.fingerprint(BmcAddress(url))
        bmc = machine.bmcs["host"]
        await data.vault.put(f"{name}/host", bmc.username, Secret(bmc.password))
        ref = BmcRef(name="host", url=url, pin=pin, rotated=True, serial=bmc.serial)
        node = Node(id=name, kind=NodeKind.HOST, state=State.CONVERGING, bmcs=(ref,))
        nodes.append(await data.store.nodes.add(node))
    return nodes


async def measure(served: Served, folder: Path) -> dict[str, Any]:
    """Update all; times, failures, and the truth of each machine afterwards."""
    (folder / FILE).write_bytes(IMAGE)
    matrix = parse([("bench", json.dumps(MATRIX))])
    clock, transport = WallClock(), RedfishTransport()
    async with open_data(folder / "data", clock.now()) as data:
        parts = Parts(
            store=data.store,
            credentials=data.vault,
            clock=clock,
            settings=Settings(),
            transport=transport,
            switches=make_switches(MemorySwitches(served.site, Wire(None, 0.0))),
            runner=MemoryRunner(served.site),
            shell=MemoryShell(served.site),
            agents=None,  # type: ignore[arg-type]  # no ramdisk is booted
            artifacts=Artifacts(folder, ""),
            matrix=matrix,
            signer=data.signer,
        )
        daemon = Daemon(parts)
        nodes = await taken_in(data, served, transport)
        began, cpu = time.monotonic(), time.thread_time()
        ends = await asyncio.gather(*(updated(daemon, n, matrix) for n in nodes))
        wall_s, cpu_s = time.monotonic() - began, time.thread_time() - cpu
        await transport.close()
    served.site.advance()
    machines = served.site.machines.values()
    return {
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "failed": [end for end in ends if end],
        "old": sum(m.firmware["host", "BIOS"].running != NEW for m in machines),
        "off": sum(m.host.power != "On" for m in machines),
        "requests": sum(s.requests for s in served.site.redfish.values()),
    }


def main() -> int:
    """Print the table and the JSON; exit code 1 if a host failed."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--hosts", type=int, default=40)
    ask.add_argument("--boot-s", type=float, default=0.0)
    asked = ask.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        Served(asked.hosts, asked.boot_s) as served,
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        found = runner.run(measure(served, Path(folder)))
    for problem in found["failed"][:5]:
        sys.stdout.write(f"failed: {problem}\n")
    told = {
        **this_machine.told(),
        "hosts": asked.hosts,
        "boot_s": asked.boot_s,
        "wall_s": round(found["wall_s"], 1),
        "cpu_s_per_host": round(found["cpu_s"] / asked.hosts, 3),
        "requests_per_host": round(found["requests"] / asked.hosts, 1),
        "failed": len(found["failed"]),
        "old_version": found["old"],
        "powered_off": found["off"],
        "ironic_wall_s_quoted": PEER_S,
        "ironic_failed_quoted": PEER_FAILED,
        "times_faster": round(PEER_S / found["wall_s"], 1) if asked.hosts == 40 else None,
    }
    for name, value in told.items():
        sys.stdout.write(f"{name:>24}  {value}\n")
    sys.stdout.write(json.dumps(told) + "\n")
    return 1 if found["failed"] or found["old"] or found["off"] else 0


if __name__ == "__main__":
    sys.exit(main())
