"""Racks come up: each of 71 BMCs is told apart, gets our password, is read, and has its place.

    make bench NAME=rack-up                    (250 racks of 71 BMCs; ARGS="--racks 4" for fewer)

The simulator is a process of its own that serves every BMC and every NVOS over HTTPS at an address
of its own, with a certificate of its own and the factory's password, which has to change first. A
rack counts once the password of all 71 was changed and opens them, every tray and switch is proved
to be where the plan has it, all water is dry, and all versions are read, of the 36 BlueFields as
well. It is what `provisioner rack password` and `rack show` do, one rack after the other.

What it is not: nobody stores the passwords, no port moves, and a BlueField's tray is not proved
(`make bench NAME=fleet-up` does that). `cpu_s_per_bmc` is this process's alone, handshakes
included. The last line is JSON; the exit code is 1 if a rack is not proved, or the wall is over an
hour in proportion to the racks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import this_machine

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.redfish.walk import Walk
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.integrations.demo.rack_site import OURS, RackSite
from provisioner.integrations.racks.campaign import CampaignFile
from provisioner.integrations.racks.membership import judge_rack
from provisioner.integrations.racks.password_commands import Given, give_password
from provisioner.integrations.racks.plan import PlannedRack, RackPlan
from provisioner.integrations.racks.update_start import AT_ONCE, read_rack_units
from provisioner.integrations.racks.update_world import Update
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.racks.logins import Account, ask, read_login
from provisioner.integrations.sim.racks.rack import Rack
from provisioner.integrations.sim.redfish.redfish_tree import Answer
from provisioner.integrations.sim.site.serve import Addresses, Front, Server, SharedListener
from provisioner.integrations.sim.site.site import Site
from provisioner.ports import BmcAddress, PortError, Secret, SwitchAddress
from provisioner.runtime.event_loop import new_event_loop, raise_open_files

RACKS = 250
UNITS = {"trays": 18, "switches": 9, "shelves": 8}
CARDS = 36  # BlueFields of a rack, each with a BMC
BMCS = 71
USER, FACTORY, NEW = "root", "0penBmc", "a-Longer-0ne-of-ours"
WALL_MAX_S = 3600.0


def answer_rack(
    rack: Rack,
    account: Account | None,
    url: str,
    method: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
) -> Answer:
    """Answer as one address of a simulated rack."""
    login = read_login(headers)
    whole = f"{path}?{'&'.join(f'{k}={v}' for k, v in query.items())}" if query else path
    told = ask(rack, account, url, method, whole, json.loads(body) if body else None, login)
    sent = {"Content-Type": "application/json", **told.headers}
    return Answer(told.status, sent, told.encode())


async def serve(racks: int, folder: Path) -> None:
    """The server process: tells the plan and the cards, and serves until its input ends."""
    clock = FastClock(1.0)
    sample = Front(Site(1, 7, clock=clock))
    cards_each = sum(not name.endswith("/host") for name in sample.redfish)
    site = Site(-(-CARDS * racks // cards_each), 7, clock=clock)
    front = Front(site)
    names = [name for name in front.redfish if not name.endswith("/host")]
    shared = SharedListener(0)
    server = Server(clock, site.schedule, Addresses("127.0.0.1", shared.port), shared)
    planned: list[dict[str, Any]] = []
    cards: list[list[tuple[str, str, str]]] = []
    for number in range(racks):
        made = RackSite(folder, **UNITS)
        chassis = f"18{number:06d}"
        units = []
        for unit in made.units:
            machine: Any = made.rack.units[unit["name"]]
            machine.chassis = chassis
            name = f"r{number}-{unit['name']}"
            served = {}
            for what in (each for each in ("bmc", "nvos") if each in unit):
                account = Account(USER, FACTORY) if what == "bmc" else None
                handle = partial(answer_rack, made.rack, account, unit[what])
                served[what] = await server.add(f"{name}-{what}", handle)
            units.append({**unit, **served, "name": name})
        rack = {"name": f"r{number}", "chassis_serial": chassis, "domain": f"d{number}"}
        planned.append({**rack, "units": units})
        own = names[number * CARDS : (number + 1) * CARDS]
        cards.append([])
        for name in own:
            url = await server.add(name, partial(front.handle, name))
            bmc = front.redfish[name].bmc
            cards[-1].append((url, bmc.username, bmc.password))
    sys.stdout.write(json.dumps({"racks": planned, "cards": cards}) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


class Racks:
    """Takes racks over, one after the other, their BMCs side by side."""

    def __init__(self) -> None:
        self.bmcs, self.switches = RedfishTransport(), SwitchHttps()
        self.slots = asyncio.Semaphore(AT_ONCE)
        self.changed = 0

    async def _take(self, unit: str, url: str, user: str, factory: str) -> BmcAddress | None:
        """Pin a BMC's certificate, and have it take our password."""
        async with self.slots:
            pin = await self.bmcs.fingerprint(BmcAddress(url))
            address = BmcAddress(url, user, Secret(NEW), pin)
            told = await give_password(self.bmcs, unit, address, Secret(factory))
            if told.given is not Given.CHANGED:
                sys.stdout.write(f"{unit}: {told.given} {told.detail}\n")
                return None
            self.changed += 1
            return address

    async def _read_card(self, url: str, user: str, factory: str) -> bool:
        """Return whether a BlueField is told, and shows its serial and its versions."""
        try:
            address = await self._take(url, url, user, factory)
            if address is None:
                return False
            async with self.slots:
                root = await Walk(self.bmcs, address, quirks.UNKNOWN).read_root()
                client = Redfish(self.bmcs, address, quirks.identify(root))
                shown = await client.read_identity()
                listed = await client.read_firmware("card", "card")
                await self.bmcs.forget(address)
        except PortError as error:
            sys.stdout.write(f"{url}: {error}\n")
            return False
        return bool(shown.system_serial or shown.devices) and any(
            c.version for c in listed.components
        )

    async def bring_up(self, rack: PlannedRack, cards: list[tuple[str, str, str]]) -> bool:
        """Return whether a rack is proved."""
        units = [(u.name, self._take(u.name, u.bmc, USER, FACTORY)) for u in rack.units]
        taken = await asyncio.gather(*(each for _, each in units))
        addresses = {n: a for (n, _), a in zip(units, taken, strict=True) if a is not None}
        secret = Secret(OURS)
        nvos = [(u.name, u.nvos) for u in rack.units if u.nvos]
        pins = [await self.bmcs.fingerprint(BmcAddress(url)) for _, url in nvos]
        logins = {
            name: SwitchAddress(url, "admin", secret, pin=pin)
            for (name, url), pin in zip(nvos, pins, strict=True)
        }
        update = Update(
            plan=RackPlan(racks=(rack,)),
            asked=CampaignFile.model_validate({"targets": {"compute-tray": {}}}),
            folder=Path(),
            bmcs=self.bmcs,
            switches=self.switches,
            addresses=addresses,
            nvos=logins,
            factory={},
            water=Path(),
            now=time.time,
        )
        read = await read_rack_units(update)
        verdict = judge_rack(update.plan, rack.name, read.units)
        whole = all(read.running.get(unit.name) for unit in rack.units)
        dry = all(one.water in {"dry", "none"} for one in verdict.units)
        why = [one.detail for unit in verdict.units for one in unit.findings]
        sys.stdout.write("".join(f"{rack.name}: {each}\n" for each in why[:3]))
        told = await asyncio.gather(*(self._read_card(*card) for card in cards))
        for address in addresses.values():
            await self.bmcs.forget(address)
        return verdict.proved and whole and dry and all(told) and len(told) == CARDS

    async def close(self) -> None:
        await self.bmcs.close()
        await self.switches.close()


async def bring_all_up(told: dict[str, Any]) -> dict[str, Any]:
    """Bring every rack up; return the figures."""
    plan = RackPlan.model_validate({"racks": told["racks"]})
    racks = Racks()
    begun, cpu = time.monotonic(), time.process_time()
    proved = 0
    for number, rack in enumerate(plan.racks):
        proved += await racks.bring_up(rack, [tuple(each) for each in told["cards"][number]])
        if number % 10 == 9:
            sys.stdout.write(f"{time.monotonic() - begun:6.0f} s: {proved} racks are up\n")
            sys.stdout.flush()
    wall, used = time.monotonic() - begun, time.process_time() - cpu
    await racks.close()
    count = len(plan.racks) * BMCS
    return {
        "racks": len(plan.racks),
        "bmcs": count,
        "nvos": sum(bool(unit.nvos) for rack in plan.racks for unit in rack.units),
        "passwords_changed": racks.changed,
        "proved": proved,
        "wall_s": round(wall, 1),
        "cpu_s": round(used, 1),
        "cpu_s_per_bmc": round(used / count, 3),
        "reached": proved == len(plan.racks) and wall <= WALL_MAX_S * len(plan.racks) / RACKS,
        **this_machine.told(),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--racks", type=int, default=RACKS)
    parser.add_argument("--serve", default="")
    asked = parser.parse_args()
    raise_open_files()  # each address listens, and each BMC has a connection
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        if asked.serve:
            runner.run(serve(asked.racks, Path(asked.serve)))
            return 0
        with tempfile.TemporaryDirectory(prefix="bench-rack-up-") as folder:
            words = [sys.executable, __file__, "--racks", str(asked.racks), "--serve", folder]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            with subprocess.Popen(words, text=True, **pipes) as server:
                assert server.stdout is not None
                told = json.loads(server.stdout.readline())
                figures = runner.run(bring_all_up(told))
                server.kill()
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0 if figures["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
