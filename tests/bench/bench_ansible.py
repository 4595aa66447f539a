"""What a playbook costs: one run for many hosts against one run for each, in CPU seconds a host.

    make bench NAME=ansible            100 hosts, 12 of them also one by one
    make bench NAME=ansible ARGS="--hosts 20 --alone 6"

Hosts are throw-away ones with a real sshd (needs root). Their Python is a stub that swallows the
module and answers: only the controller's side is counted, namely this process and every descendant
but the hosts. The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("ansible", "real")]

from hosts import Host, hosts, why_not  # noqa: E402
from plays import make_runner, write_plays  # noqa: E402

from provisioner.ports import PlaybookCall, Remote  # noqa: E402

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h: orphans become ours, so that their CPU time counts
HOSTS_AT_ONCE = 25  # brought up together
STUB = """\
#!/bin/sh
cat >/dev/null
echo '{"changed": true, "rc": 0, "stdout": "", "stderr": "", "cmd": ["true"]}'
"""
FIVE = "".join(
    f"    - name: Task {n}\n      ansible.builtin.command: {{argv: ['true', '{n}']}}\n"
    for n in range(1, 6)
)
FIVE += "    - name: Result\n      ansible.builtin.set_fact: {provisioner_result: {done: 5}}\n"


@dataclass(frozen=True)
class Cost:
    """Of one way of running."""

    hosts: int
    cpu_s: float
    wall_s: float

    @property
    def per_host_s(self) -> float:
        return self.cpu_s / self.hosts


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def cpu_s() -> float:
    """Of this process and of all descendants that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measure(made: Sequence[Host], plays: Path, data: Path, *, hosts_max: int, slots: int) -> Cost:
    """Run the five tasks on these hosts."""
    remote = Remote(
        user="root",
        private_key=made[0].key,
        known_hosts=data / "known_hosts",
        learn=True,
        python="/opt/stub",
    )

    async def run() -> None:
        runner, store = make_runner(
            plays, data, remote, playbook_hosts_max=hosts_max, playbook_slots=slots
        )
        calls = [PlaybookCall("five", f"h{n}", h.address, {}, 900.0) for n, h in enumerate(made)]
        results = await asyncio.gather(*(runner.run(c) for c in calls))
        await runner.idle()
        await runner.close()
        await store.close()
        bad = [r for r in results if r.facts != {"done": 5}]
        assert not bad, bad[0]

    before, began = cpu_s(), time.monotonic()
    asyncio.run(run())
    return Cost(len(made), cpu_s() - before, time.monotonic() - began)


def main() -> None:
    """Measure both ways and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--alone", type=int, default=12)
    asked = parser.parse_args()
    if reason := why_not():
        say(json.dumps({"skipped": reason}))
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        base = Path(folder)
        made: list[Host] = []
        for start in range(0, asked.hosts, HOSTS_AT_ONCE):
            count = min(HOSTS_AT_ONCE, asked.hosts - start)
            lot = stack.enter_context(hosts(count, base / f"lot-{start}", disk_mib=8))
            made += lot
        key = made[0].folder / "authorized"
        for host in made:
            host.put("/opt/stub", STUB, 0o755)
            host.put("/etc/provisioner-test/authorized", key.read_text())
        plays = write_plays(base / "ansible", five=FIVE)
        alone = made[: asked.alone]
        one = measure(alone, plays, base / "alone", hosts_max=1, slots=2)
        batched = measure(made, plays, base / "batched", hosts_max=50, slots=2)
    tell(one, batched)


def tell(one: Cost, batched: Cost) -> None:
    """Machine, versions and figures."""
    packages = ("ansible-core", "ansible-runner")
    versions = {p: version(p) for p in packages} | {"python": platform.python_version()}
    load = os.getloadavg()[0]
    say(f"{platform.platform()}, {os.cpu_count()} CPUs, load {load:.1f}, {versions}")
    for name, cost in (("one run per host", one), ("batches of 50", batched)):
        say(
            f"{name:16}: {cost.hosts:4} hosts, {cost.cpu_s:7.1f} CPU s, "
            f"{cost.per_host_s:5.2f} CPU s a host, {cost.wall_s:6.1f} s"
        )
    say(
        json.dumps(
            {
                "benchmark": "ansible",
                "hosts": batched.hosts,
                "tasks": 5,
                "cpu_s_per_host_batched": round(batched.per_host_s, 3),
                "cpu_s_per_host_alone": round(one.per_host_s, 3),
                "cpu_per_host_ratio": round(one.per_host_s / batched.per_host_s, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
