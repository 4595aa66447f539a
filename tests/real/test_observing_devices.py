"""Observing servers that others wrote: recorded trees, sushy-tools, DMTF's mockup server, sshd.

What arrived is counted at the server, or in its own log, beside what the daemon's wire counted.
DMTF's server is no part of this repository: `MOCKUP_SERVER=DIR` names a copy, with a `.venv` in it
if this interpreter lacks its libraries.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hosts import Host, hosts, why_not
from served_tree import TREES, serve_tree
from static_tree import recorded_tree, serving

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.ssh import SshShell
from provisioner.daemon.observing import narrow_bmcs, narrow_shell
from provisioner.execution.observe.inband import REBOOT
from provisioner.model.inventory import Inventory
from provisioner.planning.intake import inband_facts
from provisioner.ports import (
    BmcAddress,
    Call,
    LookOnly,
    PortError,
    Remote,
    Reply,
    ShellCommand,
    ShellOutput,
)
from provisioner.ports.telemetry import Silence
from provisioner.runtime import permit

EMULATOR = Path(sys.executable).with_name("sushy-emulator")


class Recorder(Silence):
    """The requests that left, as the wire itself counts them."""

    def __init__(self) -> None:
        self.left: set[str] = set()

    def request(self, url: str, call: Call, seconds: float, reply: Reply | PortError) -> None:
        if not isinstance(reply, LookOnly):
            self.left.add(call.method)


def observe(url: str) -> tuple[Inventory, Recorder]:
    """Read all of a BMC as an observing daemon does, then try to act on it."""
    recorder = Recorder()

    async def run() -> Inventory:
        transport = RedfishTransport(telemetry=recorder)
        narrowed = narrow_bmcs(transport)
        address = BmcAddress(url)
        try:
            client = Redfish(narrowed, address, quirks.generic.QUIRK)
            inventory = await client.collect("node", "host")
            await client.service.read_system()
            act = Call("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", {})
            for way in (narrowed, transport):
                with pytest.raises(LookOnly):
                    await way.request(address, act)
        finally:
            await transport.close()
        return inventory

    with permit.observe():
        return asyncio.run(run()), recorder


@pytest.mark.parametrize(
    "name", [pytest.param("nvidia_viking", marks=pytest.mark.long), "nvidia_dpu", "dell"]
)
def test_a_recorded_tree_gets_readings_alone(name: str, tmp_path: Path) -> None:
    arrived: set[str] = set()
    with serving(recorded_tree(name, tmp_path), arrived) as url:
        inventory, recorder = observe(url)

    assert inventory.components
    assert recorder.left <= {"GET", "HEAD"}
    assert arrived <= {"GET", "HEAD"}


@pytest.mark.parametrize("name", sorted(tree.stem for tree in TREES.glob("*.json")))
def test_each_reduced_tree_of_the_repository_gets_readings_alone(name: str) -> None:
    with serve_tree(name) as served:
        inventory, recorder = observe(served.url)

    assert inventory.devices
    assert recorder.left <= {"GET", "HEAD"}
    assert served.others == []


@dataclass(frozen=True)
class Foreign:
    """A server of others; its log has a line for each request."""

    url: str
    log: Path

    def list_methods(self) -> set[str]:
        return set(re.findall(r'"([A-Z]+) /\S* HTTP/1', self.log.read_text(errors="replace")))


@contextmanager
def run_server(command: Sequence[str], port: int, log: Path) -> Iterator[Foreign]:
    """Run it until the block ends."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        for _ in range(300):  # a loaded machine takes seconds to import it
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield Foreign(f"http://127.0.0.1:{port}", log)
    finally:
        process.terminate()
        process.wait(timeout=30)


def choose_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Foreign]:
    if not EMULATOR.exists():
        pytest.skip("no sushy-tools beside this interpreter: make setup")
    port = choose_port()
    command = [str(EMULATOR), "--fake", "-i", "127.0.0.1", "-p", str(port)]
    with run_server(command, port, tmp_path / "log") as server:
        yield server


def test_sushy_tools_gets_readings_alone(emulator: Foreign) -> None:
    _, recorder = observe(emulator.url)

    assert recorder.left <= {"GET", "HEAD"}
    assert {"GET"} <= emulator.list_methods() <= {"GET", "HEAD"}


@pytest.fixture
def mockup_server(tmp_path: Path) -> Iterator[Foreign]:
    """DMTF's Redfish-Mockup-Server, with the tree that it brings."""
    place = os.environ.get("MOCKUP_SERVER", "")
    program = Path(place) / "redfishMockupServer.py"
    if not place or not program.is_file():
        pytest.skip("no copy of DMTF's Redfish-Mockup-Server: MOCKUP_SERVER=DIR names one")
    own = Path(place) / ".venv" / "bin" / "python"
    python = str(own) if own.exists() else sys.executable
    if subprocess.run([python, str(program), "-h"], capture_output=True).returncode != 0:
        pytest.skip("DMTF's Redfish-Mockup-Server does not start: it needs grequests")
    port = choose_port()
    tree = str(Path(place) / "public-rackmount1")
    command = [python, "-u", str(program), "-D", tree, "-p", str(port), "-S"]
    with run_server(command, port, tmp_path / "log") as server:
        yield server


def test_the_mockup_server_of_the_dmtf_gets_readings_alone(mockup_server: Foreign) -> None:
    _, recorder = observe(mockup_server.url)

    assert recorder.left <= {"GET", "HEAD"}
    assert {"GET"} <= mockup_server.list_methods() <= {"GET", "HEAD"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Host]]:
    if reason := why_not():
        pytest.skip(reason)
    with hosts(1, tmp_path_factory.mktemp("hosts")) as one:
        yield one


def test_a_host_behind_a_real_sshd_runs_the_readers_commands_and_no_reboot(
    made: list[Host], tmp_path: Path
) -> None:
    (host,) = made
    remote = Remote("root", host.key, tmp_path / "known_hosts", learn=True)

    async def run() -> list[ShellOutput]:
        shell = SshShell(remote, 2)
        narrowed = narrow_shell(shell)
        try:
            reads = [ShellCommand(*command) for command in inband_facts.COMMANDS]
            outputs = await narrowed.run(host.name, host.address, reads)
            act = [ShellCommand("reboot", REBOOT, 5.0)]
            for way in (narrowed, shell):
                with pytest.raises(LookOnly):
                    await way.run(host.name, host.address, act)
            return list(outputs)
        finally:
            await shell.close()

    with permit.observe():
        outputs = asyncio.run(run())

    assert outputs[0].exit_code == 0
    assert len(outputs[0].stdout.strip()) == 36
