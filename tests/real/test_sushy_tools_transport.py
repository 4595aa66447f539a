"""The Redfish transport against sushy-tools over HTTPS with Basic: a server that others wrote."""

from __future__ import annotations

import asyncio

import pytest
from emulated import PASSWORD

from provisioner.adapters.redfish.discovery import Probe, probe
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.ports import AccountLocked, BmcAddress, Call, LoginRefused, Reply, Secret


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
