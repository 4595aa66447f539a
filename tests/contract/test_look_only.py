"""While the gate is closed, every wire lets readings through and nothing that writes."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from aiohttp import web
from devices import Bmc, run

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.adapters.switch_https import SwitchHttps
from provisioner.ports import Call, LookOnly, Secret, SwitchAddress
from provisioner.runtime import permit

SYSTEMS = Call("GET", "/redfish/v1/Systems")
RESET = Call("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", {"ResetType": "On"})


def test_a_bmc_is_logged_in_to_and_read_and_not_reset() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            asked = []

            async def note(request: web.Request) -> web.Response:
                asked.append(request.path)
                return web.json_response({})

            bmc.answers["POST", RESET.path] = note
            transport = RedfishTransport()
            with permit.close_gate("writes were lost"):
                assert (await transport.request(bmc.address(), SYSTEMS)).status == 200
                with pytest.raises(LookOnly, match="writes were lost"):
                    await transport.request(bmc.address(), RESET)
            assert asked == []
            await transport.request(bmc.address(), replace(RESET, timeout_s=5))
            assert asked == [RESET.path]
            await transport.close()
            assert bmc.sessions == {}

    run(scenario())


def test_a_switch_is_read_and_gets_no_revision() -> None:
    async def scenario() -> None:
        async with Bmc() as device:
            asked = []

            async def note(request: web.Request) -> web.Response:
                asked.append(request.method)
                return web.json_response({})

            device.answers["GET", "/nvue_v1/vrf"] = note
            device.answers["POST", "/nvue_v1/revision"] = note
            transport = SwitchHttps()
            switch = SwitchAddress(device.url, device.username, Secret(device.password), device.pin)
            with permit.close_gate("writes were lost"):
                await transport.request(switch, Call("GET", "/nvue_v1/vrf", timeout_s=5))
                call = Call("POST", "/nvue_v1/revision", {}, timeout_s=5)
                with pytest.raises(LookOnly):
                    await transport.request(switch, call)
            assert asked == ["GET"]
            await transport.close()

    run(scenario())


def test_what_does_not_say_that_it_only_reads_writes() -> None:
    with permit.close_gate("writes were lost"):
        with permit.allow_reads():
            permit.ask()
        permit.ask(writes=False)
        with pytest.raises(LookOnly):
            permit.ask()
        assert permit.get_closing_reason() == "writes were lost"
    permit.ask()

    assert permit.get_closing_reason() == ""


def test_a_task_that_vouches_for_its_readings_vouches_for_no_other() -> None:
    async def refused() -> bool:
        await asyncio.sleep(0)
        try:
            permit.ask()
        except LookOnly:
            return True
        return False

    async def scenario() -> None:
        with permit.close_gate("writes were lost"):
            other = asyncio.create_task(refused())
            with permit.allow_reads():
                mine = asyncio.create_task(refused())
                assert not await mine
            assert await other

    run(scenario())
