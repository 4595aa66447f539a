"""A BMC that tells a part of what it has: it is neither quiet, nor taken for read."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import virtual_time
from rig import MemoryBmcs, World

from provisioner.execution.observe.collector import Collector
from provisioner.execution.steps.quiet import check_quiet
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker
from provisioner.ports import BmcAddress, Call, Reply

COPYING = "a background copy is not complete"


class Odd(MemoryBmcs):
    """BMCs of which each answer about a path with this word in it is changed."""

    def change(self, path: str, body: dict[str, Any]) -> Reply | None:
        if "FirmwareInventory" in path:  # no item is the root of trust's by link or name
            members = body.get("Members", ())
            body["Members"] = [m for m in members if "ERoT" not in str(m)]
            body["Members@odata.count"] = len(body["Members"])
        if "/Chassis/" in path and "ERoT" in path:
            body.setdefault("Oem", {})["Nvidia"] = {"BackgroundCopyStatus": "InProgress"}
        return None

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        reply = await super().request(bmc, call)
        if call.method != "GET" or reply.status != 200:
            return reply
        body = json.loads(reply.body)
        return self.change(call.path, body) or replace(reply, body=json.dumps(body).encode())


class Starting(Odd):
    """A BMC that counts its chassis, and lists none yet."""

    def change(self, path: str, body: dict[str, Any]) -> Reply | None:
        if path.partition("?")[0].rstrip("/").endswith("/Chassis"):
            body["Members"] = []
        return None


class Away(Odd):
    """A BMC whose service for chassis is not ready."""

    def change(self, path: str, body: dict[str, Any]) -> Reply | None:
        gone = path.partition("?")[0].rstrip("/").endswith("/Chassis")
        return Reply(503, {}, b"{}") if gone else None


@pytest.mark.parametrize(
    ("bmcs", "why"), [(Odd, COPYING), (Starting, "are counted"), (Away, "503"), (MemoryBmcs, "")]
)
def test_a_root_of_trust_that_is_copying_or_unread_keeps_its_host_from_a_reset(
    tmp_path: Path, bmcs: type[MemoryBmcs], why: str
) -> None:
    async def story() -> Blocker | None:
        world = World(tmp_path, nodes=1, seed=5)
        await world.take_in()
        world.transport = bmcs(world.services, world.wire)
        (node,) = [n for n in await world.store.nodes.list() if n.kind is NodeKind.HOST]
        return await check_quiet((await world.build()).site, node)

    refused = virtual_time.run(story())

    assert bool(refused) is bool(why)
    assert refused is None or why in refused.detail


class Slow(MemoryBmcs):
    """A BMC each of whose answers takes two minutes."""

    async def request(self, bmc: BmcAddress, call: Call) -> Reply:
        reply = await super().request(bmc, replace(call, timeout_s=600.0))
        await asyncio.sleep(120.0)
        return reply


def test_a_reading_that_is_cut_off_for_its_time_is_no_inventory(tmp_path: Path) -> None:
    async def story() -> tuple[object, tuple[Blocker, ...]]:
        world = World(tmp_path, nodes=1, seed=5)
        await world.take_in()
        world.transport = Slow(world.services, world.wire)
        (node,) = [n for n in await world.store.nodes.list() if n.kind is NodeKind.HOST]
        (host,) = [b for b in node.bmcs if b.kind == "host"]
        alone = node.model_copy(update={"bmcs": (host,)})
        return await Collector((await world.build()).site, {}).without_system(alone, None)

    inventory, refused = virtual_time.run(story())

    assert inventory is None
    assert "took more than 900 s" in refused[0].detail
    assert refused[0].unblock
