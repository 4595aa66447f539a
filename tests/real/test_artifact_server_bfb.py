"""A BlueField pulls its bundle from an nginx that is none of ours, and runs it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from nginx_server import MISSING, NGINX, Nginx, nginx
from simulated import Served, served

from provisioner.artifact_serving import outside_artifacts
from provisioner.execution.collector import Collector
from provisioner.execution.executor import Executor
from provisioner.execution.hold import Hold
from provisioner.execution.outside_artifacts import OutsideArtifacts
from provisioner.execution.reach import Reach
from provisioner.execution.work import Site as Effects
from provisioner.model.inventory import Activation
from provisioner.model.node import BmcRef, Node, NodeKind
from provisioner.model.operation import ActionStatus
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.plan import Disruption, Step, StepKind
from provisioner.ports import BmcAddress, Secret
from provisioner.redfish.transport import RedfishTransport
from provisioner.settings import Settings
from provisioner.sim.images import make_image
from provisioner.store.master_key import MasterKey
from provisioner.store.sql_store import open_store
from provisioner.store.vault import Vault
from provisioner.twin.hosts import MemoryRunner, MemoryShell
from provisioner.wall_clock import WallClock

SPEED = 200.0  # simulated seconds in one of ours: an installation takes minutes
NAME, CARD, HOST = "bf-bundle.bfb", "DPU_0", "su0-n00"
BUNDLE = "bf-bundle-2.10.0-147_25.01"
BFB = make_image("bluefield.bundle", {"DPU_OS": BUNDLE, "DPU_NIC": "32.44.1036"})

pytestmark = [
    pytest.mark.skipif(NGINX is None, reason=MISSING),
    pytest.mark.filterwarnings("ignore"),
]


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
        node = Node(id=HOST, kind=NodeKind.HOST, address=HOST, bmcs=tuple(refs))
        self.node = await self.store.add_node(node)
        opened = await self.store.open_operation(HOST, "test", self.clock.now())
        assert opened is not None
        self.operation = opened.id
        await self.take()

    async def take(self) -> None:
        """Be the one who drives it from now on."""
        self.hold = Hold(self.store, self.clock, await self.store.take(self.operation))

    async def resume(self, artifacts: OutsideArtifacts) -> Blocker | None:
        """What a peer does with the row that a dead daemon left."""
        await self.take()
        effects = replace(self.effects, artifacts=artifacts)
        (row,) = await self.store.entries(HOST)
        return await Executor(effects, {}).resume(self.hold, self.node, row, self.inventory)

    async def update(self, sha256: str) -> tuple[Blocker, ...]:
        """The step that a plan has for the card's bundle."""
        inventory, unseen = await Collector(self.effects, {}).collect(self.node)
        assert inventory is not None, unseen
        self.inventory = inventory
        running = inventory.component("bluefield.bundle", CARD)
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


def play(
    tmp_path: Path, content: bytes, *, merge: bool = True
) -> tuple[tuple[Blocker, ...], str, list[str], list[str]]:
    """What came of the update, what the card runs, what nginx was asked for, and the ledger."""

    async def main(site: Served, server: Nginx) -> tuple[tuple[Blocker, ...], list[str]]:
        async with outside_artifacts(tmp_path / "cache", server.url, WallClock()) as files:
            bench = Bench(site, files)
            await bench.open()
            try:
                told = await asyncio.wait_for(bench.update(hashlib.sha256(BFB).hexdigest()), 60)
            finally:
                await bench.transport.close()
            rows = await bench.store.entries(HOST)
            return told, [r.status for r in rows]

    with together(tmp_path, content, merge=merge) as (site, server):
        told, ledger = asyncio.run(main(site, server))
        return told, runs(site), server.asked("GET"), ledger


@contextlib.contextmanager
def together(
    tmp_path: Path, content: bytes, *, merge: bool = True
) -> Iterator[tuple[Served, Nginx]]:
    """A site, and a server outside that has the bundle."""
    for name in ("cache", "peer", "nginx"):
        (tmp_path / name).mkdir()
    with nginx(tmp_path / "nginx", merge=merge) as server, served(speed=SPEED) as site:
        server.put(NAME, content)
        card = next(iter(site.site.redfish[f"{HOST}/{CARD}"].accounts.accounts.values()))
        card.change_required = False
        yield site, server


def runs(site: Served) -> str:
    return str(site.site.machines[HOST].firmware[CARD, "DPU_OS"].running)


def test_a_card_installs_the_bundle_that_it_pulls_from_outside(tmp_path: Path) -> None:
    told, running, asked, ledger = play(tmp_path, BFB)

    assert told == ()
    assert running == BUNDLE
    assert asked == [f"/files/{NAME}", f"//files/{NAME}"]  # ours, and the card's own way to ask
    assert ledger == [ActionStatus.CONFIRMED]


def test_a_card_is_told_nothing_of_a_file_that_is_not_the_pinned_one(tmp_path: Path) -> None:
    told, running, asked, ledger = play(tmp_path, BFB.replace(b"147_25.01", b"666_25.01"))

    assert [b.reason for b in told] == [Reason.DIGEST_MISMATCH]
    assert running != BUNDLE
    assert asked == [f"/files/{NAME}"]
    assert ledger == []


def test_a_card_is_told_nothing_by_a_server_that_takes_its_two_slashes_for_another_file(
    tmp_path: Path,
) -> None:
    told, running, asked, ledger = play(tmp_path, BFB, merge=False)

    assert [b.reason for b in told] == [Reason.MISSING_ARTIFACT]
    assert f"//files/{NAME}" in told[0].detail
    assert running != BUNDLE
    assert asked == [f"/files/{NAME}"]
    assert ledger == []


def test_the_end_of_a_daemon_breaks_no_transfer_and_its_peer_needs_no_server_to_see_it_through(
    tmp_path: Path,
) -> None:
    async def main(site: Served, server: Nginx) -> tuple[Blocker | None, list[str]]:
        url, clock = server.url, WallClock()
        async with outside_artifacts(tmp_path / "cache", url, clock) as files:
            bench = Bench(site, files)
            await bench.open()
            going = asyncio.create_task(bench.update(hashlib.sha256(BFB).hexdigest()))
            for _ in range(1000):
                rows = await bench.store.entries(HOST)
                if [r.status for r in rows] == [ActionStatus.SENT] and server.asked()[1:]:
                    break
                await asyncio.sleep(0.02)
            going.cancel()
        server.stop()
        async with outside_artifacts(tmp_path / "peer", url, clock) as files:
            problem = await asyncio.wait_for(bench.resume(files), 60)
        await bench.transport.close()
        return problem, [r.status for r in await bench.store.entries(HOST)]

    with together(tmp_path, BFB) as (site, server):
        problem, ledger = asyncio.run(main(site, server))

        assert problem is None
        assert runs(site) == BUNDLE
    assert ledger == [ActionStatus.CONFIRMED]
    assert server.asked("GET") == [f"/files/{NAME}", f"//files/{NAME}"]
    assert list((tmp_path / "peer").iterdir()) == []
