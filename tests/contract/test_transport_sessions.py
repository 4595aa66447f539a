"""Sessions of the Redfish transport: made once, refreshed once, and never left behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from aiohttp import web
from devices import SESSIONS, Bmc, run

from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.ports import AccountLocked, Call, PortError, Unreachable

SYSTEMS = Call("GET", "/redfish/v1/Systems")
RESET = Call("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", {"ResetType": "On"})
SETTING = Call("PATCH", "/redfish/v1/AccountService/Accounts/1", {"Password": "secret"})


def test_many_requests_share_one_session_and_closing_ends_it() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            replies = await asyncio.gather(
                *(transport.request(bmc.address(), SYSTEMS) for _ in range(20))
            )

            assert {r.status for r in replies} == {200}
            assert (bmc.sessions_made, len(bmc.sessions)) == (1, 1)
            await transport.close()
            assert bmc.sessions == {}

    run(scenario())


def test_an_intake_of_a_bmc_takes_one_connection_and_leaves_none() -> None:
    """Login, a reading, a new password, logout, the new login, readings, logout."""

    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            await transport.request(bmc.address(), SYSTEMS)
            await transport.request(bmc.address(), SETTING)
            await transport.forget(bmc.address())
            for _ in range(3):
                await transport.request(bmc.address(), SYSTEMS)
            await transport.close()

            assert (bmc.sessions_made, bmc.sessions) == (2, {})
            assert len(bmc.peers) == 1
            await asyncio.sleep(0.05)  # until the server has noticed
            assert not bmc.connections()

    run(scenario())


@pytest.mark.parametrize(
    "location",
    [
        lambda path: f"https://idrac-abc.example{path}",
        lambda path: f"https://127.0.0.1{path}",
        lambda path: None,
        lambda path: "  ",
        lambda path: "https://[broken",
    ],
    ids=["other host", "port dropped", "missing", "blank", "unparsable"],
)
@pytest.mark.parametrize("named", [True, False], ids=["body names it", "body is silent"])
def test_s7_an_odd_session_location_leaks_no_session(location, named) -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            bmc.location, bmc.body_names_session = location, named
            transport = RedfishTransport()
            for _ in range(12):
                assert (await transport.request(bmc.address(), SYSTEMS)).status == 200
                assert len(bmc.sessions) <= 1
                await transport.forget(bmc.address())

            assert bmc.sessions == {}
            await transport.close()

    run(scenario())


def test_a_root_that_was_just_read_is_not_asked_for_again_where_it_will_do() -> None:
    path = "/redfish/v1/"
    root = Call("GET", path, known_s=60.0)

    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()

            async def reads(call: Call) -> int:
                before = bmc.asked("GET", path)
                assert (await transport.request(bmc.address(), call)).status < 400
                return bmc.asked("GET", path) - before

            assert await reads(root) > 0
            assert await reads(root) == 0
            assert await reads(Call("GET", path)) == 1  # this one is to be of now
            assert await reads(SETTING) == 0  # after which it is the same one
            assert await reads(root) == 0
            await transport.forget(bmc.address())
            assert await reads(SYSTEMS) == 0  # nor is it read for a login
            assert await reads(RESET) == 0  # after which it may be another one
            assert await reads(root) == 1
            with pytest.raises(PortError):  # with this certificate nobody has spoken yet
                await transport.request(replace(bmc.address(), pin="00" * 32), root)
            await transport.close()

    run(scenario())


def test_s2_a_cancelled_login_leaves_no_session_behind() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            asked = asyncio.Event()

            async def slowly(_: web.Request) -> None:
                asked.set()
                await asyncio.sleep(0)

            bmc.answers["GET", "/redfish/v1/"] = slowly
            task = asyncio.create_task(transport.request(bmc.address(), SYSTEMS))
            await asked.wait()
            task.cancel()
            await asyncio.wait([task])
            await transport.close()

            assert bmc.sessions == {}

    run(scenario())


def test_s4_a_dead_token_is_replaced_once_for_fifty_readers() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            await transport.request(bmc.address(), SYSTEMS)
            bmc.sessions.clear()
            replies = await asyncio.gather(
                *(transport.request(bmc.address(), SYSTEMS) for _ in range(50))
            )

            assert {r.status for r in replies} == {200}
            assert bmc.sessions_made == 2
            await transport.close()

    run(scenario())


def test_s8_a_bmc_restart_in_the_middle_ends_in_a_new_session() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            await transport.request(bmc.address(), SYSTEMS)
            await bmc.restart()

            assert (await transport.request(bmc.address(), SYSTEMS)).status == 200
            assert len(bmc.sessions) == 1
            await transport.close()

    run(scenario())


def test_s12_a_write_after_a_pause_tries_the_session_first_and_is_sent_once(monkeypatch) -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            monkeypatch.setattr("provisioner.adapters.redfish.transport.FRESH_S", -1.0)
            await transport.request(bmc.address(), SYSTEMS)
            bmc.sessions.clear()

            assert (await transport.request(bmc.address(), RESET)).status == 204
            assert bmc.asked("POST", RESET.path) == 1
            await transport.close()

    run(scenario())


def test_a_write_whose_session_just_ended_provably_did_nothing() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            await transport.request(bmc.address(), SYSTEMS)

            async def ended(_: web.Request) -> web.Response:
                return web.Response(status=401)

            bmc.answers["POST", RESET.path] = ended
            with pytest.raises(Unreachable) as caught:
                await transport.request(bmc.address(), RESET)

            assert not caught.value.maybe_executed
            assert bmc.asked("POST", RESET.path) == 1
            await transport.close()
            assert bmc.sessions == {}

    run(scenario())


def test_a_resource_that_always_answers_401_leaks_no_session() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:

            async def never(_: web.Request) -> web.Response:
                return web.Response(status=401)

            bmc.answers["GET", "/redfish/v1/Managers"] = never
            transport = RedfishTransport()
            for _ in range(10):
                reply = await transport.request(bmc.address(), Call("GET", "/redfish/v1/Managers"))
                assert reply.status == 401
                assert len(bmc.sessions) == 1
            await transport.close()
            assert bmc.sessions == {}

    run(scenario())


def test_s1_a_full_session_table_is_waited_for_and_not_hammered() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            bmc.sessions_max = 0
            transport = RedfishTransport()
            for _ in range(5):
                with pytest.raises(AccountLocked) as caught:
                    await transport.request(bmc.address(), SYSTEMS)
                assert 0 < caught.value.retry_after_s <= 30

            assert bmc.asked("POST", SESSIONS) == 1
            await transport.close()

    run(scenario())
