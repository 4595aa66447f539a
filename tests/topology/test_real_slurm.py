"""Debian's Slurm (22.05) reads our tree of switches: a real slurmctld, asked by its own scontrol.

It reads topology.conf; topology.yaml came with 25.05 and is held against its manual.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_topology import FLEET, pods, superspines

from provisioner.integrations.topology.graph import group_pods, group_units, write_slurm_conf

pytestmark = pytest.mark.skipif(
    shutil.which("slurmctld") is None or shutil.which("scontrol") is None,
    reason="apt-get install slurmctld slurm-client",
)
LINE = re.compile(r"SwitchName=(\S+) Level=(\d+) .*? Nodes=(\S*)(?: Switches=(\S*))?")


@contextmanager
def slurm(folder: Path, hosts: Sequence[str], topology: str) -> Iterator[Mapping[str, str]]:
    """A controller of these hosts, none of which runs; the environment of its commands."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (state := folder / "state").mkdir()
    (folder / "topology.conf").write_text(topology)
    conf = folder / "slurm.conf"
    # a name that cannot be resolved is tried for seconds
    addresses = ",".join(f"127.0.1.{n + 1}" for n in range(len(hosts)))
    conf.write_text(f"""ClusterName=tried
SlurmctldHost={socket.gethostname()}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={state}
SlurmctldPidFile={folder / "pid"}
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
TopologyPlugin=topology/tree
NodeName={",".join(hosts)} NodeAddr={addresses} CPUs=1 State=DOWN
PartitionName=all Nodes=ALL Default=YES
""")
    environment = {**os.environ, "SLURM_CONF": str(conf)}
    log = folder / "log"
    with log.open("w") as said:
        started = subprocess.Popen(
            ["slurmctld", "-D", "-f", conf], stdout=said, stderr=said, env=environment
        )
    try:
        for _ in range(300):
            asked = subprocess.run(["scontrol", "ping"], env=environment, capture_output=True)
            if b"is UP" in asked.stdout:
                break
            if started.poll() is not None:
                pytest.fail(log.read_text()[-2000:])
            time.sleep(0.2)
        yield environment
    finally:
        started.kill()  # asked to end, it waits for hosts that are not there
        started.wait(60)


def expand(environment: Mapping[str, str], listed: str) -> list[str]:
    """The names of a host list in Slurm's own short form."""
    words = ["scontrol", "show", "hostnames", listed]
    told = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    return told.stdout.split()


@pytest.mark.parametrize(
    "fleet", [FLEET, pods(24), superspines()], ids=["two units", "a long line", "two pods"]
)
def test_a_real_slurm_has_each_host_below_the_switch_of_its_unit(
    tmp_path: Path, fleet: list[dict[str, object]]
) -> None:
    units = group_units(fleet)
    hosts = sorted(host for listed in units.values() for host in listed)
    tiers = group_pods(fleet, units)
    with slurm(tmp_path, hosts, write_slurm_conf(units, {}, tiers)) as environment:
        words = ["scontrol", "show", "topology"]
        told = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        rows = {found[1]: found for found in LINE.finditer(told.stdout)}
        nodes = {name: expand(environment, found[3]) for name, found in rows.items()}

    assert set(rows) == {"fabric", *tiers, *units}, told.stdout[:2000]
    for pod, listed in tiers.items():
        assert sorted(nodes[pod]) == sorted(host for unit in listed for host in units[unit])
    assert {name: sorted(nodes[name]) for name in units} == units
    assert sorted(nodes["fabric"]) == hosts
    assert {found[2] for name, found in rows.items() if name in units} == {"0"}
    assert rows["fabric"][2] == ("2" if tiers else "1")
