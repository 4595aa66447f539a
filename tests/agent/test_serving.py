"""Our API over real HTTPS: what agents rely on, and what strangers get."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography.hazmat.primitives import serialization

from provisioner.adapters.agent.tls import (
    CERTIFICATE_FILE,
    KEY_FILE,
    Authority,
    open_authority,
)
from provisioner.daemon.agents import AgentDoor, ServedAgents, serve_agents
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind
from provisioner.ports import Secret
from provisioner.runtime.bounded_listener import BURST, PER_SECOND, Rate
from provisioner.runtime.wall_clock import WallClock
from provisioner.runtime.whole_files import write_private
from provisioner.settings import Settings
from provisioner.store.database.data_directory import SealedFile
from provisioner.store.repositories.key_exchange import (
    KeyRing,
    begin_exchange,
    end_exchange,
    prepare_keys,
)
from provisioner.store.repositories.signing_keys import MasterKey, read_key_file
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import SqlStore, open_store

MAC = "02:00:00:00:00:0a"
SETTINGS = Settings(agent_lookup_trusts="first")


class Caller:
    """A client that trusts our authority alone."""

    def __init__(self, served: ServedAgents, session: aiohttp.ClientSession) -> None:
        self.served, self.session = served, session
        self.context = ssl.create_default_context(cadata=served.ca_pem)

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        url = self.served.url + path
        async with self.session.request(method, url, ssl=self.context, **options) as reply:
            text = await reply.text()
            return reply.status, json.loads(text) if text else None


@asynccontextmanager
async def serving(
    folder: Path, store: SqlStore, key: MasterKey, door: AgentDoor
) -> AsyncIterator[Caller]:
    clock = WallClock()
    vault = Vault(store, key)
    async with (
        serve_agents(door, folder, store, vault, clock, SETTINGS) as served,
        aiohttp.ClientSession() as session,
    ):
        yield Caller(served, session)


def scenario(
    folder: Path, body: Callable[[Caller, SqlStore], Awaitable[None]], **door: Any
) -> None:
    async def main() -> None:
        store = open_store(":memory:")
        try:
            await store.nodes.add(Node(id="n1", kind=NodeKind.HOST))
            opened = AgentDoor(**{"port": 0, **door})
            async with serving(folder, store, MasterKey.generate(), opened) as caller:
                await body(caller, store)
        finally:
            await store.close()

    asyncio.run(main())


def test_a_token_is_handed_out_once_and_is_not_in_the_database(tmp_path: Path) -> None:
    async def body(caller: Caller, store: SqlStore) -> None:
        await caller.served.agents.expect("n1", [MAC], 60.0)
        asked = {"addresses": f"02:00:00:00:00:99,{MAC}"}
        both = await asyncio.gather(
            *(caller.ask("GET", "/v1/lookup", params=asked) for _ in range(5))
        )
        tokens = sorted(answer["config"]["agent_token"] for _, answer in both)

        assert [status for status, _ in both] == [200] * 5
        assert tokens[:4] == ["******"] * 4
        assert len(tokens[4]) >= 32
        row = (await store.agents.list_sessions())[0]
        assert row.handed_at > 0
        assert tokens[4] not in row.model_dump_json()

    scenario(tmp_path, body)


def test_the_version_lets_an_agent_use_tokens_and_tls(tmp_path: Path) -> None:
    async def body(caller: Caller, _store: SqlStore) -> None:
        status, answer = await caller.ask("GET", "/")

        assert (status, answer["default_version"]["version"]) == (200, "1.68")

    scenario(tmp_path, body)


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    [
        ("GET", "/v1/lookup", {"params": {"addresses": MAC}}, 404),
        ("GET", "/v1/lookup", {}, 400),
        ("GET", "/v1/nodes", {}, 404),
        ("PUT", "/", {}, 404),
        ("POST", "/v1/heartbeat/nobody", {"data": b"{}"}, 401),
        ("POST", "/v1/heartbeat/nobody", {"data": b"x" * 70_000}, 413),
        ("POST", "/v1/heartbeat/" + "%2e%2e%2f" * 9, {"data": b"\xff"}, 400),
        ("POST", "/v1/continue_inspection", {"data": b"{}"}, 404),
    ],
)
def test_strangers_get_a_status_and_no_reason(
    tmp_path: Path, method: str, path: str, options: dict[str, Any], status: int
) -> None:
    async def body(caller: Caller, _store: SqlStore) -> None:
        told, answer = await caller.ask(method, path, **options)

        assert told == status
        assert answer is None or answer["error_message"]["faultstring"] in (
            "refused",
            "no such resource",
        )

    scenario(tmp_path, body)


def test_who_asks_without_end_is_held_back_and_written_down_once(tmp_path: Path) -> None:
    async def body(caller: Caller, store: SqlStore) -> None:
        asked = {"addresses": MAC}
        statuses = [
            (await caller.ask("GET", "/v1/lookup", params=asked))[0] for _ in range(int(BURST) + 10)
        ]
        rows = [r for r in await store.journal.list() if r["kind"] == "agent_refused"]

        assert statuses.count(404) < BURST + 5
        assert statuses[-1] == 429
        assert len(rows) == 1
        assert rows[0]["detail"]["reason"] == "not_expected"

    scenario(tmp_path, body)


def test_a_peer_that_waits_may_ask_again() -> None:
    now = [0.0]
    rate = Rate(lambda: now[0])
    first = [rate.admits("a") for _ in range(40)]
    now[0] += 1 / PER_SECOND + 0.01
    later = [rate.admits("a"), rate.admits("a"), rate.admits("b")]

    assert first == [True] * int(BURST) + [False] * (40 - int(BURST))
    assert later == [True, False, True]


# --- our authority


KEY = MasterKey.generate()


def opened(folder: Path, key: MasterKey | KeyRing = KEY) -> Authority:
    return open_authority(folder, SealedFile(folder, key))


def put_clear(folder: Path, authority: Authority, mode: int = 0o600) -> bytes:
    """The key in clear, as older versions kept it."""
    form = serialization.PrivateFormat.PKCS8
    none = serialization.NoEncryption()
    content = authority.key.private_bytes(serialization.Encoding.PEM, form, none)
    (folder / KEY_FILE).write_bytes(content)
    (folder / KEY_FILE).chmod(mode)
    return content


def test_the_authority_is_kept_and_its_key_is_nowhere_in_clear(tmp_path: Path) -> None:
    first, again = opened(tmp_path), opened(tmp_path)
    files = {f.name: f.read_bytes() for f in tmp_path.iterdir()}

    assert first.ca_pem() == again.ca_pem() == files[CERTIFICATE_FILE].decode()
    assert set(files) == {CERTIFICATE_FILE, f"{KEY_FILE}.sealed"}
    assert (tmp_path / f"{KEY_FILE}.sealed").stat().st_mode & 0o777 == 0o600
    assert not any(b"PRIVATE KEY" in content for content in files.values())


def test_a_key_in_clear_of_an_older_version_is_sealed_at_the_start_and_removed(tmp_path) -> None:
    first = opened(tmp_path)
    (tmp_path / f"{KEY_FILE}.sealed").unlink()
    content = put_clear(tmp_path, first)
    again = opened(tmp_path)

    assert again.ca_pem() == first.ca_pem()
    assert not (tmp_path / KEY_FILE).exists()
    assert SealedFile(tmp_path, KEY).read() == content
    put_clear(tmp_path, first)  # a start that was cut off after the sealing, or in the removal
    assert opened(tmp_path).ca_pem() == first.ca_pem()
    (tmp_path / KEY_FILE).write_bytes(b"\0" * 100)
    assert opened(tmp_path).ca_pem() == first.ca_pem()
    assert not (tmp_path / KEY_FILE).exists()


def test_another_key_in_clear_beside_the_sealed_one_is_a_persons_to_decide(tmp_path) -> None:
    opened(tmp_path)
    (tmp_path / "other").mkdir()
    put_clear(tmp_path, opened(tmp_path / "other"))

    with pytest.raises(InputError, match="another key than the sealed one"):
        opened(tmp_path)
    assert (tmp_path / KEY_FILE).exists()


def test_without_the_master_key_it_is_refused_and_never_made_anew(tmp_path: Path) -> None:
    opened(tmp_path)
    before = {f.name: f.read_bytes() for f in tmp_path.iterdir()}

    with pytest.raises(InputError, match=f"sealed with master key {KEY.id}, not with ours"):
        opened(tmp_path, MasterKey.generate())
    assert {f.name: f.read_bytes() for f in tmp_path.iterdir()} == before


def test_no_master_key_is_made_where_the_authority_needs_the_one_that_is_missing(tmp_path) -> None:
    opened(tmp_path)

    async def prepare() -> None:
        store = open_store(":memory:")
        try:
            await prepare_keys(store, tmp_path, {})
        finally:
            await store.close()

    with pytest.raises(InputError, match=f"sealed with master key {KEY.id}"):
        asyncio.run(prepare())
    assert not (tmp_path / "master.key").exists()


def test_the_authority_follows_the_master_key_through_an_exchange(tmp_path: Path) -> None:
    write_private(tmp_path / "master.key", KEY.text().encode())
    first = opened(tmp_path)
    new = begin_exchange(tmp_path)
    during = opened(tmp_path, KeyRing([new, KEY]))
    end_exchange(tmp_path)

    assert read_key_file(tmp_path / "master.key").id == new.id
    assert first.ca_pem() == during.ca_pem() == opened(tmp_path, new).ca_pem()
    with pytest.raises(InputError, match="not with ours"):
        opened(tmp_path, KEY)


def test_a_daemon_beside_the_one_that_exchanged_seals_its_own_before_it_drops_the_old_key(
    tmp_path: Path,
) -> None:
    write_private(tmp_path / "master.key", KEY.text().encode())
    first = opened(tmp_path)
    new = begin_exchange(tmp_path)  # its file was copied here; the other daemon ended the walk

    async def start() -> KeyRing:
        store = open_store(":memory:")
        try:
            await Vault(store, new).put("n1/host", "root", Secret("a password"))
            return await prepare_keys(store, tmp_path, {})
        finally:
            await store.close()

    ring = asyncio.run(start())
    assert ring.list_ids() == (new.id,)
    assert opened(tmp_path, ring).ca_pem() == first.ca_pem()


def test_an_exchange_of_the_environments_key_that_dies_leaves_what_either_opens(tmp_path) -> None:
    first, new = opened(tmp_path), MasterKey.generate()
    SealedFile(tmp_path, KEY).renew(new)

    assert first.ca_pem() == opened(tmp_path).ca_pem() == opened(tmp_path, new).ca_pem()
    SealedFile(tmp_path, new).renew()
    with pytest.raises(InputError, match="not with ours"):
        opened(tmp_path, KEY)


def test_an_authority_that_a_crash_cut_off_is_finished(tmp_path: Path) -> None:
    first = opened(tmp_path)
    (tmp_path / CERTIFICATE_FILE).unlink()
    again = opened(tmp_path)

    assert again.certificate.public_key() == first.certificate.public_key()


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        (f"{KEY_FILE}.sealed", None, "is missing"),
        (f"{KEY_FILE}.sealed", b"nonsense", "cannot be read"),
        (f"{KEY_FILE}.sealed", b'{"0": "bm9uc2Vuc2U="}', "sealed with master key 0"),
        (KEY_FILE, b"nonsense", "is no key"),
        (CERTIFICATE_FILE, b"nonsense", "is no certificate"),
    ],
)
def test_an_authority_that_images_trust_is_never_replaced(
    tmp_path: Path, file: str, content: bytes | None, problem: str
) -> None:
    opened(tmp_path)
    (tmp_path / file).unlink(missing_ok=True)
    if content is not None:
        (tmp_path / file).touch(0o600)
        (tmp_path / file).write_bytes(content)

    with pytest.raises(InputError, match=problem):
        opened(tmp_path)


def test_a_key_in_clear_that_others_may_read_is_refused(tmp_path: Path) -> None:
    put_clear(tmp_path, opened(tmp_path), 0o644)

    with pytest.raises(InputError, match="others may use it"):
        opened(tmp_path)


def test_a_certificate_of_another_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    opened(tmp_path)
    opened(tmp_path / "other")
    (tmp_path / "other" / CERTIFICATE_FILE).replace(tmp_path / CERTIFICATE_FILE)

    with pytest.raises(InputError, match="does not belong"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("door", "problem"),
    [
        ({"host": "192.0.2.77"}, "cannot serve maintenance agents there"),
        ({"host": "0.0.0.0"}, "names no address of ours"),
        ({"url": "nonsense"}, "names no address of ours"),
    ],
)
def test_an_address_that_is_not_ours_is_told_at_once(
    tmp_path: Path, door: dict[str, Any], problem: str
) -> None:
    async def body(_caller: Caller, _store: SqlStore) -> None:
        raise AssertionError("it was served")

    with pytest.raises(InputError, match=problem):
        scenario(tmp_path, body, **door)


def test_ramdisks_are_told_the_address_that_they_reach(tmp_path: Path) -> None:
    async def body(caller: Caller, _store: SqlStore) -> None:
        assert caller.served.url == "https://provisioner.test:6385"

    scenario(tmp_path, body, host="0.0.0.0", url="https://provisioner.test:6385/")
