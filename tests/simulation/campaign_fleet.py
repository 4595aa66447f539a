"""A fleet of node rows that moves as the reconciler moves nodes, and tells the truth about itself.

The store, the requests and `control/campaigns/campaigns.py` are the real ones; only what a node
does once its row was changed is played here: some time in each state, a leaf that waits until no
host uses it, hosts that wait for their leaf, failures and slow results by name. `truth` is written
apart from the campaign: it counts what is out of service, by the rows alone, after every step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from campaign_parts import MATRIX, domains, inventory
from given_events import in_state

from provisioner.control.campaigns.campaign_requests import CampaignRequests
from provisioner.control.campaigns.campaigns import Campaigns
from provisioner.control.context import Context
from provisioner.model.campaign import Campaign, CampaignState, Policy
from provisioner.model.cohort import Sample
from provisioner.model.location import Location, Port
from provisioner.model.node import Node, NodeKind, Placement, State
from provisioner.model.operation import Operation
from provisioner.model.outcome import Blocker, Reason
from provisioner.model.tenant import Tenant
from provisioner.settings import Settings
from provisioner.store.sql_store import open_store

RAILS = 4
QUIET_S = 1800.0  # between two looks while nothing is under way
STEP_S = 300.0  # between two looks; every stay in a state is some of them
WELL = {"busbw_gb_s/host": 400.0, "hbm_copy_gb_s/host": 2500.0}
BUSY = frozenset({State.DRAINING, State.CONVERGING, State.VALIDATING})


class HandClock:
    """Time passes by hand."""

    speed = 1.0

    def __init__(self) -> None:
        self.at = 1_790_000_000.0

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds


@dataclass
class Fleet:
    """`fails`: nodes that end quarantined; `slow`: nodes that measure half after an upgrade."""

    hosts: int = 24
    units: int = 2
    idle: int = 0  # hosts that are nobody's, the last ones
    fails: set[str] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)
    clock: HandClock = field(default_factory=HandClock)
    file: str = ":memory:"

    def __post_init__(self) -> None:
        self.store = open_store(self.file, inline=True)
        self.book = self.store.campaigns
        self.settings = Settings(production=False)
        self.requests = CampaignRequests(
            Context(self.store, self.clock, self.settings), self.book, MATRIX
        )
        self.campaigns = self.daemon()
        self.worst: Counter[str] = Counter()  # most nodes out of service at once, by domain
        self.sizes: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.away: set[str] = set()
        self.began: Counter[str] = Counter()  # how often each node left service

    def daemon(self) -> Campaigns:
        """A new process: it knows nothing but the store."""
        return Campaigns(Context(self.store, self.clock, self.settings), self.book)

    async def build(self) -> None:
        """Every node in service on the first release, measured once."""
        for number in range(self.hosts):
            unit = number * self.units // self.hosts
            tenant = "" if number >= self.hosts - self.idle else ("red", "blue")[number % 2]
            await self._add_host(f"su{unit}-n{number:02d}", unit, number, tenant)
        for unit in range(self.units):
            for rail in range(RAILS):
                await self._add(
                    Node(
                        id=f"leaf-su{unit}-r{rail}",
                        kind=NodeKind.SWITCH,
                        state=State.RELEASED,
                        release="base",
                        profile="switch",
                        location=Location(scalable_unit=unit, rack=f"su{unit}-leaves"),
                    ),
                    "5.11.1",
                )
        for name in ("red", "blue"):
            await self.store.tenants.put(Tenant(name=name, vrf=name.upper()))
        for node in await self.store.nodes.list():
            for domain in domains(node):
                self.sizes[domain] += 1

    async def _add_host(self, name: str, unit: int, number: int, tenant: str) -> None:
        ports = tuple(
            Port(
                switch=f"leaf-su{unit}-r{r}", interface=f"swp{number}", rail=r, nic_slot=f"NIC_{r}"
            )
            for r in range(RAILS)
        )
        node = Node(
            id=name,
            kind=NodeKind.HOST,
            state=State.RELEASED if tenant else State.CERTIFIED,
            placement=Placement.CUSTOMER if tenant else Placement.MAINTENANCE,
            release="base",
            profile="host",
            tenant=tenant,
            served=tenant,
            location=Location(scalable_unit=unit, rack=f"su{unit}-rack{number // 4}"),
            ports=ports,
        )
        await self._add(node, "1.0.0")
        await self._measure(node, "1.0.0")

    async def _add(self, node: Node, version: str) -> None:
        await self.store.nodes.add(node)
        operation = await self.store.operations.open(node.id, "journey", self.clock.now())
        assert operation is not None
        operation = await self.store.operations.take(operation.id)
        await self.store.operations.record(
            operation, inventory=inventory(node, version), now=self.clock.now()
        )

    async def _measure(self, node: Node, version: str) -> None:
        worse = 0.5 if node.id in self.slow and version != "1.0.0" else 1.0
        await self.store.cohorts.put_sample(
            Sample(
                node=node.id,
                rack=node.location.rack,
                profile="host",
                versions=version,
                measured={k: v * worse for k, v in WELL.items()},
                sound=True,
                taken_at=self.clock.now(),
            )
        )

    # --- what people do

    async def start(self, select: str = "all", **policy: object) -> Campaign:
        """A campaign to the next release, begun."""
        made = await self.requests.create("next", select, Policy.model_validate(policy))
        assert made.campaign is not None, made.blockers
        begun = await self.requests.start(made.campaign.id)
        assert not begun.blockers, begun.blockers
        assert begun.campaign is not None
        return begun.campaign

    async def now(self, campaign: Campaign) -> Campaign:
        return await self.requests.find_campaign(campaign.id)

    async def states(self, campaign: Campaign) -> Counter[str]:
        """How many of its nodes are in each state of progress."""
        rows = await self.book.list_rows(campaign.id)
        return Counter(r.progress.state.value for r in rows)

    async def releases(self) -> Counter[str]:
        return Counter(n.release for n in await self.store.nodes.list())

    # --- time

    async def live(self, campaign: Campaign, hours: float, *, crash_every: int = 0) -> Campaign:
        """Time passes until the campaign rests, or the limit. `crash_every`: steps."""
        until, step = self.clock.at + hours * 3600, 0
        while self.clock.at < until:
            step += 1
            if crash_every and step % crash_every == 0:
                self.campaigns = self.daemon()
            await self.campaigns.tick()
            await self.step()
            found = await self.now(campaign)
            if found.state not in (CampaignState.STARTED, CampaignState.ROLLING_BACK):
                return found
        return await self.now(campaign)

    async def step(self) -> None:
        """Every node that is under way goes on; then the truth is looked at."""
        nodes = {n.id: n for n in await self.store.nodes.list()}
        quiet = all(n.state not in BUSY for n in nodes.values())
        self.clock.at += QUIET_S if quiet else STEP_S
        for node in nodes.values():
            if node.state in (*BUSY, State.CERTIFIED):
                await self._go_on(node, nodes)
        await self.truth()

    async def _go_on(self, node: Node, nodes: Mapping[str, Node]) -> None:
        stayed_s = self.clock.now() - node.entered_at
        now = self.clock.now()
        leaves = [nodes[p.switch] for p in node.ports]
        waiting = any(leaf.state in BUSY for leaf in leaves)
        if node.state is State.DRAINING and stayed_s >= STEP_S:
            place = node.placement if node.kind is NodeKind.SWITCH else Placement.MAINTENANCE
            await self.store.nodes.save(in_state(node, State.CONVERGING, now, placement=place))
        elif node.state is State.CONVERGING and stayed_s >= 2 * STEP_S:
            if node.kind is NodeKind.SWITCH and self._used(node, nodes):
                return
            if node.kind is NodeKind.HOST and waiting:
                return
            await self._converged(node, now)
        elif node.state is State.VALIDATING and stayed_s >= STEP_S:
            if waiting:
                await self.store.nodes.save(in_state(node, State.CONVERGING, now))
                return
            await self._measure(node, "2.0.0" if node.release == "next" else "1.0.0")
            await self.store.nodes.save(in_state(node, State.CERTIFIED, now))
        elif node.state is State.CERTIFIED and node.kind is NodeKind.SWITCH:
            await self.store.nodes.save(in_state(node, State.RELEASED, now))
        elif node.state is State.CERTIFIED and node.tenant and not waiting:
            place = Placement.CUSTOMER
            await self.store.nodes.save(in_state(node, State.RELEASED, now, placement=place))

    async def _converged(self, node: Node, now: float) -> None:
        if node.id in self.fails and node.release == "next":
            blocker = Blocker(
                reason=Reason.NOT_ACTIVATED, subject=f"host.doca/{node.id}", detail="d", unblock="u"
            )
            quarantined = in_state(node, State.QUARANTINED, now, blockers=(blocker,))
            await self.store.nodes.save(quarantined)
            return
        if node.kind is NodeKind.SWITCH:
            hosts = [n for n in await self.store.nodes.list() if self._on(n, node)]
            lost = [h.id for h in hosts if h.placement is Placement.CUSTOMER]
            self.wrong += [f"{node.id} rebooted under {h}" for h in lost]
        version = MATRIX.releases[node.release].profiles[node.profile].pins
        operation = (await self._operations())[node.id]
        seen = inventory(node, next(iter(version.values())).version)
        await self.store.operations.record(operation, inventory=seen, now=now)
        await self.store.nodes.save(in_state(node, State.VALIDATING, now))

    async def _operations(self) -> dict[str, Operation]:
        return {o.node: o for o in await self.store.operations.list_active()}

    def _used(self, leaf: Node, nodes: Mapping[str, Node]) -> bool:
        return any(
            n.state in (State.VALIDATING, State.RELEASED) or n.placement is Placement.CUSTOMER
            for n in nodes.values()
            if self._on(n, leaf)
        )

    @staticmethod
    def _on(host: Node, leaf: Node) -> bool:
        return any(p.switch == leaf.id for p in host.ports)

    async def truth(self) -> None:
        """Counts what is out of service now, by domain; keeps the worst."""
        out: Counter[str] = Counter()
        for node in await self.store.nodes.list():
            if node.state in (*BUSY, State.QUARANTINED):
                for domain in domains(node):
                    out[domain] += 1
            away = node.state not in (State.CERTIFIED, State.RELEASED)
            self.began[node.id] += away and node.id not in self.away
            (self.away.add if away else self.away.discard)(node.id)
        for domain, count in out.items():
            self.worst[domain] = max(self.worst[domain], count)
