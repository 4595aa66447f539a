"""What a page of a 65,536-node fleet costs the server, against a bare aiohttp handler.

Server CPU is the time of this process (all threads: the store reads in one of its own) while a
client in another process asks; so TLS, HTTP, token, query, records and JSON are all in it. The last
line is JSON.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from sqlalchemy import Connection, insert

from provisioner.access.tokens import new_token
from provisioner.api import table
from provisioner.api.app import build_application
from provisioner.control.context import Context
from provisioner.control.fabric.tenant_keeper import TenantKeeper
from provisioner.daemon.api import api_parts
from provisioner.daemon.data import read_matrix
from provisioner.model.access import Role
from provisioner.model.events.node_events import NodeAllocated
from provisioner.model.location import Location, Port
from provisioner.model.node import BmcRef, Node, NodeKind, Placement, State
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.tenancy.vrf_plan import FabricPlan
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.rows import request_rows as token_rows
from provisioner.store.rows.node_rows import _columns
from provisioner.store.schema.schema import node_versions, nodes, version_sets
from provisioner.store.sql_store import SqlStore, open_store

NODES = 65_536
ROUNDS = 100  # requests of each kind
MATRIX = Path(__file__).parents[2] / "firmware_matrix.yaml"
STATES = (State.RELEASED, State.RELEASED, State.CERTIFIED, State.CONVERGING)
PATHS = {
    "page_of_100": "/v1/nodes",
    "page_in_the_middle": "/v1/nodes?cursor=WyJuMzI3NjgiXQ",
    "page_filtered": "/v1/nodes?where=state=certified and tenant!=t3",
    "page_that_finds_nothing": "/v1/nodes?where=rack=nowhere*",
    "page_by_rail": "/v1/nodes?where=rail=7 and rack=rack-12*",
    "page_of_switches": "/v1/switches",
    "one_node": "/v1/nodes/n32768",
    "summary": "/v1/summary",
    "events": "/v1/events?limit=100",
}
# of the whole fleet: asked some times only
WHOLE = {
    "drift": "/v1/drift?named=100",
    "versions": "/v1/versions",
    "selection_by_version": "/v1/selection?where=driver=535.* and rack=rack-1*&limit=100",
    "search": "/v1/search?q=n3276",
    "search_serial": "/v1/search?q=sn-32768",
    "overview": "/v1/overview",
    "home": "/v1/home",
}
WHOLE_ROUNDS = 5
SETS = 50  # distinct sets of versions
KINDS = ("host.driver", "host.bios", "host.bmc", "hgx.bmc", "bluefield.nic", "nic.cx7")


def node(number: int) -> Node:
    """A host as it is in a fleet: eight rails, eleven BMCs."""
    unit, index = divmod(number, 32)
    return Node(
        id=f"n{number:05d}",
        kind=NodeKind.HOST,
        state=STATES[number % 4],
        placement=Placement.CUSTOMER,
        vrf=f"T{number % 16}",
        release="spectrum-x-1.3.0",
        profile="hgx-h100-bf3",
        tenant=f"t{number % 16}",
        location=Location(scalable_unit=unit, rack=f"rack-{number // 4}", index=index),
        ports=tuple(
            Port(switch=f"leaf-su{unit}-r{r}", interface=f"swp{index}s0", rail=r, nic_slot=f"N{r}")
            for r in range(8)
        ),
        bmcs=tuple(
            BmcRef(name=f"NIC_{b}", url=f"https://10.{number % 250}.0.{b}", pin="ab" * 32)
            for b in range(11)
        ),
    )


async def fill(store: SqlStore, count: int) -> None:
    """The fleet, a thousand rows a transaction."""
    for begin in range(0, count, 1000):
        rows = [node(i) for i in range(begin, min(begin + 1000, count))]
        await store.write(partial(_insert, rows=rows))
    for number in range(1000):
        await store.journal.append(NodeAllocated(about=f"n{number:05d}", tenant="red"), 1.0)


def _insert(connection: Connection, rows: list[Node]) -> None:
    connection.execute(insert(nodes), [{"id": row.id, **_columns(row)} for row in rows])
    if rows[0].id == "n00000":
        sets = [
            {"digest": f"d{number}", "body": json.dumps(
                [(f"{kind}", f"5{number}5.1", None, None, 8) for kind in KINDS * 10]
            )}
            for number in range(SETS)
        ]  # fmt: skip
        connection.execute(insert(version_sets), sets)
    connection.execute(insert(node_versions), [
        {
            "node": row.id,
            "inventory": 1,
            "versions": f"d{int(row.id[1:]) % SETS}",
            "serials": "\n".join(f"sn-{row.id[1:]}-{part}\tgpu gpu_{part}" for part in range(60)),
            "models": "H100",
        }
        for row in rows
    ])  # fmt: skip


async def no_leaves() -> FabricPlan:
    return FabricPlan(plan=AddressPlan(), leaves=())


def client(url: str, token: str, orders: Any, done: Any) -> None:
    """Asks as often as it is told; in a process of its own."""

    async def run() -> None:
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            while True:
                order = await asyncio.to_thread(orders.get)
                if order is None:
                    return
                path, rounds = order
                size = 0
                for _ in range(rounds):
                    async with session.get(url + path) as answer:
                        assert answer.status == 200, await answer.text()
                        size = len(await answer.read())
                done.put(size)

    asyncio.run(run())


async def measured(path: str, orders: Any, done: Any, rounds: int = ROUNDS) -> float:
    """Milliseconds of server CPU for one request."""
    orders.put((path, 2))
    await asyncio.to_thread(done.get)
    began = time.process_time()
    orders.put((path, rounds))
    await asyncio.to_thread(done.get)
    return (time.process_time() - began) * 1000 / rounds


async def bench(count: int) -> dict[str, object]:
    """All paths, and the bare handler that answers as many bytes as a page has."""
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "data" / "fleet.db")
        clock = WallClock()
        try:
            await fill(store, count)
            token, record = new_token("bench", Role.VIEWER, "", 1.0, clock.now())
            await store.write(partial(token_rows.add_token, token=record, now=clock.now()))
            keeper = TenantKeeper(store, clock, [], no_leaves)
            matrix = read_matrix([MATRIX])
            parts = api_parts(
                store, keeper, matrix, Path(folder), Context(store, clock, Settings())
            )
            return await _asked(build_application(parts, table.ALL), token, count)
        finally:
            await store.close()


async def _asked(app: web.Application, token: str, count: int) -> dict[str, object]:
    body = b"x" * 150_000
    apart = multiprocessing.get_context("spawn")  # this process has threads

    async def bare(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    outer = web.Application()
    outer.router.add_get("/bare", bare)
    runners = [web.AppRunner(a, access_log=None) for a in (app, outer)]
    orders: list[Any] = []
    processes = []
    told: dict[str, float] = {}
    try:
        ends = []
        for runner in runners:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            order, done = apart.Queue(), apart.Queue()
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            process = apart.Process(target=client, args=(url, token, order, done))
            process.start()
            processes.append(process)
            orders.append(order)
            ends.append((order, done))
        told["bare_handler"] = await measured("/bare", *ends[1])
        for name, path in PATHS.items():
            told[name] = await measured(path, *ends[0])
        for name, path in WHOLE.items():
            told[name] = await measured(path, *ends[0], WHOLE_ROUNDS)
    finally:
        for order in orders:
            order.put(None)
        for process in processes:
            await asyncio.to_thread(process.join, 10)
            process.kill()
        for runner in runners:
            await runner.cleanup()
    return {"nodes": count, "server_cpu_ms": {k: round(v, 2) for k, v in told.items()}} | {
        "ratio_to_bare": {
            k: round(v / told["bare_handler"], 1) for k, v in told.items() if k != "bare_handler"
        }
    }


def main() -> None:
    """Run it; an argument is another number of nodes."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    found = asyncio.run(bench(count))
    for name, value in dict(found["server_cpu_ms"]).items():  # type: ignore[call-overload]
        sys.stdout.write(f"{name:28} {value:8.2f} ms\n")
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
