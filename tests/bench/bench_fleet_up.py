"""A site comes up: from addresses that answer to nodes that are known, fenced and planned.

    make bench NAME=fleet-up                   (1,614 hosts of eleven BMCs; ARGS="--hosts 64" for
    fewer)

The simulator is a process of its own that serves every BMC and every switch over HTTPS at an
address of its own. The daemon knows nothing but the list of the cabling and the factory's logins:
it probes all addresses, identifies and pairs BMCs by serials, changes the factory passwords, reads
all parts and versions, moves the host's ports into the maintenance VRF at eight leaves, reads that
back and proves cables by the neighbours that the leaves see. A host counts once it has left
`intake`; then each host's plan to its release is made. Leaves and spines are taken in as well and
cost what they cost. A host that has left intake goes on, since nothing stops a daemon there: that
work is in the figures.

`wall_s` begins with the first probe and ends with the last plan; `daemon_cpu_s` is this process's.
The simulator's waits (a switch that applies, in-band facts) run `--speed` times as fast as devices.
`--stops` tells what held the event loop until all hosts were up, which costs some CPU.
The last line is JSON; the exit code is 1 if a host failed or a target is missed, that of the wall
in proportion to the number of hosts.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import json
import os
import pstats
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import this_machine
from loop_probe import LoopProbe
from processes import used

from provisioner import components
from provisioner.daemon.data import Data, open_data, read_matrix
from provisioner.integrations.demo import running
from provisioner.integrations.demo.site import choose_settings, prepare_files
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.path.planner import PlanCache, PlanningNode
from provisioner.runtime.event_loop import exempt_heap_daily, new_event_loop
from provisioner.runtime.wall_clock import WallClock
from provisioner.store.database.data_directory import lock_data_directory

HOSTS = 1614  # of eleven BMCs: 17,754, as many endpoints as NICo's own record has
BEFORE = (State.DISCOVERED, State.INTAKE)
MATRIX = Path(__file__).parents[2] / "firmware_matrix.yaml"
WALL_MAX_S = 3600.0
CORE_HOURS_MAX = 1.0  # of the daemon, for 10,000 BMCs
FILES_MAX = 65536
STOP_MAX_MS = 100.0
STILL_S = 30.0  # without a further host: print what the others wait for


@dataclass
class Standing:
    """How far the site is, printed when a minute passed or nothing moves."""

    hosts: int
    up: int = 0
    failed: int = 0
    printed_s: float = 0.0
    moved_s: float = 0.0

    def see(self, progress: running.Progress) -> None:
        """Count the hosts; print a line each minute, and what is waited for if nothing moves."""
        hosts = [n for n in progress.nodes if n.kind is NodeKind.HOST]
        up = sum(n.state not in (*BEFORE, State.QUARANTINED) for n in hosts)
        self.failed = sum(n.state is State.QUARANTINED for n in hosts)
        if up != self.up:
            self.up = up
            self.moved_s = progress.wall_s
        still = progress.wall_s - self.moved_s
        if progress.wall_s - self.printed_s >= STILL_S or self.over:
            self.printed_s = progress.wall_s
            say(f"{progress.wall_s:6.0f} s: {up} of {self.hosts} up, {self.failed} failed")
            if still >= STILL_S:
                _say_waits(progress.nodes)

    @property
    def over(self) -> bool:
        """Return whether each host is up or has failed."""
        return self.up + self.failed >= self.hosts


def _say_waits(nodes: Sequence[Node]) -> None:
    waits = Counter(
        f"{n.kind} {n.state}: {n.blockers[0].reason if n.blockers else n.note[:60]}"
        for n in nodes
        if n.state in BEFORE or n.blockers
    )
    for wait, count in waits.most_common(8):
        say(f"    {count} {wait}")


async def bring_up(
    hosts: int, speed: float, limit_s: float, folder: Path, probe: LoopProbe | None
) -> dict[str, Any]:
    """Bring a site of so many hosts up; return the figures."""
    asked = running.Asked(nodes=hosts, speed=speed, one_listener=True)
    async with running.run_simulator(asked, folder) as site:
        expected, endpoints = await site.get("/expected"), await site.get("/endpoints")
        bmcs = sum("/" in name for name in endpoints)
        files = prepare_files(folder, expected, hosts)
        told = await site.get("/clock")
        clock = WallClock(told["speed"], told["epoch"])
        standing = Standing(hosts)

        def is_over(_seen: Any, _running: int) -> bool:
            if standing.over and probe is not None:
                probe.stop()  # the daemon's own end is no part of a fleet that is read
            return standing.over

        began, cpu = time.monotonic(), _own_cpu_s()
        exempting = asyncio.create_task(exempt_heap_daily())  # as beside every daemon
        with lock_data_directory(folder / "data"):
            async with open_data(folder / "data", clock.now()) as data:
                async with probe or contextlib.nullcontext():
                    await running.drive(
                        choose_settings(hosts, speed),
                        files,
                        MATRIX,
                        site,
                        clock,
                        data,
                        standing.see,
                        is_over,
                        began,
                        limit_s,
                    )
                intake_s, requests = time.monotonic() - began, await site.get("/requests")
                planned = await _plan_all(data, read_matrix([MATRIX, files.overlay]))
        exempting.cancel()
        wall_s, cpu_s = time.monotonic() - began, _own_cpu_s() - cpu
        everything = used(os.getpid())[0]
    core_hours = cpu_s / 3600 / bmcs * 10_000
    return {
        "hosts": hosts,
        "bmcs": bmcs,
        "switches": sum("/" not in name for name in endpoints),
        "wall_s": round(wall_s, 1),
        "intake_s": round(intake_s, 1),
        "daemon_cpu_s": round(cpu_s, 1),
        "simulator_cpu_s": round(everything - _own_cpu_s(), 1),
        "core_hours_per_10k": round(core_hours, 4),
        "failed": hosts - standing.up,
        "planned": planned,
        "requests_per_host": {
            "redfish": round(requests["redfish"] / hosts, 1),
            "nvue": round(requests["nvue"] / hosts, 1),
        },
        "hosts_per_min": round(hosts * 60 / wall_s, 1),
        "memory_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "speed": speed,
        **(probe.compute_figures() if probe else {}),
        "reached": standing.up == planned == hosts
        and wall_s <= WALL_MAX_S * hosts / HOSTS
        and core_hours <= CORE_HOURS_MAX
        and (probe is None or max(probe.beats) <= STOP_MAX_MS),
    }


async def _plan_all(data: Data, matrix: Any) -> int:
    """Make each host's plan from what intake stored; return how many have an inventory."""
    plans = PlanCache(matrix, components.ALL, production=True)
    planned = 0
    for node in await data.store.nodes.list():
        if node.kind is not NodeKind.HOST:
            continue
        inventory = await data.store.evidence.get_inventory(node.id)
        if inventory is not None and node.profile:
            plans.plan(PlanningNode(inventory, node.release, node.profile))
            planned += 1
    return planned


def _raise_file_limit() -> None:
    """Allow the open connections to a fleet, as a daemon's service file does.

    Only a privileged process raises the hard limit.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for most in (max(hard, FILES_MAX), hard):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            return


def _own_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def say(text: str) -> None:
    """Print at once, also into a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Bring the site up and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=HOSTS)
    parser.add_argument("--speed", type=float, default=20.0, help="of the simulator's waits")
    parser.add_argument("--limit-s", type=float, default=2 * WALL_MAX_S)
    parser.add_argument("--profile", type=Path, help="write cProfile's figures; they cost time")
    parser.add_argument("--stops", action="store_true", help="measure what holds the event loop")
    asked = parser.parse_args()
    probe = LoopProbe() if asked.stops else None
    _raise_file_limit()
    profile = cProfile.Profile()
    if asked.profile:
        profile.enable()
    with (
        tempfile.TemporaryDirectory(prefix="bench-fleet-up-") as folder,
        asyncio.Runner(loop_factory=new_event_loop) as runner,
    ):
        report = runner.run(bring_up(asked.hosts, asked.speed, asked.limit_s, Path(folder), probe))
    profile.disable()
    for line in probe.list_lines() if probe else ():
        say(line)
    if asked.profile:
        profile.dump_stats(asked.profile)
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
    say(json.dumps(report | this_machine.told()))
    return 0 if report["reached"] else 1


if __name__ == "__main__":
    sys.exit(main())
