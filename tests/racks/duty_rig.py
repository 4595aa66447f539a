"""A racks' folder, the store of a daemon, and its loops over the simulated rack."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rack_rig import Rig
from typer.testing import CliRunner

from provisioner.cli.options.checked_options import PASSWORD
from provisioner.control.watch.watcher import WatchParts
from provisioner.integrations.demo.rack_site import OURS
from provisioner.integrations.racks import update_commands
from provisioner.integrations.racks.duty.approval import (
    RackCampaign,
    build_mark,
    read_approval,
    read_state,
)
from provisioner.integrations.racks.duty.node_holds import build_want
from provisioner.integrations.racks.duty.rack_certificate import NOT_JUDGED, OLD
from provisioner.integrations.racks.duty.rack_duty import RackDuty
from provisioner.integrations.racks.duty.rack_holds import RackHolds
from provisioner.integrations.racks.fabric import switch_looks
from provisioner.integrations.racks.partitions.partition_proof import UNSET
from provisioner.integrations.racks.rack_commands import app
from provisioner.integrations.racks.update_log import NOTED, Line
from provisioner.integrations.sim.racks.switch import DEFAULT
from provisioner.model.node import BmcRef, Node, NodeKind, State
from provisioner.model.operation import Operation
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.signing import Signer, public_pem
from provisioner.store.sql_store import SqlStore, open_store

LOGINS = {PASSWORD: "p", switch_looks.OURS: OURS, update_commands.FACTORY: DEFAULT}


@dataclass
class Clock:
    """The simulated rack's time."""

    rig: Rig

    def now(self) -> float:
        return self.rig.rack.now

    async def sleep(self, seconds: float) -> None:
        await self.rig.pause(seconds)


@dataclass
class Parts:
    """A daemon's parts: its store and vault are real, what it reaches is the simulated rack."""

    store: SqlStore
    clock: Clock
    settings: Settings
    transport: object
    credentials: Vault
    signer: Signer
    watch: WatchParts | None = None
    fabrics: Any = None
    shared: object = None


def read_mark(campaign: Path) -> str:
    """Return what holds know a campaign's approval by."""
    return build_mark(campaign.name, read_approval(campaign))


class Daemon:
    """A racks' folder, the store of a daemon, and its loop; each `turn` may be a new process."""

    def __init__(
        self,
        folder: Path,
        targets: Mapping[str, Mapping[str, str]],
        rig: type[Rig] = Rig,
        domains: int = 1,
    ) -> None:
        self.folder = folder
        self.campaign = folder / "campaigns" / "winter"
        self.campaign.mkdir(parents=True)
        counts = {"trays": 2, "switches": domains, "shelves": domains}
        self.racks = [f"r0{n + 1}" for n in range(domains)]
        self.rig = rig(self.campaign, targets=targets, **counts)
        plan = self.rig.plan().model_dump(mode="json")
        (folder / "racks.yaml").write_text(json.dumps(plan))
        asked = self.rig.campaign().model_dump(mode="json")
        (self.campaign / "campaign.yaml").write_text(json.dumps(asked))
        self.store = open_store(":memory:", inline=True)
        settings = Settings(racks_folder=str(folder), racks_update=True)
        self.signer = Signer(Ed25519PrivateKey.generate())
        vault = Vault(self.store, MasterKey.generate())
        self.parts = Parts(
            self.store, Clock(self.rig), settings, self.rig.wires, vault, self.signer
        )

    def approve(self, *options: str) -> str:
        words = ["approve", str(self.folder), "winter", *self.racks]
        words += ["--who", "amy", "--why", "a CVE"]
        more = ["--user", "admin", "--nvos-user", "admin", "--yes", *options]
        told = CliRunner().invoke(app, [*words, *more])
        assert told.exit_code == 0, told.output
        return told.output

    def say(self, word: str, *more: str) -> None:
        words = [word, str(self.folder), "winter", *more, "--who", "amy", "--why", "enough"]
        told = CliRunner().invoke(app, words)
        assert told.exit_code == 0, told.output

    async def add(self, tenant: str = "", state: State = State.CERTIFIED, number: int = 0) -> None:
        """Have a tray be a node of the daemon."""
        url = f"https://10.0.0.{number + 1}"
        bmc = BmcRef(name="host", url=f"{url}:443")
        self.rig.rack.hosts[bmc.url] = self.rig.rack.hosts[url]
        node = Node(id=f"n{number}", kind=NodeKind.HOST, state=state, tenant=tenant, bmcs=(bmc,))
        await self.store.nodes.add(node)

    def duty(self) -> RackDuty:
        return RackDuty(
            self.parts,  # type: ignore[arg-type]
            switches=self.rig.wires,
            environ=LOGINS,
            poll_s=60.0,
        )

    async def turn(self) -> RackCampaign:
        duty = self.duty()
        await RackHolds(duty).tick()
        await duty.tick()
        state = read_state(self.campaign)
        assert state is not None
        return state

    def check_certificate(self) -> None:
        """Verify r01's certificate as an outsider does, also one that was changed."""
        file = self.campaign / "r01.certificate.json"
        keys = self.folder / "keys.pem"
        keys.write_text(public_pem(self.signer.public_key))
        words = ["verify-certificate", str(file), "--key", str(keys)]
        told = CliRunner().invoke(app, [*words, "--json"])
        assert told.exit_code == 0, told.output
        said = json.loads(told.stdout)
        assert said["fabric"] == ["links and control plane of d01"]
        assert said["not_judged"] == [
            f"the GPUs' fabric, IMEX and NCCL of d01: {OLD}",
            f"partitions of d01: {UNSET}",
            *NOT_JUDGED,
        ]
        units = {unit["name"]: unit for unit in said["units"]}
        assert set(units) == {"t0", "t1", "s0", "p0"}
        assert units["p0"]["versions"]["FW_PMC_alt"] == "3.2.4"
        assert (units["t0"]["slot"], units["t0"]["water"]) == (10, "dry")
        envelope = json.loads(file.read_text())
        envelope["payload"] = base64.b64encode(
            base64.b64decode(envelope["payload"]).replace(b"3.2.4", b"3.2.5")
        ).decode()
        file.write_text(json.dumps(envelope))
        assert CliRunner().invoke(app, words).exit_code == 1

    @property
    def mark(self) -> str:
        return read_mark(self.campaign)

    @property
    def want(self) -> str:
        return build_want((self.mark,))

    def begin_journal(self) -> None:
        """Write what a campaign's first turn notes before it holds a node."""
        line = Line("campaign", NOTED, "states", 1_000.0)
        (self.campaign / "journal").write_text(json.dumps(asdict(line)) + "\n")

    async def active(self) -> list[Operation]:
        return list(await self.store.operations.list_active())

    def each_round(self, look: Callable[[], object]) -> None:
        """Look while it runs: between two rounds."""
        original = self.rig.pause

        async def pause(seconds: float) -> None:
            await original(seconds)
            told = look()
            if asyncio.iscoroutine(told):
                await told

        self.rig.pause = pause  # type: ignore[method-assign]


FLASH = {"power-shelf": {"pmc": "3.2.4"}}
