"""The token of one boot comes with the image of that boot, and from no lookup."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given
from hypothesis import strategies as st

from images import iso
from provisioner.adapters.agent.protocol import HIDDEN
from provisioner.adapters.agent.service import AgentService
from provisioner.adapters.agent.sessions import BOOT_TOKEN_CHARS, Sessions
from provisioner.execution.artifacts import artifacts as boot_images
from provisioner.execution.artifacts.artifacts import (
    SLOT,
    Artifacts,
    BootTickets,
    fill_slots,
    find_slots,
)
from provisioner.model.node import Node, NodeKind
from provisioner.ports import Secret
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

TOKEN = "t" * BOOT_TOKEN_CHARS
MAC = "02:00:00:00:00:0a"
IMAGE = b"kernel" * 999 + SLOT + b"between" + SLOT + b"end" * 99


def test_the_slot_of_the_images_is_the_one_that_the_daemon_fills() -> None:
    assert iso.BOOT_SLOT.encode() == SLOT
    assert len(SLOT) == BOOT_TOKEN_CHARS
    assert iso.require_cmdline(f"quiet {iso.BOOT_ARGUMENT}").endswith(iso.BOOT_SLOT)
    assert iso.require_cmdline(f"ipa-agent-token={TOKEN}.")


def test_slots_are_found_also_where_two_pieces_meet(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "image"
    path.write_bytes(IMAGE)
    first = IMAGE.find(SLOT)
    for size in (64, 100, 6000, 1 << 20):
        monkeypatch.setattr(boot_images, "CHUNK_BYTES", size)
        assert find_slots(path) == (first, first + len(SLOT) + len(b"between"))


@given(start=st.integers(0, len(IMAGE)), length=st.integers(0, 200))
def test_a_range_of_the_filled_image_is_that_range_of_the_whole(start: int, length: int) -> None:
    first = IMAGE.find(SLOT)
    slots = (first, first + len(SLOT) + len(b"between"))
    whole = IMAGE.replace(SLOT, TOKEN.encode())

    piece = fill_slots(IMAGE[start : start + length], start, slots, TOKEN.encode())

    assert piece == whole[start : start + length]


def serve(folder: Path, story: Callable[[Artifacts, TestClient], Awaitable[None]]) -> None:
    async def main() -> None:
        (folder / "m.iso").write_bytes(IMAGE)
        (folder / "other.iso").write_bytes(b"without a slot")
        artifacts = Artifacts(folder)
        async with TestClient(TestServer(artifacts.build_application())) as client:
            digest = hashlib.sha256(IMAGE).hexdigest()
            assert await artifacts.offer_file("m.iso", digest) is None
            assert await artifacts.offer_file("other.iso", "") is None
            await story(artifacts, client)

    asyncio.run(main())


def test_a_bmc_reads_the_image_of_its_boot_with_the_token_in_it(tmp_path: Path) -> None:
    async def story(artifacts: Artifacts, client: TestClient) -> None:
        assert await artifacts.takes_token("m.iso")
        assert not await artifacts.takes_token("other.iso")
        url = artifacts.boot_url("n1", "m.iso", Secret(TOKEN))
        whole = await (await client.get(url)).read()
        assert whole == IMAGE.replace(SLOT, TOKEN.encode())
        assert await (await client.get("/m.iso")).read() == IMAGE  # the file is as it was

        ranged = await client.get(url, headers={"Range": "bytes=5990-6010"})
        assert (ranged.status, await ranged.read()) == (206, whole[5990:6011])
        assert ranged.headers["Content-Range"] == f"bytes 5990-6010/{len(IMAGE)}"
        last = await client.get(url, headers={"Range": "bytes=-7"})
        assert await last.read() == whole[-7:]
        head = await client.head(url)
        assert (head.status, head.headers["Content-Length"]) == (200, str(len(IMAGE)))
        beyond = await client.get(url, headers={"Range": f"bytes={len(IMAGE)}-"})
        assert beyond.status == 416

    serve(tmp_path, story)


def test_an_address_is_good_for_one_boot_of_one_node(tmp_path: Path) -> None:
    async def story(artifacts: Artifacts, client: TestClient) -> None:
        assert await artifacts.takes_token("m.iso")
        first = artifacts.boot_url("n1", "m.iso", Secret(TOKEN))
        again = artifacts.boot_url("n1", "m.iso", Secret("u" * BOOT_TOKEN_CHARS))
        assert (await client.get(first)).status == 404
        assert (await client.get(again.replace("m.iso", "other.iso"))).status == 404
        assert (await client.get(again)).status == 200
        artifacts.boots.withdraw_ticket("n1")
        assert (await client.get(again)).status == 404
        kept = artifacts.boot_url("n2", "m.iso", Secret(TOKEN))
        (tmp_path / "m.iso").write_bytes(b"exchanged")
        assert (await client.get(kept)).status == 404

    serve(tmp_path, story)


def test_boots_that_never_ended_do_not_pile_up() -> None:
    tickets = BootTickets()
    for number in range(boot_images.TICKETS_MAX + 10):
        last = tickets.issue(f"n{number}", "m.iso", (), Secret(TOKEN))

    assert tickets.find(last.id, "m.iso") == last
    assert len(tickets._by_node) == boot_images.TICKETS_MAX


@pytest.mark.parametrize("shared", [False, True], ids=["one daemon", "several"])
def test_a_lookup_gives_the_token_of_a_boot_to_no_one(tmp_path: Path, shared: bool) -> None:
    async def main() -> None:
        store = open_store(tmp_path / "p.db")
        vault, clock = Vault(store, MasterKey.generate()), WallClock()
        sessions = Sessions(store.agents, vault, lambda: "n" * 43, shared=shared)
        service = AgentService(sessions, clock, Settings(), store.journal.append)
        now = clock.now()
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        try:
            token = await sessions.begin("n1", [MAC], now, now + 60, through_boot=True)
            assert len(token) == BOOT_TOKEN_CHARS
            for peer in ("198.51.100.9", "198.51.100.7"):  # the thief is first, and gets nothing
                query = {"addresses": MAC}
                answer = await service.handle("GET", "/v1/lookup", query, b"", peer)
                assert answer.status == 200
                assert answer.body["config"]["agent_token"] == HIDDEN
            session = await sessions.find_session("n1")
            assert session is not None
            assert await sessions.token(session) == token
            assert session.peer == "198.51.100.9"
            assert token not in (tmp_path / "p.db").read_bytes().decode("latin-1")
        finally:
            await store.close()

    asyncio.run(main())


@pytest.mark.parametrize(("setting", "status"), [("nobody", 404), ("first", 200)])
def test_a_boot_without_a_token_gives_one_to_a_lookup_only_where_the_site_says_so(
    setting: str, status: int
) -> None:
    async def main() -> tuple[int, bool, list[str]]:
        store = open_store(":memory:")
        vault, clock = Vault(store, MasterKey.generate()), WallClock()
        sessions = Sessions(store.agents, vault, lambda: "n" * 43)
        chosen = Settings.model_validate({"agent_lookup_trusts": setting})
        service = AgentService(sessions, clock, chosen, store.journal.append)
        await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
        try:
            await sessions.begin("n1", [MAC], clock.now(), clock.now() + 60)
            query = {"addresses": MAC}
            answer = await service.handle("GET", "/v1/lookup", query, b"", "198.51.100.9")
            session = await sessions.find_session("n1")
            assert session is not None
            kinds = [str(row["kind"]) for row in await store.journal.list()]
            return answer.status, bool(session.handed_at), kinds
        finally:
            await store.close()

    answered, handed, kinds = asyncio.run(main())

    assert (answered, handed) == (status, status == 200)
    assert ("agent_refused" in kinds) == (status == 404)
