"""The Redfish transport against sushy-tools over HTTPS with Basic: a server that others wrote."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest

from provisioner.ports import AccountLocked, BmcAddress, Call, LoginRefused, Reply, Secret
from provisioner.redfish.discovery import Probe, probe
from provisioner.redfish.transport import RedfishTransport
from provisioner.sim.serve_tls import certificate

EMULATOR = Path(sys.executable).with_name("sushy-emulator")
PASSWORD = "tested with sushy"


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of an emulator with its own certificate that wants a password."""
    if not EMULATOR.exists():
        pytest.skip("sushy-tools is not installed beside this interpreter")
    folder = tmp_path_factory.mktemp("sushy")
    cert, key = certificate("sushy", "127.0.0.1")
    (folder / "cert.pem").write_bytes(cert)
    (folder / "key.pem").write_bytes(key)
    digest = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")
    (folder / "htpasswd").write_text(f"admin:{digest}\n")
    (folder / "config").write_text(f"SUSHY_EMULATOR_AUTH_FILE = {str(folder / 'htpasswd')!r}\n")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(EMULATOR), "--fake", "-i", "127.0.0.1", "-p", str(port)]
    command += ["--config", str(folder / "config")]
    command += ["--ssl-certificate", str(folder / "cert.pem"), "--ssl-key", str(folder / "key.pem")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"https://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


async def found(transport: RedfishTransport, url: str) -> Probe:
    """Who is there, once it listens: a loaded machine takes seconds to start it."""
    for _ in range(300):
        seen = await probe(transport, url)
        if isinstance(seen, Probe):
            return seen
        await asyncio.sleep(0.1)
    return pytest.fail(f"sushy-emulator did not answer: {seen}")


def test_a_sushy_tools_machine_is_probed_logged_in_to_and_powered(emulator: str) -> None:
    async def scenario() -> None:
        transport = RedfishTransport()
        seen = await found(transport, emulator)
        bmc = BmcAddress(emulator, "admin", Secret(PASSWORD), pin=seen.fingerprint)

        async def get(path: str) -> Reply:
            reply = await transport.request(bmc, Call("GET", path))
            assert reply.status == 200
            return reply

        systems = (await get("/redfish/v1/Systems")).json()["Members"]
        path = systems[0]["@odata.id"]
        reset = (await get(path)).json()["Actions"]["#ComputerSystem.Reset"]["target"]
        for wanted, power in (("ForceOff", "Off"), ("On", "On")):
            reply = await transport.request(bmc, Call("POST", reset, {"ResetType": wanted}))
            assert reply.status < 300
            for _ in range(100):
                state = (await get(path)).json()["PowerState"]
                if state == power:
                    break
                await asyncio.sleep(0.1)

            assert state == power
        await transport.close()

    asyncio.run(scenario())


def test_a_wrong_password_is_shown_to_a_sushy_tools_machine_once(emulator: str) -> None:
    async def scenario() -> None:
        transport = RedfishTransport()
        seen = await found(transport, emulator)
        bmc = BmcAddress(emulator, "admin", Secret("wrong"), pin=seen.fingerprint)
        call = Call("GET", "/redfish/v1/Systems")
        with pytest.raises(LoginRefused):
            await transport.request(bmc, call)
        with pytest.raises(AccountLocked):
            await transport.request(bmc, call)
        await transport.close()

    asyncio.run(scenario())
