"""A site whose database is exchanged for a backup of random age, and a truth apart from its rows.

The truth is read from the leaves and disks alone: each tenant writes its name on the disks of a
node while all of its ports are in that tenant's network.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from rig import World

from provisioner.control.watch.recovery import Recovery
from provisioner.model.node import Node, State
from provisioner.model.recovery import Difference, DifferenceKind, Settlement
from provisioner.model.tenant import PortPlacement, Tenant
from provisioner.planning.lifecycle.operator_requests import reclaim_node
from provisioner.planning.watch.high_water import adopted_proof, settle_by_word
from provisioner.runtime import permit
from provisioner.store.database.backup import copy_file
from provisioner.store.repositories.recovery import SqlRecoveryRepository
from provisioner.store.repositories.vault import Vault
from provisioner.store.schema.schema import site_state
from provisioner.store.sql_store import open_store

HOUR_S = 3600.0
LOOK_S = 20.0  # a node is in a tenant's network for much longer
TENANTS = {"RED": "red", "BLUE": "blue"}


class Truth:
    """Who was in whose network, and whose data was there when the next one came."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.wrong: list[str] = []
        self.serving: dict[str, str] = {}  # host -> VRF that all its ports were last seen in
        self.allowed: set[str] = set()  # hosts that somebody asked back, or gave up by a word
        self.ports: dict[str, list[tuple[str, str]]] = {}
        self.came = 0  # how often a tenant got a node

    async def know_ports(self) -> None:
        """Cables do not change here."""
        for node in await self._world.store.nodes.list():
            self.ports[node.id] = [(p.switch, p.interface) for p in node.ports]

    def vrf(self, host: str) -> str:
        """The one tenant's network that all ports of a host are in; "" if there is none."""
        switches = self._world.site.switches
        vrfs = {switches[s].get_vrf(i) for s, i in self.ports[host]}
        return vrfs.pop() if len(vrfs) == 1 and vrfs <= set(TENANTS) else ""

    def look(self) -> None:
        """Compare with the last look."""
        self._world.site.advance()
        for host, machine in self._world.site.machines.items():
            before, now = self.serving.get(host, ""), self.vrf(host)
            if before and now != before and host not in self.allowed:
                self.wrong.append(f"{host} was taken from {before} without a word")
            if now and now != before:
                self.came += 1
                mark = f"data of {now}".encode()
                for disk in machine.disks.values():
                    if disk.content.startswith(b"data of ") and disk.content != mark:
                        self.wrong.append(f"{host} came to {now} with {disk.content!r}")
                    disk.content, disk.holds = mark, "tenant"
                self.allowed.discard(host)
            self.serving[host] = now

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)


class Restored:
    """One history: tenants come and go, a backup is taken, lost time goes by, it is restored."""

    def __init__(self, directory: Path, seed: int, nodes: int = 2, *, surveys: bool = True) -> None:
        self.rng = random.Random(f"restore {seed}")
        # a look each minute: hours go by in which nothing happens
        self.world = World(directory, nodes=nodes, seed=seed, poll_s=60.0, switch_poll_s=10.0)
        self.directory = directory
        self.truth = Truth(self.world)
        self.surveys = surveys
        self.kinds: set[DifferenceKind] = set()

    async def play(self) -> list[str]:
        """What must never happen and did."""
        world, rng = self.world, self.rng
        file, backup = self.directory / "site.db", self.directory / "backup.db"
        world.store = open_store(file, inline=True)
        await world.take_in()
        await self.truth.know_ports()
        await self.want(rng.choice(("", "blue", "red")))
        await world.start()
        watch = asyncio.create_task(self.truth.run())
        await self.until_rest()
        copy_file(file, backup)
        for name in rng.sample(("blue", "red"), rng.randint(1, 2)):
            await self.turn_over(name)
            await self.until_rest(rng.choice((0.2, 0.5, 1.0, 12.0)))
        await world.crash()
        await world.store.close()
        world.store = open_store(backup, inline=True)
        world.vault = Vault(world.store, world.vault._key)
        if self.surveys:
            await self.recover()
        await world.start()
        await self.want(rng.choice(("blue", "red")))
        await world.clock.sleep(0.5 * HOUR_S)
        await self.until_rest()
        await world.crash()
        assert not watch.done(), watch.exception()
        watch.cancel()
        assert self.truth.came, "no tenant ever got a node: nothing was tried"
        return self.truth.wrong

    async def until_rest(self, limit_h: float = 12.0) -> None:
        """Until every host waits for a tenant or serves one, or the limit."""
        until = self.world.clock.now() + limit_h * HOUR_S
        while self.world.clock.now() < until:
            await self.world.clock.sleep(60.0)
            hosts = [n for n in await self.world.store.nodes.list() if n.ports]
            if all(
                n.state is State.RELEASED or (n.state is State.CERTIFIED and not n.tenant)
                for n in hosts
            ):
                return

    async def want(self, name: str) -> None:
        """One tenant wants all hosts from now on; "": nobody wants any."""
        for tenant in await self.world.store.tenants.list():
            count = len(self.world.site.machines) if tenant.name == name else 0
            asked = {**tenant.model_dump(), "nodes_wanted": count}
            await self.world.store.tenants.put(Tenant(**asked))

    async def turn_over(self, name: str) -> None:
        """Serving hosts are taken back, with the word of those that have them, for somebody."""
        await self.want(name)
        for node in await self.world.store.nodes.list():
            if node.ports and node.state is State.RELEASED and node.tenant != name:
                back = reclaim_node(node, self.world.clock.now())
                assert isinstance(back, Node)
                self.truth.allowed.add(node.id)
                await self.world.store.nodes.save(back)
        await self.world.clock.sleep(120.0)

    async def recover(self) -> None:
        """As `serve` does: only look; a person gives words; then act."""
        world = self.world
        daemon = await world.build()
        book = world.store.recovery
        row = {"id": 1, "site": "s", "server": "", "timeline": 0, "surveyed_at": 0.0}
        await world.store.write(
            lambda c: c.execute(site_state.insert().values(**row, look_only="restored"))
        )
        recovery = Recovery(world.store, book, world.clock, daemon.tenancy)
        with permit.close_gate("restored"):
            before = {h: self.truth.vrf(h) for h in world.site.machines}
            await recovery.survey()
            for difference in await book.list_differences():
                self.kinds.add(difference.kind)
                if difference.settled is None:
                    await self.give_word(book, difference)
            assert {h: self.truth.vrf(h) for h in world.site.machines} == before
            await book.finish("anna", world.clock.now())

    async def give_word(self, book: SqlRecoveryRepository, difference: Difference) -> None:
        """A person looks at one difference: mostly the leaves are right."""
        assert not difference.leaf, "every port has a node here, and every leaf answers"
        node = await self.world.store.nodes.get(difference.subject)
        assert node is not None
        now = self.world.clock.now()
        word = Settlement.ADOPT if self.rng.random() < 0.8 else Settlement.KEEP
        changed = settle_by_word(node, difference, word, now)
        if isinstance(changed, str):
            word = Settlement.KEEP
            changed = settle_by_word(node, difference, word, now)
        assert isinstance(changed, Node)
        if word is Settlement.KEEP:
            self.truth.allowed.add(node.id)
        read = [
            PortPlacement(switch=p.switch, interface=p.interface, vrf=difference.vrf)
            for p in node.ports
        ]
        adopted = word is Settlement.ADOPT and changed.state is State.RELEASED
        settled = {"settled": word, "settled_by": "anna", "settled_at": now}
        await book.settle(
            difference.model_copy(update=settled),
            changed,
            adopted_proof(changed, read, now) if adopted else None,
        )
