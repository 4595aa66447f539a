"""Keys: ours that opens a host, the host's that we gave it; and files that agents may fetch."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer

from provisioner.execution.actions.work import credential_of, host_key, login_of
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.os_images import OsImages
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind
from provisioner.store.repositories.signing_keys import MasterKey
from provisioner.store.repositories.vault import Vault
from provisioner.store.sql_store import open_store

NODE = Node(id="n0", kind=NodeKind.HOST)


def test_a_host_keeps_the_key_that_it_was_first_given() -> None:
    async def main() -> tuple[tuple[str, str], tuple[str, str], tuple[str, str]]:
        store = open_store(":memory:", inline=True)
        vault = Vault(store, MasterKey.generate())
        other = NODE.model_copy(update={"id": "n1"})
        found = (
            await host_key(vault, NODE),
            await host_key(vault, NODE),
            await host_key(vault, other),
        )
        await store.close()
        return found

    first, again, other = asyncio.run(main())

    assert first == again != other
    assert first[0].startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert first[1].startswith("ssh-ed25519 ")
    assert credential_of(NODE) == "n0/ssh-host-key"


def test_a_key_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("no key")

    with pytest.raises(InputError, match="without a passphrase"):
        login_of("provisioner", tmp_path / "key")
    assert login_of("provisioner", None) is None


def test_agents_may_fetch_what_was_prepared_and_nothing_else(tmp_path: Path) -> None:
    for name in ("os.raw", "secret.raw"):
        (tmp_path / name).write_bytes(name.encode())

    async def main() -> list[tuple[int, bytes]]:
        images = OsImages(Artifacts(tmp_path), tmp_path / "work")
        await images.prepare_image("os.raw", hashlib.sha256(b"os.raw").hexdigest())
        told = []
        async with TestClient(TestServer(images.build_application())) as client:
            for path in ("/os.raw", "/secret.raw", "/..%2fsecret.raw", "/"):
                async with client.get(path) as answer:
                    told.append((answer.status, await answer.read()))
        return told

    (status, body), *others = asyncio.run(main())

    assert (status, body) == (200, b"os.raw")
    assert {status for status, _ in others} == {404}
