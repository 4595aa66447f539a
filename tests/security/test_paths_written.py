"""Whatever a name says, nothing is read or written outside of the directory that is meant."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from served import Served
from served import run as with_api

from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.os_images import OsImages
from provisioner.integrations.playbooks import folder
from provisioner.integrations.signed_files.bundle_reading import NotABundle, unpack_bundle
from provisioner.model.agent import BundleFile as Packed
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.matrix import matrix_text
from provisioner.planning.repair.evidence_bundle import evidence_file

SECRET = b"root:$6$of-this-machine"
NAMES = (
    "../secret",
    "..",
    ".",
    "../",
    "x/../../secret",
    "/etc/passwd",
    "//etc/passwd",
    "..\\secret",
    "secret\x00",
    "\x00",
    "n" * 5000,
    "a/" * 2000,
    "\uff0e\uff0e\uff0fsecret",
    "..\u2215secret",
    "%2e%2e%2fsecret",
    "%252e%252e/secret",
    "~root/secret",
    "file:///etc/passwd",
    "directory",
    "pipe\n",
)


@pytest.fixture
def artifacts(tmp_path: Path) -> Artifacts:
    (tmp_path / "secret").write_bytes(SECRET)
    inside = tmp_path / "artifacts"
    (inside / "directory").mkdir(parents=True)
    (inside / "good.fwpkg").write_bytes(b"firmware")
    (inside / "other.fwpkg").write_bytes(b"nobody asked for it")
    (inside / "dangling").symlink_to(inside / "gone")
    (inside / "round").symlink_to(inside / "round")
    return Artifacts(inside, "http://10.0.0.2")


@pytest.mark.parametrize("name", [*NAMES, "dangling", "round"])
def test_an_artifact_is_a_file_of_its_directory(artifacts: Artifacts, name: str):
    found = asyncio.run(artifacts.resolve(name, ""))

    assert isinstance(found, Blocker)
    assert found.reason is Reason.MISSING_ARTIFACT


def test_a_link_leads_only_to_what_the_matrix_pins(artifacts: Artifacts, tmp_path: Path):
    (artifacts.directory / "link").symlink_to(tmp_path / "secret")
    found = asyncio.run(artifacts.resolve("link", hashlib.sha256(b"firmware").hexdigest()))

    assert isinstance(found, Blocker)
    assert found.reason is Reason.DIGEST_MISMATCH


async def told_by(port: int, path: str) -> tuple[int, bytes]:
    """One GET with exactly this path, which a client library would make harmless."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    try:
        writer.write(request.encode())
        async with asyncio.timeout(20):
            answer = await reader.read(1 << 20)
    finally:
        writer.close()
    return int(answer.split(b" ", 2)[1]), answer.partition(b"\r\n\r\n")[2]


def asked(app: web.Application, paths: tuple[str, ...]) -> list[tuple[int, bytes]]:
    async def scenario() -> list[tuple[int, bytes]]:
        async with TestServer(app) as server:
            return [await told_by(server.port or 0, path) for path in paths]

    return asyncio.run(scenario())


PATHS = (
    "/../secret",
    "//../secret",
    "/%2e%2e/secret",
    "/%2e%2e%2fsecret",
    "/..%2fsecret",
    "/..%5csecret",
    "/good.fwpkg/../../secret",
    "/good.fwpkg%2f..%2f..%2fsecret",
    "/good.fwpkg%00",
    "/%00",
    "//etc/passwd",
    "/%2fetc%2fpasswd",
    "/" + "n" * 5000,
    "/other.fwpkg",
    "/directory",
    "/",
)


def test_devices_fetch_what_was_verified_and_nothing_else(artifacts: Artifacts, tmp_path: Path):
    digest = hashlib.sha256(b"firmware").hexdigest()
    assert isinstance(asyncio.run(artifacts.resolve("good.fwpkg", digest)), Path)
    images = OsImages(artifacts, tmp_path / "work", "https://10.0.0.2")
    asyncio.run(images.prepare_image("good.fwpkg", digest))

    for make in (artifacts.build_application, images.build_application):
        told = asked(make(), ("/good.fwpkg", *PATHS))
        assert told[0] == (200, b"firmware")
        assert [status for status, _ in told[1:] if status not in (400, 404)] == []
        assert all(SECRET not in body for _, body in told)


def test_a_file_that_was_exchanged_after_it_was_verified_is_not_offered(artifacts: Artifacts):
    digest = hashlib.sha256(b"firmware").hexdigest()
    asyncio.run(artifacts.resolve("good.fwpkg", digest))
    (artifacts.directory / "good.fwpkg").write_bytes(b"something else")

    assert asked(artifacts.build_application(), ("/good.fwpkg",))[0][0] == 404


def test_the_api_serves_its_own_pages_and_no_other_file():
    bases = ("/v1/docs/", "/console/", "/v1/", "/")

    names = ("../app.py", "%2e%2e%2fapp.py", "..%2fapp.py", "..%5capp.py", "%2fetc%2fpasswd",
             "/etc/passwd", "../../../../../../../../etc/passwd", "%00", "docs.html%00.js",
             "n" * 4000)  # fmt: skip

    async def scenario(served: Served) -> None:
        port = served.client.port or 0
        for path in (base + name for base in bases for name in names):
            status, body = await told_by(port, path)
            assert status in (400, 401, 404), (path, status)
            assert b"import" not in body
            assert b"root:" not in body

    with_api(scenario)


@pytest.mark.parametrize("name", ["../x", "/etc/shadow", ".hidden", "a\\b", "a/b"])
def test_a_matrix_names_files_without_folders(name: str):
    text = f"""
releases:
  r:
    profiles:
      p: {{match: {{}}, pins: {{host.bios: {{version: "1", artifact: {name!r}, evidence: x}}}}}}
"""
    with pytest.raises(InputError, match="no file name"):
        matrix_text.parse([("m.yaml", text)])


any_name = st.one_of(
    st.text(max_size=60), st.sampled_from(NAMES), st.sampled_from(NAMES).map("artifacts/".__add__)
)


@settings(max_examples=60)
@given(any_name)
@example("artifacts/..")
@example("artifacts/good.fwpkg")
def test_a_file_of_a_bundle_is_one_folder_and_one_plain_name(name: str):
    try:
        path = PurePosixPath(Packed(path=name, size=1, sha256="0" * 64).path)
    except ValidationError:
        assert name != "artifacts/good.fwpkg"
        return

    assert len(path.parts) == 2
    assert not path.is_absolute()
    assert not any(part.startswith(".") for part in path.parts)
    assert name.isprintable()
    assert len(path.name.encode()) <= 255


@settings(max_examples=60)
@given(st.one_of(any_name, any_name.map("check ".__add__), any_name.map("dump ".__add__)))
def test_evidence_stays_in_its_folder_of_the_archive(name: str):
    path = PurePosixPath(evidence_file(name, "text", "", ()).path)

    assert path.parts[0] == "evidence"
    assert ".." not in path.parts
    assert str(path).isprintable()
    assert len(str(path)) <= 140
    assert len(path.parts) <= 3


Member = Callable[[tarfile.TarInfo], Any]


def _named(name: str) -> Member:
    return lambda member: setattr(member, "name", name)


def _of_kind(kind: bytes) -> Member:
    def change(member: tarfile.TarInfo) -> None:
        member.type, member.linkname = kind, "/etc/passwd"

    return change


@pytest.mark.parametrize(
    "change",
    [*(_named(n) for n in ("../x", "/etc/x", "a/../../x", "a/..", "x\n", "\x1b[2J")),
     *(_of_kind(k) for k in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE))],
)  # fmt: skip
def test_a_strangers_archive_of_a_case_is_not_opened(change: Member):
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        member = tarfile.TarInfo("evidence/x.txt")
        change(member)
        archive.addfile(member, io.BytesIO(b""))

    with pytest.raises(NotABundle):
        unpack_bundle(gzip.compress(plain.getvalue()))


def test_an_old_runs_folder_is_removed_only_where_runs_are(tmp_path: Path):
    work, outside = tmp_path / "runs", tmp_path / "outside"
    for made in (work / "old", outside / "kept", work / "deep" / "kept"):
        made.mkdir(parents=True)
    (work / "link").symlink_to(outside)
    for path in (outside, outside / "kept", work, work / "deep" / "kept", work / "link",
                 work / ".." / "outside", tmp_path, Path("/")):  # fmt: skip
        folder.remove(path, work)
    folder.remove(work / "old", work)

    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")}
    assert left == {"runs", "runs/deep", "runs/deep/kept", "runs/link", "outside", "outside/kept"}
