"""Many racks in virtual time whose BMCs take their time, the daemon's watch of water, and leaks."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from duty_rig import LOGINS, Parts

from provisioner.control.watch.watcher import WatchParts
from provisioner.integrations.demo.rack_site import NEW, OLD, RackWires
from provisioner.integrations.racks.duty.rack_duty import USER, RackDuty
from provisioner.integrations.racks.duty.rack_water import RackWater
from provisioner.integrations.racks.plan import read_record
from provisioner.integrations.racks.water_file import WaterFile
from provisioner.integrations.sim.racks.rack import Event, Rack, tell_leak
from provisioner.integrations.sim.racks.switch import Switch
from provisioner.integrations.sim.racks.tray import Tray
from provisioner.integrations.twin.loop import VirtualClock
from provisioner.ports import Call, Reply
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.signing import Signer
from provisioner.store.sql_store import open_store

ANSWER_S = (0.05, 0.25)  # of a BMC to one request
AT_ONCE = 256  # requests of a whole daemon, as the transport bounds them
PER_BMC = 2
DETECTORS = "/redfish/v1/Chassis/Chassis_0/ThermalSubsystem/LeakDetection/LeakDetectors"


class SlowWires(RackWires):
    """Wires of which each answer takes its time, behind the transport's bounds."""

    def __init__(self, rack: Rack, rng: random.Random) -> None:
        super().__init__(rack)
        self._rng = rng
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._own: dict[str, asyncio.Semaphore] = {}
        self.mute: set[str] = set()  # units that answer nothing for a long time
        self.asked: Counter[str] = Counter()

    async def request(self, address: Any, call: Call) -> Reply:
        name = self.rack.hosts[address.url.rstrip("/")][0]
        async with self._own.setdefault(name, asyncio.Semaphore(PER_BMC)), self._slots:
            self.asked[name] += 1
            await asyncio.sleep(100.0 if name in self.mute else self._rng.uniform(*ANSWER_S))
            self.rack.now = asyncio.get_running_loop().time()
            return await super().request(address, call)


class HeardSite:
    """To be made and used in one virtual loop."""

    def __init__(self, folder: Path, racks: int, trays: int = 18, switches: int = 9) -> None:
        self.folder = folder
        self.rng = random.Random(racks)
        self.rack = Rack()
        self.rack.watch = self._see
        self.wires = SlowWires(self.rack, self.rng)
        self.leaked: dict[str, float] = {}
        self.off: dict[str, float] = {}  # when the first Off was asked for
        self.offs: Counter[str] = Counter()
        planned = [self._add_rack(n, trays, switches) for n in range(racks)]
        (folder / "racks.yaml").write_text(json.dumps({"racks": planned}))
        store = open_store(":memory:", inline=True)
        self.watch_parts = WatchParts(store.alerts, lambda: "", streams=self.wires)
        self.parts = Parts(
            store,
            VirtualClock(),  # type: ignore[arg-type]
            Settings(racks_folder=str(folder), racks_update=True),
            self.wires,
            Vault(store, MasterKey.generate()),
            Signer(Ed25519PrivateKey.generate()),
            self.watch_parts,
        )
        duty = RackDuty(
            self.parts,  # type: ignore[arg-type]
            switches=self.wires,
            environ={**LOGINS, USER: "admin"},
        )
        self.watch = RackWater(duty)

    def _add_rack(self, number: int, trays: int, switches: int) -> dict[str, Any]:
        chassis = f"182{number:04}"
        units = []
        for n in range(trays + switches):
            tray = n < trays
            name = f"r{number}-{'t' if tray else 's'}{n}"
            one: Tray | Switch
            if tray:
                one = Tray(self.rack, name, 10 + n, n, chassis, {**OLD["host"], **NEW["hgx"]})
            else:
                one = Switch(self.rack, name, 10 + n, n, chassis, dict(OLD["switch"]), "n", "p")
            url = f"https://10.{number // 256}.{number % 256}.{n + 1}"
            self.rack.units[name] = one
            self.rack.hosts[url] = (name, "bmc")
            kind = "compute-tray" if tray else "nvlink-switch"
            place = {"slot": 10 + n, "tray_index": n, "u": 1 + n}
            units.append({"name": name, "kind": kind, "bmc": url, **place})
        return {"name": f"r{number}", "chassis_serial": chassis, "domain": f"d{number}"} | {
            "units": units
        }

    def _see(self, event: Event) -> None:
        if event.what == "reset" and event.detail == "ForceOff":
            self.off.setdefault(event.unit, event.at)
            self.offs[event.unit] += 1
            known = read_record(self.folder / "water.json", WaterFile).units
            assert known[event.unit].latched, "the latch is stored before the Off is sent"

    def tray(self, name: str) -> Tray:
        found = self.rack.units[name]
        assert isinstance(found, Tray)
        return found

    def leak(self, name: str, *, heard: bool = True) -> None:
        """Let a detector of a tray be critical; `heard`: and its BMC says so."""
        tray = self.tray(name)
        detector = next(iter(tray.detectors))
        tray.detectors[detector] = "Critical"
        tray.shown.change()
        self.leaked[name] = asyncio.get_running_loop().time()
        if heard:
            self.rack.send(name, tell_leak(f"{DETECTORS}/{detector}", "Degraded"))


async def measure_leaks(site: HeardSite, count: int) -> list[float]:
    """Let trays leak one after the other beside the poll; return seconds from event to Off."""
    watching = asyncio.create_task(site.watch.run())
    await asyncio.sleep(70.0)
    kept = site.folder / "water.json"
    for _ in range(200):  # the first turn looks for the detectors of every BMC
        if len(read_record(kept, WaterFile).units) == len(site.rack.units):
            break
        await asyncio.sleep(5.0)
    await asyncio.sleep(30.0)
    names = [name for name, one in site.rack.units.items() if isinstance(one, Tray)]
    for name in site.rng.sample(names, min(count, len(names))):
        await asyncio.sleep(site.rng.uniform(0.0, 0.4))
        site.leak(name)
    await asyncio.sleep(20.0)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return sorted(site.off[name] - at for name, at in site.leaked.items())
