"""A site that serves, adopted and handed over at random, with every act recorded at the devices."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rig import World
from test_adopting import adopt, open_site
from test_observing import put

from provisioner.model.adoption.capability import LADDER, Capability, Grant, GrantScope
from provisioner.model.node import Node, Origin, State, TenantData
from provisioner.model.operation import OperationStatus
from provisioner.model.tenant import MAINTENANCE_VRF
from provisioner.planning.lifecycle.operator_requests import reclaim_node, retry_node
from provisioner.planning.lifecycle.power_requests import PowerAct, write_want
from provisioner.planning.release.adoption import list_allowed
from provisioner.ports import StaleWrite
from provisioner.runtime import permit as process_scope

HOSTS = ("su0-n00", "su0-n01")
FLIGHT_S = 0.2  # a request may take this long from the gate to the device (`twin.wires.Wire`)
SESSIONS = "/redfish/v1/SessionService/Sessions"


class Witness:
    """Records each act that arrived at a device, whatever the daemon believes of its own gates.

    The need of an act is judged here by its effect on the device, not by the daemon's own table: a
    written account is credentials, an uploaded image or a reset firmware, a port's VRF isolation.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.nodes: dict[str, Node] = {}  # as they were adopted
        self.grants: Sequence[Grant] = ()  # in force now
        self.former: Sequence[Grant] = ()  # in force before the last decision
        self.changed_at = 0.0
        self.acts: list[tuple[str, Capability, str]] = []
        self.unlawful: list[str] = []
        for url, service in world.services.items():
            node = next(n.partition("/")[0] for n, u in world.site.urls.items() if u == url)
            service.handle = self._watch_bmc(node, service.handle)  # type: ignore[method-assign]
        for name, switch in world.site.nvue.items():
            switch.handle = self._watch_switch(name, switch.handle)  # type: ignore[method-assign]
        inband = world.site.inband
        inband.run = self._watch_plays(inband.run)  # type: ignore[method-assign]

    def _note(self, node: str, need: Capability, act: str) -> None:
        row = self.nodes.get(node)
        if row is None or row.origin is not Origin.ADOPTED:
            return
        self.acts.append((node, need, act))
        flying = self.world.clock.now() - self.changed_at <= FLIGHT_S
        if not any(
            need in list_allowed(row, grants)
            for grants in (self.grants, *([self.former] if flying else []))
        ):
            self.unlawful.append(f"{node}: {act} without {need}")

    def _watch_bmc(self, node: str, handle: Callable[..., object]) -> Callable[..., object]:
        def handled(method: str, path: str, *rest: object) -> object:
            if method not in ("GET", "HEAD") and not path.startswith(SESSIONS):
                self._note(node, judge_request(path), f"{method} {path}")
            return handle(method, path, *rest)

        return handled

    def _watch_switch(self, name: str, handle: Callable[..., object]) -> Callable[..., object]:
        def handled(method: str, path: str, *rest: object) -> object:
            if method not in ("GET", "HEAD"):
                self._note(name, Capability.ISOLATION, f"{method} {path}")
                body = rest[-1]
                assert isinstance(body, bytes)
                for node in self.nodes.values():
                    for port in (p for p in node.ports if p.switch == name):
                        if f'"{port.interface}"'.encode() in body:
                            self._note(node.id, Capability.ISOLATION, f"{name}/{port.interface}")
            return handle(method, path, *rest)

        return handled

    def _watch_plays(self, run: Callable[..., object]) -> Callable[..., object]:
        def handled(play: str, host: str, variables: dict[str, object]) -> object:
            if play != "run_commands":
                self._note(host, Capability.FIRMWARE, f"play {play}")
            return run(play, host, variables)

        return handled


def judge_request(path: str) -> Capability:
    """Return the least capability that a request to a BMC may leave with."""
    if "/AccountService" in path:
        return Capability.CREDENTIALS
    if "/EventService" in path:
        return Capability.WATCH
    return Capability.FIRMWARE  # a reset or an update; all else needs more


async def open_handover(tmp_path: Path) -> tuple[World, Witness]:
    """Return a site whose nodes are adopted, with no daemon on it yet."""
    world, expected = await open_site(tmp_path, watch_ports_s=60.0)
    put(world, range(8), "RED", HOSTS[0])
    put(world, range(8), "BLUE", HOSTS[1])
    await adopt(world, expected)  # the switches come first, then the hosts
    await adopt(world, expected)
    witness = Witness(world)
    witness.nodes = {n.id: n for n in await world.store.nodes.list()}
    assert set(HOSTS) <= set(witness.nodes)
    return world, witness


SCOPES = (
    (GrantScope.SITE, ""),
    (GrantScope.UNIT, "pod0/su0"),
    (GrantScope.NODE, HOSTS[0]),
    (GrantScope.NODE, HOSTS[1]),
    (GrantScope.NODE, "leaf-su0-r0"),
)


class History:
    """One random history over an adopted site: people, foreign hands, crashes, and time."""

    def __init__(self, world: World, witness: Witness, seed: int) -> None:
        self.world = world
        self.witness = witness
        self.rng = random.Random(seed)
        self.steps: Counter[str] = Counter()

    async def run(self, steps: int) -> None:
        """Run some steps, with a daemon that acts."""
        process_scope.set_simulated_scope(process_scope.Scope())
        await self.reset()
        await self.world.start()
        everywhere = [(scope, name, LADDER) for scope, name in SCOPES]
        await self.put(everywhere, granted=self.rng.random() < 0.7)
        await self.world.clock.sleep(1.0)
        for _ in range(steps):
            step = self.rng.choice(STEPS)
            self.steps[step.__name__] += 1
            with suppress(StaleWrite):
                await step(self)
            await self.world.clock.sleep(self.rng.choice((1.0, 3.0, 15.0)))
        await self.world.crash()
        await self.world.clock.sleep(1.0)  # requests that have left arrive

    async def reset(self) -> None:
        """Have both hosts serve again as they were adopted."""
        nodes = self.world.store.nodes
        for name, vrf in zip(HOSTS, ("RED", "BLUE"), strict=True):
            put(self.world, range(8), vrf, name)
            stored = await nodes.get(name)
            assert stored is not None
            changes = {"generation": stored.generation, "state": State.RELEASED}
            await nodes.save(self.witness.nodes[name].model_copy(update=changes))
        for operation in await self.world.store.operations.list_active():
            taken = await self.world.store.operations.take(operation.id)
            await self.world.store.operations.end(taken, OperationStatus.DONE, "a new history")

    async def decide(self, *, granted: bool) -> None:
        """A person grants or withdraws a capability over some scope."""
        scope, name = self.rng.choice(SCOPES)
        last = self.rng.randrange(len(LADDER))
        steps = LADDER[: last + 1] if granted else LADDER[last:]
        await self.put([(scope, name, steps)], granted=granted)

    async def put(
        self, chosen: Sequence[tuple[GrantScope, str, Sequence[Capability]]], *, granted: bool
    ) -> None:
        """Store decisions. The witness counts grants from before, withdrawals from after."""
        decisions = [
            Grant(scope=scope, name=name, capability=c, granted=granted, by="ada")
            for scope, name, steps in chosen
            for c in steps
        ]
        store = self.world.store
        witness = self.witness
        keys = {g.key for g in decisions}
        rest = [g for g in await store.grants.list() if g.key not in keys]
        witness.former = witness.grants
        if granted:  # it counts before the daemon can know of it
            witness.grants = (*rest, *decisions)
        await store.grants.put(decisions, self.world.clock.now())
        witness.grants = (*rest, *decisions)
        witness.changed_at = self.world.clock.now()

    async def grant(self) -> None:
        await self.decide(granted=True)

    async def withdraw(self) -> None:
        await self.decide(granted=False)

    async def crash(self) -> None:
        await self.world.crash()
        await self.world.start()

    async def meddle(self) -> None:
        """A foreign hand moves ports."""
        rails = self.rng.sample(range(8), self.rng.randrange(1, 8))
        vrf = self.rng.choice(("RED", "BLUE", MAINTENANCE_VRF))
        put(self.world, rails, vrf, self.rng.choice(HOSTS))

    async def reclaim(self) -> None:
        """A person takes a node back from its tenant, or has a quarantined one tried again."""
        node = await self.world.store.nodes.get(self.rng.choice(HOSTS))
        assert node is not None
        now = self.world.clock.now()
        again = node.state is State.QUARANTINED
        asks = node.tenant_data is TenantData.ASKED
        data = TenantData.ERASE if asks else TenantData.SETTLED
        changed = retry_node(node, now, tenant_data=data) if again else reclaim_node(node, now)
        if isinstance(changed, Node):
            await self.world.store.nodes.save(changed)

    async def power(self) -> None:
        """A person has a node switched off and on."""
        want = write_want(PowerAct.CYCLE)
        now = self.world.clock.now()
        node = self.rng.choice(HOSTS)
        operation = await self.world.store.operations.open(node, want, now)
        if operation is not None and self.world.daemon is not None:
            await self.world.daemon.engine.submit(operation.id)


STEPS = (
    History.grant,
    History.grant,
    History.withdraw,
    History.withdraw,
    History.crash,
    History.meddle,
    History.reclaim,
    History.power,
)


@dataclass
class Chronicle:
    """The sums of some histories. `unlawful`: acts that arrived and had no grant in force."""

    histories: int = 0
    acts: int = 0
    withheld: int = 0  # acts that were shown as "would", once an hour each
    steps: Counter[str] = field(default_factory=Counter)
    unlawful: list[str] = field(default_factory=list)


async def live_histories(
    directory: Path, seeds: Iterable[int], steps: int, chronicle: Chronicle
) -> None:
    """Live histories one after the other on one site, until one has an act without a grant."""
    world, witness = await open_handover(directory)
    for seed in seeds:
        history = History(world, witness, seed)
        await history.run(steps)
        chronicle.histories += 1
        chronicle.acts = len(witness.acts)
        chronicle.steps.update(history.steps)
        chronicle.unlawful = [f"history {seed}: {act}" for act in witness.unlawful]
        if chronicle.unlawful:
            break
    journal = await world.store.journal.list(0, 1_000_000)
    chronicle.withheld = sum(row["kind"] == "would" for row in journal)
