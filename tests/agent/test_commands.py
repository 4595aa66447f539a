"""Commands over real HTTPS to an agent that misbehaves."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from authority_rig import open_own_authority
from hostile_agent import TOKEN, Handle, hostile_agent
from scripted_agent import Scripted, broken, busy, lost, taken, taken_and_lost

from provisioner.adapters.agent.client import AgentClient, HttpsWire
from provisioner.model.agent import AgentRequest
from provisioner.ports import (
    AgentAddress,
    AgentResult,
    Busy,
    CertificateChanged,
    LoginRefused,
    Malformed,
    PortError,
    Secret,
    TooLarge,
    Unreachable,
)
from provisioner.runtime.wall_clock import WallClock

FAST = 40.0  # the client's waits, not those of the network


def run(
    folder: Path,
    handle: Handle,
    *,
    name: str = "standby.sync",
    timeout_s: float = 100.0,
    noted: AgentRequest | None = None,
    notes: list[AgentRequest | None] | None = None,
    change: Mapping[str, Any] | None = None,
) -> AgentResult:
    async def main() -> AgentResult:
        wire = HttpsWire()
        client = AgentClient(wire, WallClock(FAST))
        kept = [] if notes is None else notes

        async def note(asked: AgentRequest | None) -> None:
            kept.append(asked)

        try:
            async with hostile_agent(folder, handle) as agent:
                agent = replace(agent, **(change or {}))
                return await client.run(agent, name, {}, timeout_s, noted, note)
        finally:
            await wire.close()

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("script", "posts"),
    [
        ([taken], 1),
        ([taken_and_lost], 1),
        ([lost, taken], 2),
        ([lost, lost, taken_and_lost], 3),
        ([busy, busy, taken], 3),
        ([busy, taken_and_lost], 2),
    ],
)
def test_a_command_is_carried_out_once(tmp_path: Path, script: list[Any], posts: int) -> None:
    agent = Scripted(*script)
    agent.entry(command_result="of an earlier command")
    result = run(tmp_path, agent)

    assert result == AgentResult("SUCCEEDED")
    assert agent.posts == posts
    assert len(agent.listed) == 2


def test_it_is_noted_before_it_leaves_and_kept_as_over_at_its_end(tmp_path: Path) -> None:
    notes: list[AgentRequest | None] = []
    agent = Scripted(taken)
    agent.entry()
    run(tmp_path, agent, notes=notes)

    assert [n and (n.name, n.known, n.id, n.over) for n in notes] == [
        ("standby.sync", ("id0",), "", False),
        ("standby.sync", ("id0",), "id1", False),
        ("standby.sync", ("id0",), "id1", True),
    ]


def test_the_same_command_once_more_is_a_new_one_when_the_first_is_over(tmp_path: Path) -> None:
    notes: list[AgentRequest | None] = []
    run(tmp_path, Scripted(taken), notes=notes)
    again = Scripted(taken)
    run(tmp_path, again, noted=notes[-1], notes=notes)

    assert again.posts == 1


def test_a_noted_command_is_found_again_and_not_sent(tmp_path: Path) -> None:
    notes: list[AgentRequest | None] = []
    agent = Scripted(taken)
    run(tmp_path, agent, notes=notes)
    first = notes[0]
    again = run(tmp_path, agent, noted=first)

    assert again == AgentResult("SUCCEEDED")
    assert agent.posts == 1


def test_the_end_of_a_noted_command_is_recalled_and_nothing_is_sent(tmp_path: Path) -> None:
    """Before and after its identifier was known; None for one that never arrived."""
    notes: list[AgentRequest | None] = []
    agent = Scripted(lambda a: web.json_response(a.entry("FAILED", command_error="no disk")))
    run(tmp_path, agent, notes=notes)
    before, after = notes[0], notes[1]
    assert before is not None
    assert after is not None
    never = before.model_copy(update={"known": ("id0",)})

    async def recall() -> list[AgentResult | None]:
        wire = HttpsWire()
        client = AgentClient(wire, WallClock(FAST))
        try:
            async with hostile_agent(tmp_path, agent) as address:
                return [await client.recall(address, n, 60.0) for n in (before, after, never)]
        finally:
            await wire.close()

    assert asyncio.run(recall()) == [AgentResult("FAILED", None, "no disk")] * 2 + [None]
    assert after.sent_at > 0
    assert agent.posts == 1


def test_a_command_that_never_arrives_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(Unreachable) as caught:
        run(tmp_path, Scripted(lost, lost, lost))

    assert caught.value.maybe_executed


def test_an_agent_that_stays_busy_took_nothing_on(tmp_path: Path) -> None:
    with pytest.raises(Busy, match="executing command x"):
        run(tmp_path, Scripted(*[busy] * 50), timeout_s=60.0)


def test_a_server_error_without_a_trace_is_a_failure(tmp_path: Path) -> None:
    assert run(tmp_path, Scripted(broken)) == AgentResult("FAILED", None, "HTTP status 500")


def test_a_command_without_an_end_is_unreachable_and_stays_noted(tmp_path: Path) -> None:
    notes: list[AgentRequest | None] = []
    agent = Scripted(lambda a: web.json_response(a.entry("RUNNING")))
    with pytest.raises(Unreachable, match="has not ended in time") as caught:
        run(tmp_path, agent, timeout_s=20.0, notes=notes)

    assert caught.value.maybe_executed
    assert notes[-1] is not None
    assert notes[-1].id == "id0"


def test_a_farewell_ends_with_the_silence_of_the_agent(tmp_path: Path) -> None:
    agent = Scripted(lambda a: web.json_response(a.entry("RUNNING", command_name="power_off")))

    async def gone_after(request: web.Request) -> web.StreamResponse:
        if agent.posts and request.method == "GET":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return await agent(request)

    assert run(tmp_path, gone_after, name="standby.power_off") == AgentResult("SUCCEEDED")


# --- what is believed


def answering(reply: web.StreamResponse | None = None, **given: Any) -> Handle:
    async def handle(_request: web.Request) -> web.StreamResponse:
        return reply if reply is not None else web.Response(**given)

    return handle


@pytest.mark.parametrize(
    ("handle", "error"),
    [
        (answering(text="<html>", content_type="text/html"), Malformed),
        (answering(text=""), Malformed),
        (answering(text='{"commands": [{"id": "../x"}]}'), Malformed),
        (answering(body=b" " * (9 << 20)), TooLarge),
        (
            answering(status=302, headers={"Location": "https://192.0.2.1/v1/commands/"}),
            Unreachable,
        ),
        (answering(status=401), LoginRefused),
        (answering(status=503), Unreachable),
    ],
)
def test_what_is_no_list_of_commands_sends_nothing(
    tmp_path: Path, handle: Handle, error: type[PortError]
) -> None:
    seen: list[str] = []

    async def watched(request: web.Request) -> web.StreamResponse:
        seen.append(request.method)
        return await handle(request)

    with pytest.raises(error):
        run(tmp_path, watched)

    assert set(seen) == {"GET"}


def test_another_certificate_gets_no_token(tmp_path: Path) -> None:
    agent = Scripted(taken)
    other = open_own_authority(tmp_path).ca_pem()
    with pytest.raises(CertificateChanged):
        run(tmp_path, agent, change={"certificate": other})

    assert agent.seen == []


@pytest.mark.parametrize("certificate", ["", "nonsense"])
def test_without_a_certificate_nothing_is_asked(tmp_path: Path, certificate: str) -> None:
    with pytest.raises(CertificateChanged):
        run(tmp_path, Scripted(), change={"certificate": certificate})


def test_the_token_is_in_no_log_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []

    async def quoting(request: web.Request) -> web.StreamResponse:
        text = f"refused: {request.path_qs}"
        return web.Response(status=500, text=json.dumps({"faultstring": text}), reason=text[:200])

    async def main() -> None:
        wire = HttpsWire()
        try:
            async with hostile_agent(tmp_path, quoting) as agent:
                nobody = replace(agent, url="https://127.0.0.1:1")
                for address in (agent, nobody):
                    try:
                        await AgentClient(wire, WallClock(FAST)).run(
                            address, "standby.sync", {}, 10.0, None, _nothing
                        )
                    except PortError as error:
                        told.append(repr(error) + str(error))
        finally:
            await wire.close()

    asyncio.run(main(), debug=True)
    logged = "\n".join(f"{r.getMessage()} {r.exc_text}" for r in caplog.records)

    assert len(told) == 2
    assert TOKEN not in "".join(told)
    assert TOKEN not in logged


async def _nothing(_asked: AgentRequest | None) -> None:
    return None


def test_an_address_shows_no_token() -> None:
    shown = repr(AgentAddress("n1", "https://x", "", Secret(TOKEN), "13.0.0", 0.0))

    assert TOKEN not in shown
