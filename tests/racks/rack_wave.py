"""A wave of firmware over many whole racks by the daemon's own loops, in virtual time.

Each rack is a simulator of its own with 18 trays, 9 switches and 8 shelves, all of old versions;
each request goes through its wires. With `answer_s`, each answer takes between a third of it and
five thirds, and what no BMC takes `SILENT_S`; without it, only what was written takes its time.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from duty_rig import LOGINS, Parts
from rack_rig import Rig, find_overlaps
from typer.testing import CliRunner

from provisioner.integrations.demo.rack_site import TARGETS
from provisioner.integrations.racks.duty.approval import RackCampaign, read_state
from provisioner.integrations.racks.duty.rack_duty import RackDuty
from provisioner.integrations.racks.duty.rack_holds import RackHolds
from provisioner.integrations.racks.rack_commands import app
from provisioner.integrations.sim.racks.rack import Event, Rack, Times
from provisioner.integrations.sim.racks.shelf import PMC_BACK_S
from provisioner.integrations.twin.loop import run
from provisioner.ports import Call, Reply, Unreachable
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.signing import Signer
from provisioner.store.sql_store import open_store

FETCH_S = 30.0  # of a simulated NVOS
SILENT_S = 10.0  # until a connection that nobody takes is given up
QUIET_S = 7200.0  # behind its last request nothing happens in a rack any more
FULL = {"trays": 18, "switches": 9, "shelves": 8}


class Died(BaseException):
    """The process is gone."""


class Wave:
    """Racks with one time, and their daemon, which may die at its writes."""

    def __init__(
        self,
        folder: Path,
        racks: int,
        at_once: int,
        shape: dict[str, int] = FULL,
        answer_s: float = 0.0,
    ) -> None:
        self.answer_s = answer_s
        self.folder = folder
        self.campaign = folder / "campaigns" / "wave"
        self.campaign.mkdir(parents=True)
        # at a write; all that die in one act leave a person to look, so many racks need less
        self.dies = 0.05 if racks == 1 else 0.01
        self.rigs: list[Rig] = []
        self.by_host: dict[str, Rig] = {}
        for n in range(racks):
            self._add(n, shape)
        self.racks = [
            {
                "name": f"r{n}",
                "chassis_serial": f"182{n:04}",
                "domain": f"d{n}",
                "units": rig.units,
            }
            for n, rig in enumerate(self.rigs)
        ]
        (folder / "racks.yaml").write_text(json.dumps({"racks": self.racks}))
        trays = [u["name"] for rig in self.rigs for u in rig.units if u["kind"] == "compute-tray"]
        asked = self.rigs[0].campaign().model_dump(mode="json")
        asked["units"] = {name: {"tenant": ""} for name in trays}
        asked["limits"] = {"at_once": at_once}
        (self.campaign / "campaign.yaml").write_text(json.dumps(asked))
        self.at_once = at_once
        self.deaths = 0
        self.deaths_left = 0
        self.begun = self.rigs[0].rack.now  # the time at which this life began
        self.loop: asyncio.AbstractEventLoop | None = None
        self.rng = random.Random(44)
        self.gone = False
        store = open_store(":memory:", inline=True)
        settings = Settings(racks_folder=str(folder), racks_update=True)
        vault, signer = Vault(store, MasterKey.generate()), Signer(Ed25519PrivateKey.generate())
        self.parts = Parts(store, self, settings, self, vault, signer)  # type: ignore[arg-type]

    def _add(self, number: int, shape: dict[str, int]) -> None:
        """Make a rack with names and addresses of its own in the plan."""
        rig = Rig(self.campaign, targets=TARGETS, **shape)
        hosts = dict(rig.rack.hosts)
        rig.rack.hosts.clear()
        for unit in rig.units:
            if unit["kind"] != "power-shelf":
                placed: Any = rig.rack.units[unit["name"]]
                placed.chassis = f"182{number:04}"
            unit["name"] = f"r{number}-{unit['name']}"
            for what in {"bmc", "nvos"} & unit.keys():
                url = unit[what].replace("https://", f"https://r{number}-")
                rig.rack.hosts[url] = hosts[unit[what]]
                unit[what] = url
                self.by_host[url] = rig
        self.rigs.append(rig)

    # --- the daemon's clock and its transports

    def now(self) -> float:
        return self.begun + (0.0 if self.loop is None else self.loop.time())

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds, 0.0))

    def _catch_up(self, rack: Rack) -> None:
        """Bring a rack to the time of all."""
        behind = self.now() - rack.now
        if behind > QUIET_S:
            rack.advance(QUIET_S)
            rack.now = self.now()
        rack.advance(self.now() - rack.now)

    async def request(self, address: Any, call: Call) -> Reply:
        self._may_die(call)
        rig = self.by_host[address.url.rstrip("/")]
        await asyncio.sleep(self.rng.uniform(self.answer_s / 3, self.answer_s * 5 / 3))
        self._catch_up(rig.rack)
        try:
            reply = await rig.wires.request(address, call)
        except Unreachable:
            await asyncio.sleep(SILENT_S if self.answer_s else 0)
            raise
        self._may_die(call)
        return reply

    def _may_die(self, call: Call) -> None:
        if self.gone:  # a process that died sends nothing more, whatever else it had under way
            raise Died
        at_host = call.path.endswith("ComputerSystem.Reset")  # several at one act: a person looks
        if (
            call.method != "GET"
            and self.deaths_left
            and not at_host
            and self.rng.random() < self.dies
        ):
            self.deaths_left -= 1
            self.gone = True
            raise Died

    async def fingerprint(self, _: Any) -> str:
        return ""

    async def password_change(self, _: Any) -> str | None:
        return None

    async def forget(self, _: Any) -> None: ...

    async def close(self) -> None: ...

    # --- its life

    def approve(self) -> None:
        words = ["approve", str(self.folder), "wave", *(str(r["name"]) for r in self.racks)]
        words += ["--who", "amy", "--why", "a wave", "--user", "admin", "--nvos-user", "admin"]
        told = CliRunner().invoke(app, [*words, "--yes"])
        assert told.exit_code == 0, told.output

    def live(self, deaths: int) -> RackCampaign:
        """Have one daemon after the other carry the campaign on until it is over or held."""
        self.deaths_left = deaths

        async def turn() -> None:
            self.loop = asyncio.get_running_loop()
            duty = RackDuty(self.parts, switches=self, environ=LOGINS)  # type: ignore[arg-type]
            await RackHolds(duty).tick()
            await duty.tick()

        while True:
            self.gone = False
            try:
                run(turn())
                break
            except Died:
                self.deaths += 1
            finally:
                self.begun = self.now()
                self.loop = None
        state = read_state(self.campaign)
        assert state is not None
        return state

    # --- what happened, by the simulators' own logs

    def find_faults(self) -> list[str]:
        """Return each broken rule, each write that was not needed, and each push beside another."""
        found = []
        for n, rig in enumerate(self.rigs):
            found += [f"r{n}: violation {each}" for each in rig.violations()]
            own = {unit["name"].partition("-")[2]: unit for unit in rig.units}
            rig.units = [{**unit, "name": name} for name, unit in own.items()]
            found += [f"r{n}: {each}" for each in find_overlaps(rig)]
            pushed = Counter((e.unit, e.detail) for e in rig.rack.find("push"))
            found += [f"r{n}: {what} was written {k} times" for what, k in pushed.items() if k > 1]
        spans = [self.span(rig) for rig in self.rigs]
        changes = sorted([(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans])
        out = 0
        for _, change in changes:
            out += change
            found += ["more domains were out than the limit admits"] if out > self.at_once else []
        return found

    @staticmethod
    def span(rig: Rig) -> tuple[float, float]:
        """Return the first and the last thing that happened in a rack."""
        return rig.rack.log[0].at, rig.rack.log[-1].at

    def bound(self) -> float:
        """Return a time that no order beats, by the simulators' durations and the limit."""
        spans = [find_bound(rig.rack.log, rig.rack.times) for rig in self.rigs]
        return max(max(spans), sum(spans) / self.at_once)


def find_bound(log: list[Event], times: Times) -> float:
    """Return how long a rack takes at least: switches, then trays' cycles, then one shelf's write
    after the other; each push, job and restart as long as its simulator takes.
    """
    takes = {"push": times.push, "job fetch": FETCH_S, "switch reboot": times.nvos_cycle}
    takes |= dict.fromkeys(("job firmware", "job image"), times.job)
    back = times.bmc_back + times.hmc_back
    takes["bmc reset"] = back
    chain: Counter[str] = Counter()
    shelves = 0.0
    for event in log:
        if event.unit.startswith("p") and event.what == "push":
            flash = event.detail.endswith("[]")  # no supply: its controller starts again
            shelves += times.shelf_push + (PMC_BACK_S if flash else 0.0)
        else:
            chain[event.unit] += takes.get(event.what, 0.0)
    switches = max((chain[u] for u in chain if u.startswith("s")), default=0.0)
    trays = max((chain[u] for u in chain if u.startswith("t")), default=0.0)
    cycle = back + 2 * times.power  # off, and on again; and once more for the supplies
    return max(switches + times.configure, trays) + cycle + shelves + 2 * times.power
