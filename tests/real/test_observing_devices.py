"""Observing servers that others wrote: recorded trees, sushy-tools, a real sshd."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import Host, hosts, why_not
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


@pytest.mark.parametrize("name", ["nvidia_viking", "nvidia_dpu", "dell"])
def test_a_recorded_tree_gets_readings_alone(name: str, tmp_path: Path) -> None:
    with serving(recorded_tree(name, tmp_path)) as url:
        inventory, recorder = observe(url)

    assert inventory.components
    assert recorder.left <= {"GET", "HEAD"}


@pytest.fixture
def emulator() -> Iterator[str]:
    if not EMULATOR.exists():
        pytest.skip("no sushy-tools beside this interpreter: make setup")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(EMULATOR), "--fake", "-i", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):  # a loaded machine takes seconds to import it
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def test_sushy_tools_gets_readings_alone(emulator: str) -> None:
    _, recorder = observe(emulator)

    assert recorder.left <= {"GET", "HEAD"}


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
