"""Files of the artifact store: uploaded whole or not at all, described, removed when unused."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from served import MATRIX, NOW, PROFILE, RELEASE, Served, run

from provisioner.execution.artifacts import uploads
from provisioner.model.matrix import Matrix, Pin

BYTES = b"QFI\xfb" + bytes(range(256)) * 300
SHA256 = hashlib.sha256(BYTES).hexdigest()
NAME = "ubuntu-7.qcow2"
PINNED = "hgx-7.qcow2"


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def read(directory: Path, name: str = NAME) -> bytes:
    return (directory / name).read_bytes()


async def wait_until(condition: Callable[[], Any]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to be")


def pin_image() -> Matrix:
    """The shipped matrix with a system for the fleet's hosts, as a site's overlay pins one."""
    release = MATRIX.releases[RELEASE]
    profile = release.profiles[PROFILE]
    pins = {**profile.pins, "host.os": Pin(version="hgx-7", artifact=PINNED)}
    profiles = {**release.profiles, PROFILE: profile.model_copy(update={"pins": pins})}
    pinned = release.model_copy(update={"profiles": profiles})
    return MATRIX.model_copy(update={"releases": {**MATRIX.releases, RELEASE: pinned}})


def in_store(
    directory: Path, scenario: Callable[[Served], Awaitable[None]], **settings: Any
) -> None:
    run(scenario, artifacts=directory, **settings)


async def upload(
    served: Served,
    name: str = NAME,
    data: Any = BYTES,
    *,
    sha256: str = SHA256,
    size: int = len(BYTES),
    who: str = "operator",
    more: str = "",
    **headers: str,
) -> tuple[int, Any]:
    query = f"?sha256={sha256}&size_bytes={size}{more}"
    answer = await served.client.put(
        f"/v1/images/{name}{query}", data=data, headers={**served.key(who), **headers}
    )
    return answer.status, await answer.json(content_type=None)


def test_a_file_is_uploaded_read_described_and_removed(tmp_path: Path):
    async def scenario(served: Served) -> None:
        assert (await served.ask("viewer", "GET", f"/images/{NAME}"))[0] == 404
        status, asked = await upload(served, more="&note=with+DOCA")
        assert (status, asked["result"]["sha256"]) == (200, SHA256), asked
        assert read(tmp_path) == BYTES
        status, again = await upload(served, more="&note=with+DOCA")
        assert (status, again["note"]) == (200, "it was so before")
        _, shown = await served.ask("viewer", "GET", f"/images/{NAME}")
        assert (shown["present"], shown["sha256"], shown["size_bytes"]) == (
            True,
            SHA256,
            len(BYTES),
        )
        assert (shown["format"], shown["note"], shown["by"]) == (
            "qcow2",
            "with DOCA",
            "operator@example",
        )
        patched = await served.ask("operator", "PATCH", f"/images/{NAME}", {"note": "v2"})
        assert patched[0] == 200
        stale = await served.ask("operator", "DELETE", f"/images/{NAME}", If_Match='"g1"')
        assert stale[0] == 412
        _, listed = await served.ask("viewer", "GET", "/images")
        assert [(i["name"], i["note"], i["generation"]) for i in listed["items"]] == [
            (NAME, "v2", 2)
        ]
        tried = await served.ask("operator", "DELETE", f"/images/{NAME}?dry_run=true")
        assert (tried[0], names_in(tmp_path)) == (200, [NAME])
        assert (await served.ask("operator", "DELETE", f"/images/{NAME}"))[0] == 200
        assert (await served.ask("viewer", "GET", f"/images/{NAME}"))[0] == 404
        assert names_in(tmp_path) == []
        _, page = await served.ask("viewer", "GET", "/events?kind=image")
        changes = [set(e["detail"]) - {"by"} for e in page["items"]]
        assert changes == [{"image"}, {"image"}, {"dropped"}]

    in_store(tmp_path, scenario)


@pytest.mark.parametrize(
    ("given", "status", "word"),
    [
        ({"sha256": "0" * 64}, 400, "digest"),
        ({"size": len(BYTES) + 1}, 400, "digest"),
        ({"size": len(BYTES) - 1}, 400, "digest"),
        ({"size": 1_000_001}, 413, "size"),
        ({"name": "..%2Fescaped"}, 400, "name"),
        ({"name": ".upload-" + "0" * 32}, 400, "name"),
        ({"sha256": "x"}, 400, "query"),
        ({"who": "viewer"}, 403, "role"),
        ({"who": "operator-rack1"}, 403, "scope"),
        ({"who": "red"}, 403, "role"),
    ],
)
def test_what_is_not_as_announced_leaves_nothing(
    tmp_path: Path, given: dict[str, Any], status: int, word: str
):
    store = tmp_path / "store"
    store.mkdir()

    async def scenario(served: Served) -> None:
        answered, refused = await upload(served, **given)
        assert (answered, refused["type"]) == (status, f"urn:provisioner:problem:{word}"), refused
        assert refused["unblock"]
        assert (names_in(store), names_in(tmp_path)) == ([], ["store"])
        assert (await served.ask("viewer", "GET", "/images"))[1]["items"] == []

    in_store(store, scenario, api_upload_max_bytes=1_000_000)


def test_an_upload_that_is_cut_off_leaves_nothing_and_frees_its_name(tmp_path: Path):
    async def scenario(served: Served) -> None:
        server = served.client.server
        _, writer = await asyncio.open_connection(server.host, server.port)
        head = f"PUT /v1/images/{NAME}?sha256={SHA256}&size_bytes={len(BYTES)} HTTP/1.1\r\n"
        named = {"Host": "x", "Content-Length": str(len(BYTES)), **served.key("operator")}
        lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        writer.write((head + lines + "\r\n").encode() + BYTES[:1000])
        await writer.drain()
        await wait_until(lambda: names_in(tmp_path))
        status, refused = await upload(served)  # a second one of the same name
        assert (status, refused["type"]) == (409, "urn:provisioner:problem:uploading")
        writer.close()
        await wait_until(lambda: not names_in(tmp_path) and not served.parts.uploads.sizes)
        assert (await upload(served))[0] == 200
        assert names_in(tmp_path) == [NAME]

    in_store(tmp_path, scenario)


def test_a_file_never_changes_under_its_name(tmp_path: Path):
    (tmp_path / NAME).write_bytes(b"put there by hand")

    async def scenario(served: Served) -> None:
        status, refused = await upload(served)
        assert (status, refused["type"]) == (409, "urn:provisioner:problem:taken")
        tried = await upload(served, data=None, more="&dry_run=true")
        assert (tried[0], len(tried[1]["blockers"])) == (200, 1)
        _, listed = await served.ask("viewer", "GET", "/images")
        assert [(i["sha256"], i["generation"]) for i in listed["items"]] == [("", 0)]
        own = hashlib.sha256(b"put there by hand").hexdigest()
        _, shown = await served.ask("viewer", "GET", f"/images/{NAME}")
        assert shown["sha256"] == own
        assert (await served.ask("operator", "PATCH", f"/images/{NAME}", {"note": "x"}))[0] == 200
        await asyncio.to_thread((tmp_path / NAME).write_bytes, b"exchanged by hand")
        _, listed = await served.ask("viewer", "GET", "/images")
        assert listed["items"][0]["sha256"] == ""  # the recorded digest is another file's
        assert read(tmp_path) == b"exchanged by hand"

    in_store(tmp_path, scenario)


def test_the_last_look_refuses_a_name_that_was_taken_meanwhile(tmp_path: Path):
    part = tmp_path / (uploads.PART + "0" * 32)
    part.write_bytes(BYTES)
    (tmp_path / NAME).symlink_to(part)
    taken = uploads.publish_part(tmp_path, part.name, NAME, SHA256)
    assert not isinstance(taken, bool)  # a link is no file of the store
    assert uploads.publish_part(tmp_path, part.name, "other", SHA256) is True
    assert uploads.publish_part(tmp_path, part.name, "other", SHA256) is False
    assert not isinstance(uploads.publish_part(tmp_path, part.name, "other", "0" * 64), bool)
    os.utime(part, (1.0, 1.0))
    uploads.sweep_parts(tmp_path, 60.0)
    assert names_in(tmp_path) == ["other", NAME]


def test_a_file_that_something_refers_to_is_not_removed(tmp_path: Path):
    (tmp_path / PINNED).write_bytes(b"pinned")

    async def scenario(served: Served) -> None:
        _, shown = await served.ask("viewer", "GET", f"/images/{PINNED}")
        assert shown["pinned_by"] == [f"{RELEASE}/{PROFILE}: host.os"]
        assert "su0-n04" in shown["nodes"]
        status, refused = await upload(served, PINNED)  # the matrix pins it without a digest
        assert (status, refused["type"]) == (409, "urn:provisioner:problem:pinned")
        status, refused = await served.ask("operator", "DELETE", f"/images/{PINNED}")
        assert any("su0-n04" in b["detail"] for b in refused["blockers"])
        assert (status, "the matrix pins it" in refused["detail"]) == (409, True), refused
        tried = await served.ask("operator", "DELETE", f"/images/{PINNED}?dry_run=true")
        assert tried[1]["blockers"]
        assert (await upload(served))[0] == 200
        opened = await served.store.operations.open("su0-n04", "journey", NOW)
        taken = await served.store.operations.take(opened.id)
        await served.store.operations.intend(taken, f"write {NAME}", {"artifact": NAME}, NOW)
        status, refused = await served.ask("operator", "DELETE", f"/images/{NAME}")
        assert (status, "under way uses it" in refused["detail"]) == (409, True), refused
        assert names_in(tmp_path) == [PINNED, NAME]

    in_store(tmp_path, scenario, matrix=pin_image())


def test_another_person_approves_the_bytes_that_were_received(tmp_path: Path):
    async def scenario(served: Served) -> None:
        status, asked = await upload(served)
        assert (status, asked["state"]) == (202, "waiting")
        assert NAME not in names_in(tmp_path)
        approved = await served.ask("approver", "POST", f"/requests/{asked['id']}/approve", {})
        assert approved[0] == 200, approved
        assert names_in(tmp_path) == [NAME]
        assert read(tmp_path) == BYTES

    in_store(tmp_path, scenario, api_four_eyes=["image.put"])


def test_other_routes_keep_the_bound_of_their_bodies(tmp_path: Path):
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b'"' + b"x" * 10_000

    async def scenario(served: Served) -> None:
        answer = await served.client.patch(
            f"/v1/images/{NAME}",
            data=pieces(),
            headers={**served.key("operator"), "Content-Type": "application/json"},
        )
        assert answer.status == 413

    in_store(tmp_path, scenario)


def test_a_disk_without_room_and_a_directory_of_another_user_are_refused(tmp_path: Path):
    assert uploads.find_obstacle(tmp_path, 1, 10) is None
    promised = uploads.find_obstacle(tmp_path, 1, 10, promised_bytes=1 << 60)
    assert promised is not None
    assert (promised.status, promised.word) == (507, "room")
    absent = uploads.find_obstacle(tmp_path / "absent", 1, 10)
    assert absent is not None
    assert absent.word == "read_only"
