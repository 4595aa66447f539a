"""A serving site that people built by hand, with planted faults, and how its people take it over.

The ports of its hosts are in tenants' networks as the truth of the simulator counts them: moves are
in the switches' logs. Thus `truth.find_violations` judges each later write and reset too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from handing_over import Witness
from rig import MATRIX, World
from test_intake_cables import LEAF, exchange
from test_observing import Recorded, observe, put, record

from provisioner.adapters.redfish.discovery import probe_all
from provisioner.control.campaigns.campaign_requests import CampaignRequests
from provisioner.control.context import Context
from provisioner.daemon.data import read_expected, read_matrix, read_secrets
from provisioner.daemon.observing import ObservingDaemon
from provisioner.execution.tenancy.adopting import Adopted, AdoptionSite, adopt_nodes
from provisioner.integrations.sim.site.control import inject_fault
from provisioner.integrations.sim.site.truth import NOBODYS, collect_truth
from provisioner.model.adoption.capability import Capability, Grant, GrantScope, Observation
from provisioner.model.campaign import Campaign, CampaignState, NodeProgress, Policy
from provisioner.model.expected import Expected
from provisioner.model.node import NodeKind
from provisioner.runtime import permit
from provisioner.runtime import permit as process_scope
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault

PASSWORD = "Built-by-hand-1"  # of every BMC but one
OTHER_PASSWORD = "Another-hand-22"
ODD = "32.42.1000"  # of a SuperNIC: older than the release of the site, and with a way to the next
VRFS = ("RED", "BLUE")
BASE = "spectrum-x-1.2.0"
NEXT = "spectrum-x-1.3.0"
NOTICE_S = 2 * 3600.0
WINDOW_H = (18, 4)  # from evening to morning, in UTC
POLICY = {
    "canary": {"size": 2, "soak_s": 600},
    "waves": [{}],
    "limits": {d: {"percent": 50} for d in ("total", "tenant", "rack", "scalable_unit")},
    "windows": [{"start_min": WINDOW_H[0] * 60, "minutes": (24 - WINDOW_H[0] + WINDOW_H[1]) * 60}],
    "tenants": {"notice_s": NOTICE_S},
    "allow_irreversible": True,
}


@dataclass(frozen=True)
class Planted:
    """The hosts that have a fault, by its kind."""

    gpu: str = "su0-n00"  # a dead GPU
    odd: str = "su0-n01"  # an odd version
    cables: tuple[str, str] = ("su0-n01", "su0-n03")  # each rail 3 in the other's port
    vrf: str = "su0-n02"  # rail 5 in the other tenant's network
    password: str = "su0-n03"


class HandBuilt:
    """The site, and the acts of its people. `since`: when the daemon first may act."""

    def __init__(self, directory: Path, hosts: int) -> None:
        self.world = World(directory, hosts, 3, certify_gates="ab", production=0.0, poll_s=300.0)
        self.planted = Planted()
        self.hosts = sorted(self.world.site.machines)
        self.grants: dict[str, Grant] = {}
        self.since = 0.0

    async def build(self) -> None:
        """Have every host serve, with the planted faults."""
        world = self.world
        world.vault = Vault(world.store, MasterKey.generate())
        for service in world.services.values():
            for account in service.accounts.accounts.values():
                account.password = PASSWORD
                account.change_required = False
        for number, name in enumerate(self.hosts):
            self.place(name, range(8), VRFS[number % 2])
        planted = self.planted
        host = world.services[world.site.urls[f"{planted.password}/host"]]
        for account in host.accounts.accounts.values():
            account.password = OTHER_PASSWORD
        card = world.site.machines[planted.odd].firmware["NIC_2", "DPU_NIC"]
        card.running = ODD
        self.place(planted.vrf, [5], self.other_vrf(planted.vrf))
        exchange(world, *planted.cables)
        inject_fault(world.site, "dead_gpu", planted.gpu)
        process_scope.set_simulated_scope(process_scope.Scope())
        await world.build()

    def vrf_of(self, name: str) -> str:
        return VRFS[self.hosts.index(name) % 2]

    def other_vrf(self, name: str) -> str:
        return VRFS[1 - self.hosts.index(name) % 2]

    def place(self, name: str, rails: Iterable[int], vrf: str) -> None:
        """Put ports of a host into a network by hand, and into the truth's log."""
        rails = list(rails)
        put(self.world, rails, vrf, name)
        place = self.world.site.places[name]
        for rail in rails:
            leaf = self.world.site.switches[place.name_leaf(rail)]
            port = f"{leaf.name}/{place.interface}"
            leaf.log_event(self.world.clock.now(), "vrf", port, f"default -> {vrf}")

    # --- the first days: observe and adopt

    async def list_nodes(self, *, other_password: bool) -> Expected:
        """Return the list that people write, with the one other password or without it."""
        expected = read_expected(self.world.files.expected)
        logins = {
            vendor: login.model_copy(update={"password": PASSWORD})
            for vendor, login in expected.factory_credentials.items()
        }
        nodes = []
        for node in expected.nodes:
            changes: dict[str, object] = {}
            if node.kind is NodeKind.HOST:
                url = self.world.site.urls[f"{node.name}/host"]
                changes["bmc"] = node.bmc.model_copy(update={"url": url})
            if other_password and node.name == self.planted.password:
                user = self.world.site.machines[node.name].bmcs["host"].username
                changes |= {"username": user, "password": OTHER_PASSWORD}
            nodes.append(node.model_copy(update=changes))
        changed = {"nodes": tuple(nodes), "factory_credentials": logins, "release": BASE}
        return expected.model_copy(update=changed)

    async def adopt(self, expected: Expected, kind: NodeKind) -> Adopted:
        """Adopt the nodes of one kind, as the API does in a daemon that observes."""
        world = self.world
        assert world.daemon is not None
        nodes = tuple(n for n in expected.nodes if n.kind is kind)
        expected = expected.model_copy(update={"nodes": nodes})
        stored = {b.url for n in await world.store.nodes.list() for b in n.bmcs}
        urls = sorted(u for u in world.services if u not in stored) if kind is NodeKind.HOST else ()
        with permit.observe():
            daemon = ObservingDaemon(world.daemon.parts)
            transport = daemon.parts.transport
            site = AdoptionSite(transport, world.store, world.vault, daemon.observer.tenancy)
            probes = await probe_all(transport, urls)
            secrets = read_secrets(expected, {})
            now = world.clock.now()
            adopted = await adopt_nodes(
                site, expected, secrets, probes, by="ada", now=now, keep=True
            )
            await daemon.stop()
        return adopted

    async def observe(self, lasts_s: float) -> dict[str, Observation]:
        """Observe for a while; return the last reading of each host."""
        daemon = await observe(self.world, lasts_s)
        return {n: o for n, o in daemon.observer.observations.items() if n in self.hosts}

    def recable(self) -> None:
        """Plug the two wrong cables as planned."""
        leaf = self.world.site.switches[LEAF]
        leaf.planted.lldp.clear()
        for name in self.planted.cables:
            view = self.world.site.hosts[name]
            at = self.world.site.places[name].interface
            view.cables = tuple(
                replace(c, interface=at) if c.switch is leaf else c for c in view.cables
            )

    def watch_writes(self) -> tuple[Recorded, list[object]]:
        """Return a record of all requests from here on, and the site's state."""
        return record(self.world), self.read_state()

    def read_state(self) -> list[object]:
        """Return the state of all devices; refused logins are counted apart."""
        machines = self.world.site.machines
        switches = self.world.site.switches
        return [
            {n: copy.deepcopy([s.operational, s.applied, s.startup]) for n, s in switches.items()},
            {n: [e for e in m.log if e.kind != "login_failed"] for n, m in machines.items()},
        ]

    def count_refused_logins(self) -> dict[str, int]:
        """Return how often each host's BMCs refused a login, of those that did."""
        counts = {
            n: sum(e.kind == "login_failed" for e in m.log)
            for n, m in self.world.site.machines.items()
        }
        return {n: count for n, count in counts.items() if count}

    # --- handing over

    async def hand_over(self) -> Witness:
        """Start a daemon that acts; return a witness of each act that arrives."""
        witness = Witness(self.world)
        witness.nodes = {n.id: n for n in await self.world.store.nodes.list()}
        self.since = self.world.clock.now()
        await self.world.start()
        return witness

    async def decide(
        self,
        witness: Witness,
        capability: Capability,
        *,
        granted: bool,
        scope: GrantScope = GrantScope.SITE,
        name: str = "",
    ) -> None:
        """Store a person's grant or withdrawal, for the daemon and for the witness."""
        decision = Grant(scope=scope, name=name, capability=capability, granted=granted, by="ada")
        self.grants[decision.key] = decision
        witness.former = witness.grants
        if granted:  # it counts before the daemon can know of it
            witness.grants = tuple(self.grants.values())
        await self.world.store.grants.put([decision], self.world.clock.now())
        witness.grants = tuple(self.grants.values())
        witness.changed_at = self.world.clock.now()

    async def run_campaign(self, select: str, nights: int) -> tuple[Campaign, list[NodeProgress]]:
        """Bring hosts to the next release with notice, in windows; the daemon dies on the way."""
        world = self.world
        context = Context(world.store, world.clock, world.settings)
        book = world.store.campaigns
        requests = CampaignRequests(context, book, read_matrix([MATRIX, world.files.overlay]))
        made = await requests.create(NEXT, select, Policy.model_validate(POLICY))
        assert made.campaign is not None, made.blockers
        survey = await requests.survey(made.campaign)
        confirmed = sorted({s for row in survey.rows for s in row.facts.one_way})
        begun = await requests.start(made.campaign.id, "ada", confirmed)
        assert not begun.blockers, begun.blockers
        until = world.clock.now() + nights * 86_400.0
        for turn in range(1_000_000):
            await world.clock.sleep(1200.0)
            if turn % 50 == 30:
                await world.crash()
                await world.clock.sleep(100.0)
                await world.start()
            campaign = await requests.find_campaign(made.campaign.id)
            if campaign.state is not CampaignState.STARTED or world.clock.now() > until:
                break
        return campaign, [row.progress for row in await book.list_rows(campaign.id)]

    # --- the truth

    def list_interruptions(self) -> dict[str, float]:
        """Return when each host first lost a port of its tenant after the daemon may act."""
        lost: dict[str, float] = {}
        for name in self.hosts:
            place = self.world.site.places[name]
            leaves = [self.world.site.switches[place.name_leaf(rail)] for rail in range(8)]
            times = [
                event.time
                for leaf in leaves
                for event in leaf.log
                if event.kind == "vrf"
                and event.time > self.since
                and event.subject == f"{leaf.name}/{place.interface}"
                and event.detail.startswith(VRFS)
            ]
            if times:
                lost[name] = min(times)
        return lost

    def list_violations(self) -> list[str]:
        """Return writes, resets and power acts while a host was in a tenant's network."""
        truth = collect_truth(self.world.site)
        return [str(v) for v in (*truth["violations"], *truth["switch_outages"])]

    def list_out_of_service(self) -> set[str]:
        """Return the hosts with a port outside of their tenant's network now."""
        nodes = collect_truth(self.world.site)["nodes"]
        return {n for n in self.hosts if NOBODYS & set(nodes[n]["ports"].values())}


def is_in_window(at: float) -> bool:
    """Return whether a time is in the nightly window."""
    hour = datetime.fromtimestamp(at, UTC).hour
    return hour >= WINDOW_H[0] or hour < WINDOW_H[1]
