"""Intake of the same simulated site by the provisioner and then by OpenStack Ironic.

Time runs from the first request to the last node that is taken in: neither's start and end count.
Our CPU includes both.

Each drives its own fresh `provisioner sim serve` of one seed, in a process of its own, over HTTPS
on loopback. Both take the same BMCs, eleven of a node: the host's and those of its ten cards. The
provisioner changes the factory passwords, reads the full inventory, moves the host's ports into the
maintenance VRF, and reads that back: a node counts once it has left `intake`. For Ironic each BMC
is a node of its own, the host's from enrolment over inspection to `available`; its cards' without
inspection, since they have not what it looks for, and with passwords that were changed for it
before. What we do more is paid for in our figures. Simulated waiting (a switch at work, in-band
facts) runs at `SPEED` for us; Ironic has none of it here.

Ours is held against what a bare client needs (`bare_cpu_s`): the same requests, sent again to the
same site once it is up, by aiohttp alone over kept connections, each BMC and switch one after the
other, and as many TLS handshakes as there were. Bodies are read and not parsed; a request that
changes something is a reading of the service root there. `cpu_ratio_bare` is ours over it.

With `--hosts-only` Ironic takes the host's BMC alone, one of our eleven, and the ratios are named
`_per_host`. `make bench NAME=intake` runs Ironic as released and with its password hash at the 40
rounds that it had before 35.0.0 (`..._patched`). The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import aiohttp
from ironic_peer import PINS, Bmc, Ironic, install
from processes import Peak, used
from yarl import URL

from provisioner.adapters.bounded_http import bare_context
from provisioner.daemon.data import open_data
from provisioner.integrations.demo import running
from provisioner.integrations.demo.site import choose_settings, prepare_files
from provisioner.model.node import NodeKind, State
from provisioner.ports import Secret
from provisioner.runtime.event_loop import new_event_loop
from provisioner.runtime.wall_clock import WallClock
from provisioner.store.database.data_directory import lock_data_directory
from provisioner.store.repositories.vault import Vault

BEFORE = (State.DISCOVERED, State.INTAKE)
SYSTEM = "/redfish/v1/Systems/1"  # as the simulator's default vendor names it
CARD = "/redfish/v1/Systems/Bluefield"
PASSWORD = "Card-of-this-bench-1"
ROOTS = {True: "/redfish/v1", False: "/nvue_v1/revision"}  # of a BMC, of a switch
PORT = 16385
NODES = 12  # of fewer, a node's own device times are most of the time
SPEED = 20.0  # of the simulated waits: in-band facts, a switch that applies; Ironic has none here
MATRIX = Path(__file__).parents[2] / "firmware_matrix.yaml"


@dataclass(frozen=True)
class Figures:
    """What one of them needed."""

    nodes: int
    bmcs: int
    wall_s: float
    cpu_s: float
    requests: int  # to every BMC
    requests_host_bmc: int
    memory_max_mib: float  # proportional set size of all its processes
    bare: dict[str, float] | None = None  # of a bare client: what it sent, and its CPU

    def told(self) -> dict[str, float]:
        """Per node, rounded."""
        return {
            "nodes": self.nodes,
            "bmcs": self.bmcs,
            "nodes_per_min": round(self.nodes * 60 / self.wall_s, 1),
            "bmcs_per_min": round(self.bmcs * 60 / self.wall_s, 1),
            "cpu_s_per_node": round(self.cpu_s / self.nodes, 3),
            "cpu_s_per_bmc": round(self.cpu_s / self.bmcs, 4),
            "requests_per_node": round(self.requests / self.nodes, 1),
            "requests_per_bmc": round(self.requests / self.bmcs, 1),
            "requests_to_host_bmc": round(self.requests_host_bmc / self.nodes, 1),
            "memory_max_mib": round(self.memory_max_mib, 1),
            **(self.bare or {}),
        }


# --- the provisioner


@dataclass
class Sent:
    """What left this process."""

    requests: list[tuple[str, Any]] = field(default_factory=list)  # method, URL
    handshakes: int = 0


@contextmanager
def note_sent() -> Iterator[Sent]:
    """Note every request that aiohttp sends in this process while inside, and every handshake."""
    sent = Sent()
    request, wrap = aiohttp.ClientSession._request, ssl.SSLContext.wrap_bio

    def note(session: Any, method: str, url: Any, **options: Any) -> Any:
        sent.requests.append((method, url))  # its text costs more than the rest of this
        return request(session, method, url, **options)

    def count(
        context: Any, inward: Any, outward: Any, server_side: bool = False, *more: Any, **named: Any
    ) -> Any:
        sent.handshakes += not server_side
        return wrap(context, inward, outward, server_side, *more, **named)

    with (
        patch.object(aiohttp.ClientSession, "_request", note),
        patch.object(ssl.SSLContext, "wrap_bio", count),
    ):
        yield sent


async def repeat_bare(
    sent: Sent, endpoints: Mapping[str, str], logins: Mapping[str, str]
) -> dict[str, float]:
    """Send the same again by a bare client; return what it sent, and its CPU seconds."""
    paths: dict[str, list[str]] = {}
    origins = {url.rstrip("/"): name for name, url in endpoints.items()}
    for method, asked in sent.requests:
        url = str(asked)
        origin = str(URL(url).origin())
        if origin in origins:
            place = url.removeprefix(origin) if method == "GET" else ROOTS["/" in origins[origin]]
            paths.setdefault(origin, []).append(place)
    connector = aiohttp.TCPConnector(limit=0, ssl=bare_context())
    failed = 0

    async def read_all(origin: str, places: list[str]) -> None:
        nonlocal failed
        headers = {"Authorization": logins[origins[origin]]}
        for place in places:
            async with session.get(origin + place, headers=headers) as answer:
                await answer.read()
                failed += answer.status >= 500

    async def shake_hands(origin: str) -> None:
        at = URL(origin)
        _, writer = await asyncio.open_connection(at.host, at.port, ssl=bare_context())
        writer.transport.abort()

    before = time.process_time()
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(read_all(*one) for one in paths.items()))
    known = list(paths)
    for number in range(max(0, sent.handshakes - len(known))):
        await shake_hands(known[number % len(known)])
    return {
        "bare_requests": sum(map(len, paths.values())),
        "bare_handshakes": max(sent.handshakes, len(known)),
        "bare_failed": failed,
        "bare_cpu_s": time.process_time() - before,
    }


async def read_logins(vault: Vault, endpoints: Mapping[str, str]) -> dict[str, str]:
    """The Basic login of each BMC and switch as it is now, by its name."""
    logins = {}
    for name in endpoints:
        known = await vault.current(name if "/" in name else f"{name}/api")
        username, secret = known or ("", Secret(""))
        logins[name] = aiohttp.encode_basic_auth(username, secret.reveal())
    return logins


async def ours(nodes: int, directory: Path) -> dict[str, Any]:
    """In a process of its own: from addresses to nodes that have left `intake`."""
    asked = running.Asked(nodes=nodes, speed=SPEED)
    async with running.run_simulator(asked, directory) as site:
        expected, endpoints = await site.get("/expected"), await site.get("/endpoints")
        files = prepare_files(directory, expected, nodes)
        told_clock, data_directory = await site.get("/clock"), directory / "data"
        clock = WallClock(told_clock["speed"], told_clock["epoch"])
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
        first: list[float] = []
        last: list[float] = []

        def note_begin(_progress: running.Progress) -> None:
            if not first:
                first.append(time.monotonic())

        def is_up(seen: Any, _running: int) -> bool:
            last[:] = [time.monotonic()]
            return _taken_in(seen) == nodes

        with lock_data_directory(data_directory), note_sent() as sent:
            async with open_data(data_directory, clock.now()) as data:
                await running.drive(
                    choose_settings(asked.nodes, asked.speed),
                    files,
                    MATRIX,
                    site,
                    clock,
                    data,
                    note_begin,
                    is_up,
                    began,
                    600.0,
                )
                taken = _taken_in(await data.store.nodes.list())
                logins = await read_logins(data.vault, endpoints)
        wall_s = last[0] - first[0]
        after = resource.getrusage(resource.RUSAGE_SELF)
        told = await site.get("/requests")
        assert taken == nodes, f"only {taken} of {nodes} nodes left intake"
        cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        bare = await repeat_bare(sent, endpoints, logins)
        bare["cpu_ratio_bare"] = cpu_s / bare["bare_cpu_s"]
        figures = Figures(
            nodes=nodes,
            bmcs=sum("/" in name for name in endpoints),
            wall_s=wall_s,
            cpu_s=cpu_s,
            requests=told["redfish"],
            requests_host_bmc=told["redfish_by_bmc"]["host"],
            memory_max_mib=after.ru_maxrss / 1024,
            bare={name: round(figure, 3) for name, figure in bare.items()},
        )
    return asdict(figures)


def _taken_in(nodes: Any) -> int:
    hosts = [n for n in nodes if n.kind is NodeKind.HOST]
    return sum(n.state not in BEFORE and n.state is not State.QUARANTINED for n in hosts)


def run_ours(nodes: int, directory: Path) -> Figures:
    """`ours` as a child, so that nothing else of this process is in its figures."""
    command = (sys.executable, __file__, "--ours", str(directory), "--nodes", str(nodes))
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Figures(**json.loads(answer.splitlines()[-1]))


# --- Ironic


async def _with_site(
    nodes: int,
    directory: Path,
    work: Callable[[list[Bmc]], tuple[float, float, float]],
    *,
    cards: bool,
) -> Figures:
    async with running.run_simulator(running.Asked(nodes=nodes, speed=SPEED), directory) as site:
        endpoints, expected = await site.get("/endpoints"), await site.get("/expected")
        factory = expected["factory_credentials"]
        host, card = factory["supermicro"], factory["nvidia_openbmc"]
        bmcs = []
        for name, url in endpoints.items():
            if name.endswith("/host"):
                bmcs.append(Bmc(url, SYSTEM, host["username"], host["password"]))
            elif "/" in name and cards:
                await _prepared(url, card)
                bmcs.append(Bmc(url, CARD, card["username"], PASSWORD, inspected=False))
        before = (await site.get("/requests"))["redfish"]
        wall_s, cpu_s, mib = await asyncio.to_thread(work, bmcs)
        told = await site.get("/requests")
    asked, by = told["redfish"] - before, told["redfish_by_bmc"]["host"]
    return Figures(nodes, len(bmcs), wall_s, cpu_s, asked, by, mib)


async def _prepared(url: str, factory: Mapping[str, str]) -> None:
    """A card's factory password is changed, since it shows nothing before; Ironic cannot."""
    login = aiohttp.encode_basic_auth(factory["username"], factory["password"])
    account = f"{url}/redfish/v1/AccountService/Accounts/{factory['username']}"
    async with (
        aiohttp.ClientSession(headers={"Authorization": login}) as session,
        session.patch(account, json={"Password": PASSWORD}, ssl=False) as answer,
    ):
        answer.raise_for_status()


def run_ironic(
    nodes: int, directory: Path, environment: Path, rounds: int, *, cards: bool
) -> Figures:
    """`rounds`: of its password hash; 0 leaves Ironic as it is. `cards`: it takes them as well."""
    peer = Ironic(environment, directory / "ironic", PORT, rounds)

    def work(bmcs: list[Bmc]) -> tuple[float, float, float]:
        try:
            peer.start()
            peak = Peak(peer.pid)
            peak.start()
            began, before = time.monotonic(), used(peer.pid)[0]
            states = peer.enrol(bmcs, limit_s=3600.0)
            wall_s, cpu_s = time.monotonic() - began, used(peer.pid)[0] - before
            assert states == {"available": len(bmcs)}, states
            return wall_s, cpu_s, peak.end()
        finally:
            peer.stop()

    return asyncio.run(_with_site(nodes, directory, work, cards=cards))


# --- the table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--only", choices=("ours", "stock", "patched"), action="append")
    parser.add_argument("--hosts-only", action="store_true", help="Ironic takes no cards' BMCs")
    parser.add_argument("--peer", type=Path, default=Path.home() / ".cache" / "ironic-peer")
    parser.add_argument("--ours", type=Path, help="be the provisioner (internal)")
    asked = parser.parse_args()
    if asked.ours is not None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:  # as `provisioner serve` does
            told = runner.run(ours(asked.nodes, asked.ours))
        sys.stdout.write(json.dumps(told) + "\n")
        return
    wanted = asked.only or ["ours", "stock", "patched"]
    say(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    found: dict[str, Figures] = {}
    for name in wanted:
        with tempfile.TemporaryDirectory(prefix="bench-intake-") as folder:
            if name == "ours":
                found[name] = run_ours(asked.nodes, Path(folder))
            else:
                install(asked.peer)
                rounds = 40 if name == "patched" else 0
                found[name] = run_ironic(
                    asked.nodes, Path(folder), asked.peer, rounds, cards=not asked.hosts_only
                )
        load = os.getloadavg()[0]
        figures = "  ".join(f"{k} {v:g}" for k, v in found[name].told().items())
        say(f"{name:8} {figures}  (load {load:.1f})")
    say(json.dumps(summary(found)))


def summary(found: dict[str, Figures]) -> dict[str, Any]:
    """Ironic against the provisioner: how many times its CPU, how many times our speed."""
    told: dict[str, Any] = {name: figures.told() for name, figures in found.items()}
    told |= {"peer": PINS[0], "machine": platform.machine(), "cpus": os.cpu_count()}
    mine = told.get("ours")
    for name, suffix in (("stock", ""), ("patched", "_patched")):
        if mine is None or name not in found:
            continue
        peer = told[name]
        word = "node" if peer["bmcs"] == mine["bmcs"] else "host"
        cpu, rate = peer["cpu_s_per_node"], peer["nodes_per_min"]
        told[f"cpu_per_{word}_ratio{suffix}"] = round(cpu / mine["cpu_s_per_node"], 1)
        told[f"{word}s_per_min_ratio{suffix}"] = round(mine["nodes_per_min"] / rate, 1)
    return told


def say(text: str) -> None:
    """At once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
