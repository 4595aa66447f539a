"""Writes turns as fast as it can until it is killed; prints each turn after it was answered.

Run as a program by the crash test: `python crashing_writer.py DATABASE`.
"""

import asyncio
import sys

from provisioner.model.events.node_events import NodeIdentified
from provisioner.model.node import Node, NodeKind
from provisioner.model.operation import ActionStatus
from provisioner.store import open_store


async def drive(store, name):
    operation = await store.operations.open(name, "journey", 1.0)
    if operation is None:
        active = [o for o in await store.operations.list_active() if o.node == name]
        operation = active[0]
    operation = await store.operations.take(operation.id)
    node = await store.nodes.get(name)
    while True:
        turn = node.generation + 1
        operation, entry = await store.operations.intend(
            operation, f"act {turn} {operation.epoch}", {}, 1.0
        )
        operation, _ = await store.operations.settle(
            operation, entry, ActionStatus.CONFIRMED, now=2.0
        )
        operation, node = await store.operations.record(
            operation,
            node=node.model_copy(update={"note": str(turn)}),
            events=[NodeIdentified(profile=str(turn), serial="")],
            now=3.0,
        )
        sys.stdout.write(f"{name} {turn}\n")
        sys.stdout.flush()


async def main(path):
    store = open_store(path)
    names = [f"n{number}" for number in range(20)]
    for name in names:
        if await store.nodes.get(name) is None:
            await store.nodes.add(Node(id=name, kind=NodeKind.HOST))
    await asyncio.gather(*(drive(store, name) for name in names))


asyncio.run(main(sys.argv[1]))
