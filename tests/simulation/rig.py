"""A whole simulated site and the whole daemon in one process, under virtual time.

The cut is at the request: client, quirks, parsing, planner, executor, reconciler and store run
unchanged. Chance comes from one seed, so a seed replays a run exactly.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from provisioner.adapters.redfish.discovery import probe_all
from provisioner.control.fabric.fabric_standing import Fabrics
from provisioner.daemon.daemon import Daemon, Parts
from provisioner.daemon.data import read_expected, read_secrets
from provisioner.execution.actions.work import HostLogin
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.os_images import OsImages
from provisioner.execution.observe.intake import find_nodes, take_in
from provisioner.integrations.demo.site import ARTIFACTS, DemoFiles, prepare_files
from provisioner.integrations.sim.redfish.bmc import from_files, make_service
from provisioner.integrations.sim.redfish.redfish_service import RedfishService
from provisioner.integrations.sim.site.site import Site
from provisioner.integrations.sim.site.truth import collect_truth, find_uncertified
from provisioner.integrations.simulated_site.simulated_agents import SiteSide, simulated_agents
from provisioner.integrations.twin.hosts import MemoryRunner, MemoryShell, Runs
from provisioner.integrations.twin.loop import VirtualClock
from provisioner.integrations.twin.wires import MemoryBmcs, MemorySwitches, Wire
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, State
from provisioner.planning.matrix import matrix_text
from provisioner.runtime.switch_systems import make_switches
from provisioner.settings import Settings
from provisioner.store.repositories.cases import SqlCaseRepository
from provisioner.store.repositories.signing_keys import MasterKey, open_signer
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

MATRIX = Path(__file__).parents[2] / "firmware_matrix.yaml"
RESTING = (State.RELEASED, State.QUARANTINED)
PUBLIC_KEY = "AAAAC3NzaC1lZDI1NTE5AAAAI" + "F" * 43  # of no private key


@lru_cache(8)
def parse_matrix(shipped: str, overlay: str) -> Matrix:
    """As the daemon reads its files, once for all worlds with the same ones."""
    return matrix_text.parse([(str(MATRIX), shipped), ("overlay", overlay)])


class World:
    """One site, one store, and daemons that come and go."""

    def __init__(
        self,
        directory: Path,
        nodes: int,
        seed: int,
        lost: float = 0.0,
        files: Mapping[str, bytes] = ARTIFACTS,
        **settings: float,
    ) -> None:
        """`files`: what the site's web server has, by name."""
        # looks at leaves are most of an hour's work; tests of such looks ask for one each 60 s
        known: dict[str, object] = {"site": "test", "watch_ports_s": 600.0, **settings}
        self.settings = Settings.model_validate(known)
        self.clock = VirtualClock()
        self.rng = random.Random(seed)
        self.tokens = random.Random(f"{seed}/tokens")
        self.wire = Wire(self.rng, lost)
        self.site = Site(nodes, seed, clock=self.clock, sleep=self.clock.sleep)
        self.services: dict[str, RedfishService] = {}
        fetch = from_files(dict(files))
        for name, machine in self.site.machines.items():
            for bmc in machine.bmcs:
                url = f"https://{name}.{bmc.lower().replace('_', '-')}.test"
                self.site.urls[f"{name}/{bmc}"] = url
                self.services[url] = make_service(machine, bmc, self.clock, fetch)
        self.site.on_fetch(fetch)
        self.transport = MemoryBmcs(self.services, self.wire)
        self.switches = MemorySwitches(self.site, self.wire)
        self.files: DemoFiles = prepare_files(directory, self.site.build_expected(), nodes)
        self.store = open_store(":memory:", inline=True)
        self.daemon: Daemon | None = None
        self.fabrics: Fabrics | None = None
        self.cases: SqlCaseRepository | None = None  # of the daemons that repair
        self.runs: Runs = {}

    async def take_in(self) -> None:
        """Discover and store every node, over a wire that loses nothing."""
        lost, self.wire.lost = self.wire.lost, 0.0
        self.vault = Vault(self.store, MasterKey.generate())
        expected = read_expected(self.files.expected)
        secrets = read_secrets(expected, {})
        probes = await probe_all(self.transport, sorted(self.services))
        assembly, found, silent = await find_nodes(
            self.transport, self.store, self.vault, expected, secrets, probes, self.clock.now()
        )
        assert not silent, silent
        assert not assembly.blockers, assembly.blockers
        await take_in(self.store, self.vault, expected, secrets, assembly, found, self.clock.now())
        self.wire.lost = lost

    async def start(self) -> None:
        """A new daemon on the same store: the first one, or the one after a crash."""
        await (await self.build()).start()

    async def build(self) -> Daemon:
        """A new daemon on the same store that does nothing yet."""
        key = MasterKey.generate() if self.daemon is None else self.key
        self.key = key
        self.agents = simulated_agents(
            SiteSide(self.site),
            self.store.agents,
            self.vault,
            self.clock,
            self.settings,
            self.store.journal.append,
            lambda: f"{self.tokens.getrandbits(256):064x}",
            self.wire.delay_request,
        )
        artifacts = Artifacts(self.files.artifacts, "http://artifacts.test")
        self.daemon = Daemon(
            Parts(
                store=self.store,
                credentials=self.vault,
                clock=self.clock,
                settings=self.settings,
                transport=self.transport,
                switches=make_switches(self.switches),
                runner=MemoryRunner(self.site, self.runs),
                shell=MemoryShell(self.site),
                agents=self.agents,
                artifacts=artifacts,
                matrix=parse_matrix(MATRIX.read_text(), self.files.overlay.read_text()),
                signer=await open_signer(self.store, key, self.clock.now()),
                campaigns=self.store.campaigns,
                cases=self.cases,
                fabrics=self.fabrics,
                os_images=OsImages(artifacts, self.files.artifacts / "raw", "https://images.test"),
                login=HostLogin("provisioner", f"ssh-ed25519 {PUBLIC_KEY} provisioner"),
            )
        )
        return self.daemon

    async def crash(self) -> None:
        """The daemon is gone at once: nothing that it was about to do is done."""
        assert self.daemon is not None
        await self.daemon.stop()

    async def settle(self, limit_s: float) -> list[Node]:
        """Let virtual time pass until everything rests, or the limit."""
        assert self.daemon is not None
        until = self.clock.now() + limit_s
        while self.clock.now() < until:
            await self.clock.sleep(60.0)
            nodes = list(await self.store.nodes.list())
            if self.daemon.engine.running == 0 and all(n.state in RESTING for n in nodes):
                return nodes
        return list(await self.store.nodes.list())

    async def violations(self) -> list[str]:
        """Everything that must never happen and did: by the simulator's own truth."""
        seen = collect_truth(self.site)
        certificates = []
        for node in await self.store.nodes.list():
            held = (
                await self.store.evidence.get_certificate(node.certificate)
                if node.certificate
                else None
            )
            if held is not None and not await self.store.evidence.is_revoked(held.id):
                certificates.append(held.model_dump(mode="json"))
        found = [str(v) for v in seen["violations"] + seen["switch_outages"]]
        found += [str(v) for v in find_uncertified(seen, certificates)]
        check = await self.store.journal.verify()
        return found if check.intact else [*found, "the journal's chain is broken"]
