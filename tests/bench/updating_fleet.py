"""A fleet in the middle of its updates, in a real store, for benchmarks of what follows a crash."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import bench_firmware as firmware
from sqlalchemy import Connection, insert, select

from provisioner.adapters.redfish.client import Redfish
from provisioner.daemon.daemon import Parts
from provisioner.daemon.data import Data
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.hardware.parts import Durations
from provisioner.integrations.sim.redfish.bmc import make_service
from provisioner.integrations.sim.site.site import Site
from provisioner.integrations.twin.hosts import MemoryRunner, MemoryShell
from provisioner.integrations.twin.wires import MemoryBmcs, MemorySwitches, Wire
from provisioner.model.inventory import Inventory
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.model.operation import ActionStatus
from provisioner.model.plan import Step
from provisioner.planning.matrix.matrix_text import parse
from provisioner.planning.path.planner import plan
from provisioner.ports import BmcAddress, Call, Reply, Secret
from provisioner.quirks import identify
from provisioner.runtime.switch_systems import make_switches
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.rows import operation_rows
from provisioner.store.rows import operation_rows as turn_rows
from provisioner.store.rows.node_rows import add_node
from provisioner.store.schema.schema import credentials, inventories, ledger, nodes, operations

LOST = 100  # of so many requests that changed something, one was under way: its answer is lost
EARLIER_S = 300.0  # intents are this old: their window is over, and is not measured
SEEDED = 500  # nodes to a transaction


class AtOnce(Wire):
    """A wire on which nothing takes time and nothing is lost."""

    def __init__(self) -> None:
        super().__init__(None, 0.0)  # type: ignore[arg-type]  # no chance is asked

    async def delay_request(self) -> str:
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


def parts_of(data: Data, site: Site, bmc: SharedBmc, folder: Path, count: int) -> Parts:
    """The daemon's parts: all are real but the wire, and the tests in hosts, which none needs."""
    return Parts(
        store=data.store,
        credentials=data.vault,
        clock=WallClock(),
        settings=Settings(operations_max=count),
        transport=bmc,
        switches=make_switches(MemorySwitches(site, AtOnce())),
        runner=MemoryRunner(site),
        shell=MemoryShell(site),
        agents=None,  # type: ignore[arg-type]  # no ramdisk is booted
        artifacts=Artifacts(folder, ""),
        matrix=parse([("bench", json.dumps(firmware.MATRIX))]),
        signer=data.signer,
    )
