"""Adopting a serving site: CPU time of the daemon's part, from the list to the stored rows.

    make bench NAME=adoption                   (ARGS="--nodes 64" for a quick one)

A process of its own is the site: the BMC of each host and each switch over HTTPS at a port of its
own. Every host serves: its eight rails are in a tenant's network, by halves. This process does what
`POST /v1/adoption` does in a daemon that observes: one list of the switches, then one of all hosts;
each BMC is probed, logged in to and identified by read-only adapters, each host's ports are read at
its leaves, and its row, its sealed login and its event are stored in a SQLite file. Parsing of the
list counts, waiting does not. With --cards the BMCs of a host's ten cards are listed and identified
too. The last line is JSON; the exit code is 1 if a host was not adopted, or if 4,096 hosts at this
CPU time a host would need more than 15 CPU minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import platform
import pstats
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import this_machine

from provisioner.adapters.read_only.hosts import ReadOnlyBmcs, ReadOnlySwitchWire
from provisioner.adapters.read_only.sources import BmcSource, SwitchSource
from provisioner.adapters.redfish.discovery import probe_all
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.daemon.data import Data, open_data, read_secrets
from provisioner.execution.actions.reach import Reach
from provisioner.execution.actions.work import Site as Effects
from provisioner.execution.tenancy.adopting import Adopted, AdoptionSite, adopt_nodes
from provisioner.execution.tenancy.tenancy import Tenancy
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.site.serve import Addresses, Front, Server
from provisioner.integrations.sim.site.site import Site
from provisioner.planning.intake import expected_text
from provisioner.runtime import permit
from provisioner.runtime.event_loop import new_event_loop
from provisioner.runtime.switch_systems import make_switches
from provisioner.settings import Settings

NODES = 4096
LIMIT_CPU_S = 900.0  # for 4,096 nodes
VRFS = ("RED", "BLUE")
RAILS = range(8)


async def serve(nodes: int, *, cards: bool) -> None:
    """The site: prints its two lists, and serves until its input ends."""
    site = Site(nodes, 7, clock=FastClock(1.0))
    server = Server(site.clock, site.schedule, Addresses("127.0.0.1", 0))
    front = Front(site)
    for number, place in enumerate(site.places.values()):
        for rail in RAILS:
            leaf = site.switches[place.name_leaf(rail)]
            for tree in (leaf.operational, leaf.applied, leaf.startup):
                vrf = VRFS[number % len(VRFS)]
                tree["interface"][place.interface].setdefault("ip", {})["vrf"] = vrf
    for name in front.list_names():
        if cards or "/" not in name or name.endswith("/host"):
            service = front.redfish.get(name)
            for account in service.accounts.accounts.values() if service else ():
                account.change_required = False  # a node that serves has no factory password
            site.urls[name] = await server.add(name, partial(front.handle, name))
    expected = site.build_expected()
    hosts = [n for n in expected["nodes"] if n["kind"] == "host"]
    switches = [n for n in expected["nodes"] if n["kind"] == "switch"]
    if not cards:
        hosts = [{**n, "dpus": []} for n in hosts]
    tenants = [
        {"name": v.lower(), "vrf": v, "l3vni": 4001 + n, "nodes_wanted": nodes // 2}
        for n, v in enumerate(VRFS)
    ]
    urls = [u for n, u in site.urls.items() if "/" in n and not n.endswith("/host")]
    listed = {**expected, "tenants": tenants}
    lists = [{**listed, "nodes": switches}, {**listed, "nodes": [*switches, *hosts]}, urls]
    sys.stdout.write(json.dumps(lists) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await server.close()


async def adopt(data: Data, text: str, cards: list[str]) -> Adopted:
    """Adopt a list as the API does, with the ports of a daemon that observes."""
    expected = expected_text.parse("expected", text)
    switches = SwitchHttps()
    bmcs = RedfishTransport()
    transport = ReadOnlyBmcs(BmcSource(bmcs))
    wire = ReadOnlySwitchWire(SwitchSource(switches))
    nothing: Any = None  # adoption has no use of a host's shell, agents or artifacts
    effects = Effects(
        clock=data.clock,
        settings=Settings(site=expected.site),
        reach=Reach(transport, make_switches(wire), data.vault),
        runner=nothing,
        shell=nothing,
        agents=nothing,
        artifacts=nothing,
    )
    site = AdoptionSite(transport, data.store, data.vault, Tenancy(effects, data.store))
    probes = await probe_all(transport, [*(n.bmc.url for n in expected.nodes if n.bmc.url), *cards])
    adopted = await adopt_nodes(
        site,
        expected,
        read_secrets(expected, {}),
        probes,
        by="bench",
        now=data.clock.now(),
        keep=True,
    )
    await bmcs.close()
    await switches.close()
    return adopted


async def measure(nodes: int, lists: list[Any], folder: Path) -> dict[str, Any]:
    """Return the figures of one site; BMCs of cards belong to the list of hosts."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    began = time.monotonic()
    with permit.observe():
        async with open_data(folder / "data", time.time()) as data:
            switches = await adopt(data, json.dumps(lists[0]), [])
            hosts = await adopt(data, json.dumps(lists[1]), lists[2])
            stored = len(await data.store.nodes.list())
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    for blocker in (*switches.blockers, *hosts.blockers)[:5]:
        sys.stderr.write(f"{blocker.subject}: {blocker.reason}: {blocker.detail}\n")
    assert stored == len(switches.nodes) + len(hosts.nodes)
    return {
        "nodes": len(hosts.nodes),
        "refused": nodes - len(hosts.nodes),
        "switches": len(switches.nodes),
        "bmcs": len(hosts.nodes) + len(lists[2]),
        "cpu_s": round(cpu_s, 1),
        "cpu_minutes": round(cpu_s / 60, 2),
        "cpu_ms_per_node": round(1000 * cpu_s / max(1, len(hosts.nodes)), 1),
        "cpu_minutes_per_4096": round(cpu_s / max(1, len(hosts.nodes)) * NODES / 60, 2),
        "wall_s": round(time.monotonic() - began, 1),
        "memory_mib": round(after.ru_maxrss / 1024),
    }


def main() -> int:
    """Start the site, adopt it, print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--cards", action="store_true", help="with the BMCs of cards")
    parser.add_argument("--profile", type=Path, help="write cProfile's figures; they cost time")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    words = parser.parse_args()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        if words.serve:
            runner.run(serve(words.nodes, cards=words.cards))
            return 0
        command = [sys.executable, __file__, "--serve", "--nodes", str(words.nodes)]
        command += ["--cards"] if words.cards else []
        world = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert world.stdout is not None
            lists = json.loads(world.stdout.readline())
            with tempfile.TemporaryDirectory() as folder:
                profile = cProfile.Profile()
                if words.profile:
                    profile.enable()
                figures = runner.run(measure(words.nodes, lists, Path(folder)))
                profile.disable()
        finally:
            world.kill()
            world.wait()
    if words.profile:
        profile.dump_stats(words.profile)
        pstats.Stats(profile).sort_stats("cumulative").print_stats(40)
    versions = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    sys.stdout.write(json.dumps({**figures, **this_machine.told(), "versions": versions}) + "\n")
    limit = LIMIT_CPU_S * words.nodes / NODES
    return 1 if figures["refused"] or figures["cpu_s"] > limit else 0


if __name__ == "__main__":
    sys.exit(main())
