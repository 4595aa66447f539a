"""`inspect` and power control against sushy-tools' fake machine: a server that others wrote."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.cli import app
from provisioner.model.inventory import Power
from provisioner.ports import BmcAddress

EMULATOR = Path(sys.executable).with_name("sushy-emulator")


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    if not EMULATOR.exists():
        pytest.skip("no sushy-tools beside this interpreter: make setup")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(EMULATOR), "--fake", "-i", "127.0.0.1", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait(port: int) -> None:
    for _ in range(300):  # a loaded machine takes seconds to import it
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    pytest.fail("sushy-emulator did not begin to listen")


def test_a_sushy_tools_machine_is_inspected_and_its_gaps_are_named(emulator: str) -> None:
    result = CliRunner().invoke(app, ["inspect", emulator, "--json"])

    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["quirk"] == "unknown"
    assert {d["kind"] for d in found["devices"]} >= {"system", "bmc"}
    assert "/redfish/v1/UpdateService/FirmwareInventory" in {g["source"] for g in found["gaps"]}


def test_a_sushy_tools_machine_follows_power_requests(emulator: str) -> None:
    async def scenario() -> list[object]:
        transport = RedfishTransport()
        client = Redfish(transport, BmcAddress(emulator), quirks.UNKNOWN)
        try:
            return [
                await client.reset_system("ForceOff"),
                await _power(client, Power.OFF),
                await client.reset_system("On"),
                await _power(client, Power.ON),
                await client.boot_override("Pxe"),
            ]
        finally:
            await transport.close()

    assert asyncio.run(scenario()) == [None, Power.OFF, None, Power.ON, None]


async def _power(client: Redfish, wanted: Power) -> Power:
    for _ in range(100):  # the fake machine takes up to ten seconds
        if (seen := await client.power()) is wanted:
            break
        await asyncio.sleep(0.2)
    return seen
