"""Logins of the Redfish transport: Basic as the last resort, passwords, secrets, lockouts."""

from __future__ import annotations

import asyncio
import json
import logging
import warnings

import pytest
from aiohttp import web
from devices import SESSIONS, Bmc, run

from provisioner.adapters.redfish.governor import LoginGovernor
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.ports import AccountLocked, Call, LoginRefused, Malformed, Unreachable

SYSTEMS = Call("GET", "/redfish/v1/Systems")
RESET = Call("POST", "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", {"ResetType": "On"})


def test_s3_a_failed_refresh_never_falls_back_to_basic() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            await transport.request(bmc.address(), SYSTEMS)
            bmc.sessions.clear()
            bmc.login_answer = lambda: web.Response(status=503)
            with pytest.raises(Unreachable) as caught:
                await transport.request(bmc.address(), SYSTEMS)

            assert not caught.value.maybe_executed
            assert not any("authorization" in headers for headers in bmc.headers)
            await transport.close()

    run(scenario())


@pytest.mark.parametrize("without", ["session service", "token", "post"])
def test_basic_is_used_only_where_sessions_cannot_be_had(without) -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            if without == "session service":
                bmc.session_service = False
            elif without == "token":
                bmc.token_given = False
            else:
                bmc.login_answer = lambda: web.Response(status=501)
            transport = RedfishTransport()

            assert (await transport.request(bmc.address(), SYSTEMS)).status == 200
            assert (await transport.request(bmc.address(), RESET)).status == 204
            assert bmc.sessions == {}
            await transport.close()

    run(scenario())


def test_s6_a_guarded_service_root_is_no_obstacle_and_no_warning() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            bmc.root_guarded = True
            transport = RedfishTransport()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert (await transport.request(bmc.address(), SYSTEMS)).status == 200
            await transport.close()

    run(scenario())


@pytest.mark.parametrize("status", [201, 403])
def test_s10_a_demanded_password_change_is_told_and_still_lets_the_change_through(status) -> None:
    account = "/redfish/v1/AccountService/Accounts/1"
    message = {
        "MessageId": "Base.1.18.1.PasswordChangeRequired",
        "MessageArgs": [account],
    }

    async def scenario() -> None:
        async with Bmc() as bmc:
            bmc.sessions[f"{SESSIONS}/9"] = "narrow"
            body = {"@Message.ExtendedInfo": [message]}
            bmc.login_answer = lambda: web.Response(
                status=status,
                text=json.dumps(body if status == 201 else {"error": body}),
                headers=(
                    {"X-Auth-Token": "narrow", "Location": f"{SESSIONS}/9"} if status == 201 else {}
                ),
            )
            transport = RedfishTransport()
            reply = await transport.request(
                bmc.address(), Call("PATCH", account, {"Password": "another one"})
            )

            assert reply.status == 204
            assert await transport.password_change(bmc.address()) == account
            await transport.close()

    run(scenario())


def test_a_new_password_is_used_at_once_and_the_old_session_is_closed() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            await transport.request(bmc.address(), SYSTEMS)
            bmc.password = "new"
            await transport.request(bmc.address(), SYSTEMS)

            assert (bmc.sessions_made, len(bmc.sessions)) == (2, 1)
            await transport.close()

    run(scenario())


def test_secrets_show_in_no_log_no_error_and_no_representation(caplog) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport(governor=LoginGovernor(failures_max=1))
            words = [repr(bmc.address()), str(bmc.address())]
            await transport.request(bmc.address(), SYSTEMS)
            line = next(iter(transport._lines.values()))
            words.append(repr(line))
            await transport.forget(bmc.address())
            with pytest.raises(LoginRefused) as refused:
                await transport.request(bmc.address("wrong-password"), SYSTEMS)
            with pytest.raises(AccountLocked) as locked:
                await transport.request(bmc.address("wrong-password"), SYSTEMS)
            await transport.close()
            words += [repr(refused.value), repr(locked.value), caplog.text]

            everything = "\n".join(words)
            for secret in ("correct horse", "wrong-password", "token-1"):
                assert secret not in everything

    run(scenario())


@pytest.mark.parametrize("sessions", [True, False], ids=["sessions", "basic"])
def test_s9_fifty_requests_with_a_wrong_password_fail_at_the_bmc_once(sessions) -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            bmc.session_service = sessions
            transport = RedfishTransport()
            results = await asyncio.gather(
                *(transport.request(bmc.address("wrong"), SYSTEMS) for _ in range(50)),
                return_exceptions=True,
            )

            assert {type(r) for r in results} <= {LoginRefused, AccountLocked}
            assert bmc.logins_failed == 1
            await transport.close()

    run(scenario())


def test_s9_no_sequence_of_wrong_passwords_fails_more_often_than_allowed() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            transport = RedfishTransport()
            for number in range(10):
                with pytest.raises((LoginRefused, AccountLocked)):
                    await transport.request(bmc.address(f"wrong {number}"), SYSTEMS)
                await transport.forget(bmc.address())

            assert bmc.logins_failed == 2
            await transport.close()

    run(scenario())


def test_a_password_changed_behind_our_back_with_basic_fails_once() -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            bmc.session_service = False
            transport = RedfishTransport()
            await transport.request(bmc.address(), SYSTEMS)
            old = bmc.address()
            bmc.password = "another"
            results = await asyncio.gather(
                *(transport.request(old, SYSTEMS) for _ in range(20)), return_exceptions=True
            )

            assert {type(r) for r in results} <= {LoginRefused, AccountLocked}
            assert bmc.logins_failed <= 2
            assert (await transport.request(bmc.address(), SYSTEMS)).status == 200
            await transport.close()

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((403, "<html><body>Forbidden</body></html>"), LoginRefused),
        ((400, "{"), LoginRefused),
        ((401, "Account temporarily locked out"), AccountLocked),
        ((429, ""), AccountLocked),
        ((500, "lockfile"), Unreachable),
        ((504, "<html>Gateway Timeout</html>"), Unreachable),
        ((301, ""), Malformed),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else value.__name__,
)
def test_s11_every_refusal_of_a_login_has_its_promised_error(answer, error) -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:
            bmc.login_answer = lambda: web.Response(
                status=answer[0], text=answer[1], headers={"Location": "/elsewhere"}
            )
            transport = RedfishTransport()
            with pytest.raises(error):
                await transport.request(bmc.address(), SYSTEMS)
            await transport.close()

    run(scenario())


@pytest.mark.parametrize("body", [[], "text", {"Links": [], "SessionService": 7}, {"Links": None}])
def test_an_odd_service_root_is_survived(body) -> None:
    async def scenario() -> None:
        async with Bmc() as bmc:

            async def odd(_: web.Request) -> web.Response:
                return web.json_response(body)

            bmc.answers["GET", "/redfish/v1/"] = odd
            transport = RedfishTransport()
            try:
                assert (await transport.request(bmc.address(), SYSTEMS)).status == 200
            except Malformed:
                assert not isinstance(body, dict)
            await transport.close()

    run(scenario())
