"""Racks are read: each BMC and NVOS over HTTPS, told by content, its place, water and versions.

    make bench NAME=rack-looks                 (250 racks of 35 BMCs; ARGS="--racks 4" for fewer)

The simulator is a process of its own that serves every BMC and every NVOS at an address of its own.
A rack counts once every unit of it is proved to be where the plan has it, its water is dry and its
versions are read. An NVL72 has 71 BMCs with those of its 36 BlueFields, which the simulated rack
has not: neither they nor a change of passwords is in the figures.

`cpu_s_per_bmc` is this process's alone, handshakes included. The last line is JSON; the exit code
is 1 if a rack is not proved.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import this_machine
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.integrations.demo.rack_site import OURS, RackSite
from provisioner.integrations.racks.campaign import CampaignFile
from provisioner.integrations.racks.membership import judge_rack
from provisioner.integrations.racks.plan import RackPlan
from provisioner.integrations.racks.update_start import read_rack_units
from provisioner.integrations.racks.update_world import Update
from provisioner.integrations.sim.racks.rack import Rack
from provisioner.ports import BmcAddress, Secret, SwitchAddress
from provisioner.runtime.event_loop import new_event_loop, raise_open_files

RACKS = 250
UNITS = {"trays": 18, "switches": 9, "shelves": 8}


def write_certificate(folder: Path) -> tuple[ssl.SSLContext, str]:
    """Return what serves TLS, and the SHA-256 of its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rack.example")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    file = folder / "served.pem"
    file.write_bytes(secret + made.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context, made.fingerprint(hashes.SHA256()).hex()


async def offer(rack: Rack, url: str, context: ssl.SSLContext) -> str:
    """Serve what one address of a simulated rack answers; return its real address."""

    async def answer(request: web.BaseRequest) -> web.Response:
        login = "" if "Authorization" not in request.headers else OURS
        told = rack.request(url, request.method, request.path_qs, None, login)
        headers = {"Content-Type": "application/json", **told.headers}
        return web.Response(status=told.status, body=told.encode(), headers=headers)

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    return f"https://127.0.0.1:{runner.addresses[0][1]}"


async def serve(racks: int, folder: Path) -> None:
    """The server process: tells the plan and the pin, and serves until its input ends."""
    context, pin = write_certificate(folder)
    planned: list[dict[str, Any]] = []
    for number in range(racks):
        site = RackSite(folder, **UNITS)
        chassis = f"18{number:06d}"
        units = []
        for unit in site.units:
            machine: Any = site.rack.units[unit["name"]]
            machine.chassis = chassis
            served = {
                w: await offer(site.rack, unit[w], context) for w in ("bmc", "nvos") if w in unit
            }
            units.append({**unit, **served, "name": f"r{number}-{unit['name']}"})
        rack = {"name": f"r{number}", "chassis_serial": chassis, "domain": f"d{number}"}
        planned.append({**rack, "units": units})
    sys.stdout.write(json.dumps({"racks": planned, "pin": pin}) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)


async def look(told: dict[str, Any]) -> dict[str, Any]:
    """Read every rack, one after the other, its units side by side; return the figures."""
    plan = RackPlan.model_validate({"racks": told["racks"]})
    units = [unit for rack in plan.racks for unit in rack.units]
    bmcs, switches = RedfishTransport(), SwitchHttps()
    secret = Secret(OURS)
    begun, cpu = time.monotonic(), time.process_time()
    proved = 0
    for rack in plan.racks:
        update = Update(
            plan=RackPlan(racks=(rack,)),
            asked=CampaignFile.model_validate({"targets": {"compute-tray": {}}}),
            folder=Path(),
            bmcs=bmcs,
            switches=switches,
            addresses={u.name: BmcAddress(u.bmc, pin=told["pin"]) for u in rack.units},
            nvos={
                u.name: SwitchAddress(u.nvos, "admin", secret, pin=told["pin"])
                for u in rack.units
                if u.nvos
            },
            factory={},
            water=Path(),
            now=time.time,
        )
        read = await read_rack_units(update)
        verdict = judge_rack(update.plan, rack.name, read.units)
        whole = all(read.running.get(unit.name) for unit in rack.units)
        dry = all(one.water in {"dry", "none"} for one in verdict.units)
        proved += verdict.proved and whole and dry
        why = [one.detail for unit in verdict.units for one in unit.findings]
        sys.stdout.write("".join(f"{rack.name}: {each}\n" for each in why[:3]))
    wall, used = time.monotonic() - begun, time.process_time() - cpu
    await bmcs.close()
    await switches.close()
    return {
        "racks": len(plan.racks),
        "bmcs": len(units),
        "nvos": sum(bool(unit.nvos) for unit in units),
        "proved": proved,
        "wall_s": round(wall, 1),
        "cpu_s": round(used, 1),
        "cpu_s_per_bmc": round(used / len(units), 3),
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
        with tempfile.TemporaryDirectory(prefix="bench-rack-looks-") as folder:
            words = [sys.executable, __file__, "--racks", str(asked.racks), "--serve", folder]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            with subprocess.Popen(words, text=True, **pipes) as server:
                assert server.stdout is not None
                told = json.loads(server.stdout.readline())
                figures = runner.run(look(told))
                server.kill()
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0 if figures["proved"] == figures["racks"] else 1


if __name__ == "__main__":
    sys.exit(main())
