"""The real ironic-python-agent against our side of its protocol: what is written is on the disk."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parent / "agent_lab"))

from authority_rig import open_own_authority
from lab import DISK_BYTES, MARK, Link, RealAgent, link, real_agent, why_not

from provisioner.daemon.agents import AgentDoor, ServedAgents, serve_agents
from provisioner.model.node import Node, NodeKind
from provisioner.ports import AgentAddress, AgentResult, LoginRefused, Secret, Unreachable
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import SqlStore, open_store

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "possible")

NODE, OTHER = "n1", "n2"
MAC, OTHER_MAC = "52:54:00:aa:00:01", "52:54:00:aa:00:02"
SETTINGS = Settings(
    agent_heartbeat_s=15.0, agent_lookup_trusts="first"
)  # it calls every 5 to 9 seconds
START_S = 60.0  # a loaded machine; an idle one needs four seconds
IMAGE = os.urandom(1 << 20)
T = TypeVar("T")


@dataclass
class Bench:
    """What one test has: our side, which may be started anew, and the files that we serve."""

    folder: Path
    cable: Link
    key: MasterKey
    port: int = 0

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[tuple[ServedAgents, SqlStore]]:
        """Our side of the protocol as `provisioner serve` opens it."""
        clock, store = WallClock(), open_store(self.folder / "store.db")
        try:
            for name in (NODE, OTHER):
                if await store.nodes.get(name) is None:
                    await store.nodes.add(Node(id=name, kind=NodeKind.HOST))
            door = AgentDoor(self.cable.gateway, self.port)
            vault = Vault(store, self.key)
            async with serve_agents(door, self.folder, store, vault, clock, SETTINGS) as served:
                self.port = int(served.url.rpartition(":")[2])
                yield served, store
        finally:
            await store.close()

    @asynccontextmanager
    async def images(self) -> AsyncIterator[str]:
        """Images over HTTPS, under the certificate authority that the agent trusts."""

        async def serve(request: web.Request) -> web.StreamResponse:
            if request.match_info["name"] == "whole":
                return web.Response(body=IMAGE)
            reply = web.StreamResponse(headers={"Content-Length": str(len(IMAGE))})
            await reply.prepare(request)
            await reply.write(IMAGE[: len(IMAGE) // 2])
            assert request.transport is not None
            request.transport.close()
            return reply

        app = web.Application()
        app.router.add_get("/{name}", serve)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        context = open_own_authority(self.folder, self.key).server_context((self.cable.gateway,))
        try:
            await web.TCPSite(runner, self.cable.gateway, 0, ssl_context=context).start()
            yield f"https://{self.cable.gateway}:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with link() as cable:
        yield Bench(tmp_path, cable, MasterKey.generate())


def with_agent(
    bench: Bench, scenario: Callable[[ServedAgents, RealAgent, SqlStore], Awaitable[T]]
) -> T:
    """Our side and a running agent that looks for it, for one scenario."""

    async def main() -> T:
        async with AsyncExitStack() as ours:
            served, store = await ours.enter_async_context(bench.daemon())
            with real_agent(bench.folder, bench.cable, served.url, served.ca_pem, MAC) as agent:
                try:
                    return await scenario(served, agent, store)
                except BaseException:
                    logging.getLogger("agent").error("%s", agent.log[-6000:])
                    raise
                finally:
                    await ours.aclose()  # while there is somebody to say goodbye to

    return asyncio.run(main())


async def up(served: ServedAgents) -> AgentAddress:
    await served.agents.expect(NODE, [MAC], START_S)
    found = await served.agents.wait(NODE, START_S)
    assert found is not None, "the agent did not call"
    return found


async def step(
    served: ServedAgents, agent: AgentAddress, name: str, *, on: str = "", **args: Any
) -> AgentResult:
    hints = {"root_device": {"serial": on}} if on else {}
    node = {"uuid": NODE, "properties": {}, "instance_info": hints}
    asked = {"step": {"step": name, "interface": "deploy", "args": args}, "node": node, "ports": []}
    return await served.agents.command(agent, "clean.execute_clean_step", asked, 60.0)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(START_S):
        while not true():  # noqa: ASYNC110 (of another process)
            await asyncio.sleep(0.05)


def image(url: str, **changes: str) -> Mapping[str, Any]:
    info = {
        "id": "os",
        "urls": [url],
        "os_hash_algo": "sha256",
        "os_hash_value": hashlib.sha256(IMAGE).hexdigest(),
        "disk_format": "raw",
        "image_type": "whole-disk",
        "stream_raw_images": True,
    }
    return {"image_info": {**info, **changes}}


async def refusals(store: SqlStore) -> set[tuple[str, str]]:
    rows = await store.journal.list()
    return {(r["node"], r["detail"]["reason"]) for r in rows if r["kind"] == "agent_refused"}


def test_an_agent_is_found_inventoried_and_erases_its_disks(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario(served: ServedAgents, agent: RealAgent, store: SqlStore) -> None:
        found = await up(served)
        command = served.agents.command
        told = await command(found, "poll.get_hardware_info", {}, 60.0)
        before = [disk.read_bytes() for disk in agent.disks]
        erased = await step(served, found, "erase_devices")
        failed = await step(served, found, "fail")
        unknown = await command(found, "no.such_command", {}, 60.0)
        off = await command(found, "standby.power_off", {}, 60.0)
        await until((agent.state / "ended").exists)

        assert found.version == "13.0.0"
        assert [d["serial"] for d in told.result["disks"]] == ["SCRATCH0", "SCRATCH1"]
        assert all(content.startswith(MARK) for content in before)
        assert erased.status == "SUCCEEDED"
        assert [disk.read_bytes() for disk in agent.disks] == [bytes(DISK_BYTES)] * 2
        assert failed.status == "FAILED"
        assert failed.error == "Clean step failed: the disk said [31mno[0m"
        assert unknown.status == "FAILED"
        assert "no" in unknown.error
        assert off.status == "SUCCEEDED"
        assert await refusals(store) == set()
        token = found.token.reveal()
        assert len(token) >= 32
        assert [r.getMessage() for r in caplog.records if token in r.getMessage()] == []

    with_agent(bench, scenario)


def test_an_image_is_on_the_disk_that_was_named_or_it_is_refused(bench: Bench) -> None:
    async def scenario(served: ServedAgents, agent: RealAgent, _store: SqlStore) -> None:
        found = await up(served)
        command = served.agents.command
        async with bench.images() as url:
            nowhere = await command(found, "standby.prepare_image", image(f"{url}/whole"), 60.0)
            untouched = [disk.read_bytes()[: len(MARK)] for disk in agent.disks]
            await step(served, found, "count", on="SCRATCH1")  # names the node's disk
            wrong = {"os_hash_value": "00" * 32, "id": "wrong"}
            results = [
                await command(found, "standby.prepare_image", asked, 60.0)
                for asked in (
                    image(f"{url}/half", id="half"),
                    image(f"{url}/whole", **wrong),
                    image(f"{url}/whole"),
                )
            ]

        assert nowhere.status == "FAILED"
        assert "no disk has the serial" in nowhere.error
        assert untouched == [MARK, MARK]
        assert [r.status for r in results] == ["FAILED", "FAILED", "SUCCEEDED"]
        assert "checksum" in results[1].error
        first, second = agent.disks
        assert second.read_bytes()[: len(IMAGE)] == IMAGE
        assert first.read_bytes()[: len(MARK)] == MARK

    with_agent(bench, scenario)


def test_a_foreign_token_or_certificate_moves_nothing(bench: Bench) -> None:
    async def scenario(served: ServedAgents, agent: RealAgent, store: SqlStore) -> None:
        found = await up(served)
        stranger = replace(found, token=Secret("x" * 43))
        with pytest.raises(LoginRefused):
            await served.agents.command(stranger, "standby.sync", {}, 60.0)
        other = open_own_authority(bench.folder, bench.key).ca_pem()
        forged = replace(found, certificate=other)
        with pytest.raises(Unreachable):  # not the agent that called
            await served.agents.command(forged, "standby.sync", {}, 60.0)

        async with aiohttp.ClientSession() as session:
            body = {
                "agent_token": "x" * 43,
                "agent_version": "13.0.0",
                "callback_url": found.url,
                "agent_verify_ca": found.certificate,
            }
            uuid = next(s.uuid for s in await store.agents.list_sessions())
            where = f"{served.url}/v1/heartbeat/{uuid}"
            async with session.post(where, json=body, ssl=False) as reply:
                assert reply.status == 401
            asked = {"addresses": MAC}
            async with session.get(f"{served.url}/v1/lookup", params=asked, ssl=False) as reply:
                assert (await reply.json())["config"]["agent_token"] == "******"
        assert await refusals(store) == {(NODE, "foreign_agent"), (NODE, "duplicate")}
        assert (await served.agents.command(found, "standby.sync", {}, 60.0)).status == "SUCCEEDED"
        assert agent.process.poll() is None

    with_agent(bench, scenario)


def test_an_agent_of_a_node_that_is_not_to_boot_now_gets_no_token(bench: Bench) -> None:
    async def scenario(served: ServedAgents, agent: RealAgent, store: SqlStore) -> None:
        await served.agents.expect(OTHER, [OTHER_MAC], START_S)
        await until(lambda: "Failed looking up node" in agent.log)

        assert await refusals(store) == {("", "not_expected")}
        assert await served.agents.present(OTHER) is None
        assert [s.handed_at for s in await store.agents.list_sessions()] == [0.0]

    with_agent(bench, scenario)


def test_a_new_daemon_goes_on_with_the_agent_and_its_command(bench: Bench) -> None:
    async def main() -> None:
        async with bench.daemon() as (served, _):
            url, ca_pem = served.url, served.ca_pem
            running = real_agent(bench.folder, bench.cable, url, ca_pem, MAC)
            agent = running.__enter__()
            found = await up(served)
            work = asyncio.create_task(step(served, found, "count", seconds=4.0))
            await until(lambda: (agent.state / "counted").exists())
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
        try:
            async with bench.daemon() as (served, store):
                again = await served.agents.wait(NODE, START_S)
                assert again is not None
                told = await step(served, again, "count", seconds=4.0)

                assert again.token == found.token
                assert told.result["clean_result"] == {"counted": 1}
                assert (agent.state / "counted").read_text() == "once\n"
                once_more = await step(served, again, "count", seconds=0.0)
                assert once_more.result["clean_result"] == {"counted": 2}
                assert await refusals(store) == set()
        finally:
            running.__exit__(None, None, None)

    asyncio.run(main())
