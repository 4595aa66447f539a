"""Artifacts of a real object store, whose bucket is read without a login by the page's policy."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
from pathlib import Path

import pytest
from buckets import ANOTHER, US, policy
from object_store import ABSENT, MISSING, ObjectStore, ask
from outside_files import BODY, NAME, OTHER, PINNED, names, reason, run
from typer.testing import CliRunner

from provisioner.adapters.artifact_source import HttpArtifactServer
from provisioner.cli import app
from provisioner.execution.artifacts.outside_artifacts import OutsideArtifacts
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(ABSENT), reason=MISSING),
    pytest.mark.filterwarnings("ignore"),
]


def gets(store: ObjectStore, name: str) -> int:
    """How often an object whose name needs no quoting was read."""
    return [path for _, path, _ in store.asked("GET")].count(f"/firmware/{name}")


def test_a_file_is_fetched_verified_and_offered(url: str, cache: Path) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        assert await files.offer_file(NAME, PINNED) is None
        assert await files.confirm_offer(NAME, PINNED) is None

    run(scenario, cache, url)

    assert (cache / NAME).read_bytes() == BODY
    assert names(cache) == {NAME}


def test_an_object_that_was_uploaded_in_parts_is_a_file_like_any_other(
    store: ObjectStore, url: str, cache: Path
) -> None:
    body = b"firmware" * 700_000  # clients upload in parts what is large; over 5 GiB they must
    store.put_in_parts("firmware", "parts.bin", body[: 5 * 1024**2], body[5 * 1024**2 :])
    pinned = hashlib.sha256(body).hexdigest()

    async def scenario(files: OutsideArtifacts) -> None:
        assert await files.offer_file("parts.bin", pinned) is None
        sight = files.get_reading("parts.bin")
        assert sight is not None
        assert sight.validators.etag.endswith('-2"')  # no digest of the whole; it is asked alike
        assert await files.confirm_offer("parts.bin", pinned) is None

    run(scenario, cache, url)

    assert (cache / "parts.bin").read_bytes() == body


def test_head_has_the_three_validators_of_what_get_gives(url: str) -> None:
    async def main() -> None:
        server = HttpArtifactServer(url)
        size = 0

        async def take(piece: bytes) -> None:
            nonlocal size
            size += len(piece)

        try:
            now = await server.head(NAME, 5.0)
            read = await server.get(NAME, len(BODY), take)
        finally:
            await server.close()
        assert now is not None
        assert read is not None
        assert now.etag == f'"{hashlib.md5(BODY, usedforsecurity=False).hexdigest()}"'
        assert now.modified.endswith(" GMT")
        assert (now.length, size) == (len(BODY), len(BODY))
        assert (now.etag, now.modified, now.length) == (read.etag, read.modified, read.length)

    asyncio.run(main())


def test_an_object_of_some_age_is_read_once(store: ObjectStore, url: str, cache: Path) -> None:
    store.put("firmware", "aged.bin", BODY)

    async def scenario(files: OutsideArtifacts) -> None:
        await asyncio.sleep(2.5)  # dates count whole seconds
        for _ in range(3):
            assert await files.offer_file("aged.bin", PINNED) is None
            assert await files.confirm_offer("aged.bin", PINNED) is None

    run(scenario, cache, url)

    assert gets(store, "aged.bin") == 1


@pytest.mark.parametrize("age_s", [0.0, 2.5])
def test_an_object_replaced_by_another_of_its_length_is_noticed(
    store: ObjectStore, url: str, cache: Path, age_s: float
) -> None:
    store.put("firmware", "new.bin", BODY)

    async def scenario(files: OutsideArtifacts) -> None:
        await asyncio.sleep(age_s)
        assert await files.offer_file("new.bin", PINNED) is None
        assert await files.confirm_offer("new.bin", PINNED) is None
        store.put("firmware", "new.bin", OTHER)
        assert reason(await files.confirm_offer("new.bin", PINNED)) is Reason.BUSY
        assert reason(await files.offer_file("new.bin", PINNED)) is Reason.DIGEST_MISMATCH
        store.put("firmware", "new.bin", BODY)
        assert await files.offer_file("new.bin", PINNED) is None
        assert await files.confirm_offer("new.bin", PINNED) is None

    run(scenario, cache, url)


def test_an_object_replaced_while_it_is_fetched_is_the_old_one_or_none(
    store: ObjectStore, url: str, cache: Path
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        for _ in range(3):
            store.put("firmware", "torn.bin", BODY)
            asked = asyncio.create_task(files.offer_file("torn.bin", PINNED))
            await asyncio.to_thread(store.put, "firmware", "torn.bin", OTHER)
            assert reason(await asked) in (None, Reason.DIGEST_MISMATCH, Reason.UNREACHABLE)
            assert reason(await files.confirm_offer("torn.bin", PINNED)) is Reason.BUSY
            held = cache / "torn.bin"
            assert not held.exists() or held.read_bytes() == BODY

    run(scenario, cache, url)


def test_a_device_gets_the_whole_old_object_when_it_is_replaced_in_the_middle(
    store: ObjectStore,
) -> None:
    old, new = BODY * 14, OTHER * 14  # 34 MB each: more than waits in sockets and the gateway
    store.put("firmware", "long.bin", old)
    link = http.client.HTTPConnection("127.0.0.1", store.port, timeout=60)
    with contextlib.closing(link):
        link.request("GET", "/firmware/long.bin")
        told = link.getresponse()
        first = told.read(1024**2)
        store.put("firmware", "long.bin", new)
        assert ask(store.port, "GET", "/firmware/long.bin").body == new
        assert first + told.read() == old


@pytest.mark.parametrize(
    ("bucket", "name", "wanted", "word"),
    [
        ("firmware", "absent.bin", Reason.NOT_OFFERED, "403 (S3 says so of a file that is not"),
        ("shut", NAME, Reason.NOT_OFFERED, "answers 403"),
        ("elsewhere", NAME, Reason.NOT_OFFERED, "answers 403"),
        ("not made", NAME, Reason.MISSING_ARTIFACT, "there is no file at"),
    ],
)
def test_what_may_not_be_read_is_told_and_leaves_nothing(
    store: ObjectStore, cache: Path, bucket: str, name: str, wanted: Reason, word: str
) -> None:
    async def scenario(files: OutsideArtifacts) -> None:
        told = await files.offer_file(name, PINNED)
        assert isinstance(told, Blocker)
        assert (told.reason, word in told.detail) == (wanted, True), told
        assert "under exactly this name" in told.unblock  # what a 403 says of an absent file

    run(scenario, cache, f"{store.origin}/{bucket.replace(' ', '-')}")

    assert names(cache) == set()


def test_an_object_that_is_removed_is_told_before_a_device_is(
    store: ObjectStore, url: str, cache: Path
) -> None:
    store.put("firmware", "gone.bin", BODY)

    async def scenario(files: OutsideArtifacts) -> None:
        assert await files.offer_file("gone.bin", PINNED) is None
        store.signed("DELETE", "/firmware/gone.bin")
        assert reason(await files.confirm_offer("gone.bin", PINNED)) is Reason.NOT_OFFERED

    run(scenario, cache, url)


def test_an_object_stored_with_a_content_coding_is_refused(
    store: ObjectStore, url: str, cache: Path
) -> None:
    store.put("firmware", "coded.bin", BODY, {"content-encoding": "gzip"})

    async def scenario(files: OutsideArtifacts) -> None:
        told = await files.offer_file("coded.bin", PINNED)
        assert isinstance(told, Blocker)
        assert (told.reason, "'gzip'" in told.detail) == (Reason.NOT_OFFERED, True)

    run(scenario, cache, url)


def test_the_policy_lets_its_network_read_and_nobody_do_anything_else(store: ObjectStore) -> None:
    store.put("firmware", "x.bin", b"content")
    store.put("elsewhere", "x.bin", b"content")

    def answered(method: str, path: str, source: str = US, body: bytes = b"") -> int:
        said = {"X-Forwarded-For": US} if source == ANOTHER else {}  # nobody is believed that
        return ask(store.port, method, path, body, said, source).status

    assert answered("GET", "/firmware/x.bin") == 200
    assert answered("HEAD", "/firmware/x.bin", ANOTHER) == 403
    assert answered("GET", "/firmware/x.bin", ANOTHER) == 403
    assert answered("GET", "/elsewhere/x.bin", ANOTHER) == 200
    assert answered("GET", "/elsewhere/x.bin") == 403
    assert answered("GET", "/firmware") == 403  # a list of what is there
    assert answered("PUT", "/firmware/x.bin", body=b"malware") == 403
    assert answered("DELETE", "/firmware/x.bin") == 403
    assert answered("PUT", "/firmware?policy", body=policy("firmware", "0.0.0.0/0").encode()) == 403


@pytest.mark.parametrize("query", ["X-Amz-Signature=5ec7e7", "versionId=5ec7e7"])
def test_an_address_with_a_query_is_refused(url: str, tmp_path: Path, query: str) -> None:
    words = ["doctor", "--data", str(tmp_path), "--artifact-url", f"{url}?{query}"]
    done = CliRunner().invoke(app, words)

    assert isinstance(done.exception, InputError)
    assert "it has a query" in str(done.exception)
    assert "5ec7e7" not in done.output + str(done.exception)
