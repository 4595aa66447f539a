"""Collectives among true hosts: sshd, keys and Open MPI's own mpirun; nccl-tests is a stand-in."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import Host, hosts, why_not

from provisioner.adapters.ssh import SshShell
from provisioner.checks.fabric.rail_port import Member, RailPort
from provisioner.execution.actions.work import Site
from provisioner.execution.validate.fabric_outputs import FOLDER, MARK
from provisioner.execution.validate.fabric_tests import PORT, Door, FabricTests, open_door
from provisioner.model.fabric_session import FabricRun
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind
from provisioner.planning.fault_location.isolation_words import FabricTest, FabricTestKind
from provisioner.ports import Remote
from provisioner.settings import Settings
from provisioner.store import open_store

# every rank names its host, as nccl-tests' first rank does for all; rank 0 prints the table
STAND_IN = """#!/bin/sh
r=$OMPI_COMM_WORLD_RANK
echo "$r $PROVISIONER_FABRIC $NCCL_SOCKET_IFNAME $*" >>/tmp/ranks
echo "#  Rank  $r Group  0 Pid  $$ on $(hostname) device  $r [0x1b] NVIDIA H100"
[ "$r" = 0 ] || exit 0
sleep 0.5
cat <<END
# size count type redop root time algbw busbw #wrong time algbw busbw #wrong
 17179869184 4294967296 float sum -1 58000 296.2 375.0 0 58000 296.2 375.0 0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 375.0
#
END
"""
LAN = {f"host-{n}": f"10.99.7.{n}" for n in (1, 2, 3)}
Work = Callable[[FabricTests, list[Node], list[Member]], Awaitable[Any]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    if reason := why_not():
        pytest.skip(reason)
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun: apt-get install openmpi-bin")
    with hosts(3, tmp_path_factory.mktemp("mpi")) as three:
        join(three)
        for host in three:
            for name in ("all_reduce_perf", "alltoall_perf"):
                host.put(f"/usr/local/bin/{name}", STAND_IN, 0o755)
        yield three


def join(made: list[Host]) -> None:
    """A network among the hosts; it is inside theirs, and goes with them."""
    first, *others = made

    def within(host: Host, words: str) -> None:
        enter = ["nsenter", f"--net={host.netns}", "ip", *words.split()]
        subprocess.run(enter, check=True, capture_output=True)

    within(first, "link add lan0 type bridge")
    within(first, f"address add {LAN[first.name]}/24 dev lan0")
    within(first, "link set lan0 up")
    for host in others:
        other = f"peer name lan0 netns {host.supervisor}"
        within(first, f"link add to{host.supervisor} master lan0 type veth {other}")
        within(first, f"link set to{host.supervisor} up")
        within(host, f"address add {LAN[host.name]}/24 dev lan0")
        within(host, "link set lan0 up")


def among(made: list[Host], folder: Path, work: Work) -> Any:
    """What is told of tests that the daemon's own code runs on these hosts."""

    async def main() -> Any:
        remote = Remote("root", made[0].key, folder / "known_hosts", learn=True)
        shell = SshShell(remote, 8)
        store = open_store(":memory:", inline=True)
        site = Site(
            clock=None, settings=Settings(), reach=None, runner=None, shell=shell,
            agents=None, artifacts=None,
        )  # fmt: skip
        nodes = [Node(id=h.name, kind=NodeKind.HOST, address=h.address) for h in made]
        members = [
            Member(
                node=h.name,
                address=LAN[h.name],
                gpus=2,
                rails=(RailPort(rail=0, device="mlx5_0", gpu=0),),
            )
            for h in made
        ]
        try:
            return await work(FabricTests(site, store, Matrix(releases={})), nodes, members)
        finally:
            await shell.close()
            await store.close()

    return asyncio.run(main())


def collective(count: int) -> Work:
    async def run(tests: FabricTests, nodes: list[Node], members: list[Member]) -> FabricRun:
        named = tuple(n.id for n in nodes[:count])
        test = FabricTest(name="c0t0", kind=FabricTestKind.GROUP, nodes=named, rails=(-1,))
        return await tests.run_collective(
            "s1", test, 3, tuple(nodes[:count]), tuple(members[:count])
        )

    return run


def left(host: Host) -> str:
    """Files and processes of tests in a host."""
    looked = f"ls -d {FOLDER}* 2>/dev/null; grep -lsz '^{MARK}=.' /proc/[0-9]*/environ"
    return host.run(f"{looked}; ss -Hltn | grep ':{PORT} '; true").stdout


def test_three_hosts_run_their_collectives_and_keep_nothing_of_it(
    made: list[Host], tmp_path: Path
) -> None:
    run = among(made, tmp_path, collective(3))

    (result,) = run.results
    # the stand-in is no NCCL and writes no log: its way is unknown, and that is no pass
    assert (result.shown, result.bus_gb_s, result.alltoall_gb_s) == ("not_run", 375.0, 375.0)
    assert "what NCCL did is unknown" in result.detail
    assert [left(host) for host in made] == ["", "", ""]
    for host in made:
        ranks = host.run("cat /tmp/ranks; rm /tmp/ranks").stdout
        assert len(re.findall(r"^\d s1/c0t0 =lan0 -b 8M -e 16G ", ranks, re.MULTILINE)) == 4, ranks


def test_two_hosts_run_an_all_reduce(made: list[Host], tmp_path: Path) -> None:
    run = among(made[1:], tmp_path, collective(2))

    (result,) = run.results

    assert (result.shown, result.bus_gb_s, result.alltoall_gb_s) == ("not_run", 375.0, None)
    assert "what NCCL did is unknown" in result.detail


def test_a_door_that_a_dead_daemon_left_open_is_closed_by_the_next_and_lets_nobody_else_in(
    made: list[Host], tmp_path: Path
) -> None:
    async def leave_open(
        tests: FabricTests, nodes: list[Node], members: list[Member]
    ) -> tuple[str, str, str]:
        door = await open_door(tests._site, "s9/c9/left", nodes, members)
        assert isinstance(door, Door), door
        kept = made[0].run(f"cat {FOLDER}*/config").stdout
        config = re.findall(r"IdentityFile (\S+)/key", kept)[0]
        ask = f"ssh -F {config}/config {LAN['host-2']} 'echo in as $PROVISIONER_FABRIC'"
        asked = made[0].run(ask, check=False).stdout
        made[2].put("/root/stolen", made[0].get(f"{config}/key"), 0o600)
        theft = f"ssh -o BatchMode=yes -o StrictHostKeyChecking=no -i /root/stolen -p {PORT}"
        elsewhere = made[2].run(f"{theft} root@{LAN['host-2']} echo in", check=False)
        before = left(made[1])
        await tests.clean_hosts(nodes)
        return asked, elsewhere.stdout, before

    asked, elsewhere, before = among(made, tmp_path, leave_open)

    assert asked == "in as s9/c9/left\n"
    assert elsewhere == ""
    assert f":{PORT}" in before
    assert [left(host) for host in made] == ["", "", ""]


def test_the_private_key_is_in_nothing_that_is_said_or_asked(
    made: list[Host], tmp_path: Path
) -> None:
    told: list[str] = []

    async def watch(tests: FabricTests, nodes: list[Node], members: list[Member]) -> str:
        one = SshShell.run

        async def run(self: SshShell, host: str, address: str, commands: Any) -> Any:
            said = await one(self, host, address, commands)
            told.extend(c.line for c in commands)
            told.extend(o.stdout + o.stderr for o in said)
            return said

        tests._site.shell.run = run.__get__(tests._site.shell)  # type: ignore[method-assign]
        assert isinstance(await open_door(tests._site, "s9/c9/x", nodes, members), Door)
        key = made[0].run(f"cat {FOLDER}*/key").stdout
        await tests.clean_hosts(nodes)
        return key

    key = among(made, tmp_path, watch)

    secret = key.splitlines()[1:-1]
    assert len(secret) >= 3
    assert not any(line in text for line in secret for text in told)
