"""One host with one card of a simulated site, which pulls its bundle from a server outside."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from simulated import Served, served

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.daemon.artifacts import outside_artifacts
from provisioner.execution.actions.hold import Hold
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site as Effects
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.execution.executor import Executor
from provisioner.execution.observe.collector import Collector
from provisioner.integrations.sim.hardware.build import make_image
from provisioner.integrations.twin.hosts import MemoryRunner, MemoryShell
from provisioner.model.inventory import Activation
from provisioner.model.node import BmcRef, Node, NodeKind, Placement
from provisioner.model.outcome import Blocker
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.ports import BmcAddress, Secret
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

SPEED = 200.0  # simulated seconds in one of ours: an installation takes minutes
NAME, CARD, HOST = "bf-bundle.bfb", "DPU_0", "su0-n00"
BUNDLE = "bf-bundle-2.10.0-147_25.01"
BFB = make_image("bluefield.bundle", {"DPU_OS": BUNDLE, "DPU_NIC": "32.44.1036"})


class Bench:
    """One host with one card of a served site, and all layers below the reconciler."""

    def __init__(self, site: Served, artifacts: OutsideArtifacts) -> None:
        self.site, self.clock = site, WallClock()
        self.store = open_store(":memory:", inline=True)
        self.vault = Vault(self.store, MasterKey.generate())
        self.transport = RedfishTransport()
        self.effects = Effects(
            clock=self.clock,
            settings=Settings(site="test", poll_s=0.1),
            reach=Reach(self.transport, None, self.vault),  # type: ignore[arg-type]
            runner=MemoryRunner(site.site),
            shell=MemoryShell(site.site),
            agents=None,  # type: ignore[arg-type]  # no ramdisk is booted
            artifacts=artifacts,
        )

    async def open(self) -> None:
        refs = []
        for bmc, kind in (("host", "host"), (CARD, "dpu")):
            name = f"{HOST}/{bmc}"
            hardware, url = self.site.bmc(name), self.site.url(name)
            await self.vault.put(name, hardware.username, Secret(hardware.password))
            pin = await self.transport.fingerprint(BmcAddress(url))
            refs.append(BmcRef(name=bmc, url=url, kind=kind, pin=pin, rotated=True))
        node = Node(
            id=HOST,
            kind=NodeKind.HOST,
            address=HOST,
            bmcs=tuple(refs),
            placement=Placement.MAINTENANCE,
            fenced_at=1.0,
        )
        self.node = await self.store.nodes.add(node)
        opened = await self.store.operations.open(HOST, "test", self.clock.now())
        assert opened is not None
        self.operation = opened.id
        await self.take()

    async def take(self) -> None:
        """Be the one who drives it from now on."""
        self.hold = Hold(self.store, self.clock, await self.store.operations.take(self.operation))

    async def resume(self, artifacts: OutsideArtifacts) -> Blocker | None:
        """What a peer does with the row that a dead daemon left."""
        await self.take()
        effects = replace(self.effects, artifacts=artifacts)
        (row,) = await self.store.operations.list_entries(HOST)
        return await Executor(effects, {}).resume(self.hold, self.node, row, self.inventory)

    async def update(self, sha256: str) -> tuple[Blocker, ...]:
        """The step that a plan has for the card's bundle."""
        inventory, unseen = await Collector(self.effects, {}).collect(self.node)
        assert inventory is not None, unseen
        self.inventory = inventory
        running = inventory.find_component("bluefield.bundle", CARD)
        assert running is not None
        step = Step(
            kind=StepKind.UPDATE,
            component="bluefield.bundle",
            slots=(CARD,),
            from_version=running.version or "",
            to_version="2.10.0-147_25.01",
            method="bluefield_bfb",
            artifact=NAME,
            sha256=sha256,
            activation=Activation.COLD_BOOT,
            disruption=Disruption.HOST,
            duration_s=60,
            expected=(),
            reason="a test.",
        )
        return await Executor(self.effects, {}).execute(self.hold, self.node, step, inventory)


@contextlib.contextmanager
def carded() -> Iterator[Served]:
    """A site whose card has its password already."""
    with served(speed=SPEED) as site:
        card = next(iter(site.site.redfish[f"{HOST}/{CARD}"].accounts.accounts.values()))
        card.change_required = False
        yield site


def updated(site: Served, url: str, cache: Path) -> tuple[tuple[Blocker, ...], str, list[str]]:
    """What came of an update from the files at `url`, what the card runs, and the ledger."""

    async def main() -> tuple[tuple[Blocker, ...], list[str]]:
        async with outside_artifacts(cache, url, WallClock()) as files:
            bench = Bench(site, files)
            await bench.open()
            try:
                told = await asyncio.wait_for(bench.update(hashlib.sha256(BFB).hexdigest()), 60)
            finally:
                await bench.transport.close()
            rows = await bench.store.operations.list_entries(HOST)
            return told, [r.status for r in rows]

    told, ledger = asyncio.run(main())
    return told, runs(site), ledger


def runs(site: Served) -> str:
    """The bundle that the card has."""
    return str(site.site.machines[HOST].firmware[CARD, "DPU_OS"].running)
