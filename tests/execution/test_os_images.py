"""Images become raw bytes with digests: qcow2 by qemu-img under limits, what it refuses refused."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import requests
from aiohttp.test_utils import TestServer

from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.execution.artifacts.os_images import OsImages
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.erasure.deployment import MIB, ImageFile, read_range

CLUSTER = 1 << 16
needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-img") is None, reason="no qemu-img: apt-get install qemu-utils"
)


def content(size: int, seed: int = 1) -> bytes:
    """Random data with holes, as images have them."""
    rng = random.Random(seed)
    return b"".join(
        rng.randbytes(CLUSTER) if rng.random() < 0.5 else bytes(CLUSTER)
        for _ in range(size // CLUSTER)
    )


def made_by_qemu(directory: Path, data: bytes, *options: str) -> bytes:
    """A qcow2 image of the data."""
    (directory / "raw").write_bytes(data)
    command = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, "raw", "made"]
    subprocess.run(command, cwd=directory, check=True)
    return (directory / "made").read_bytes()


def prepared(directory: Path, name: str, data: bytes, sha256: str = "") -> ImageFile | Blocker:
    (directory / name).write_bytes(data)
    images = OsImages(Artifacts(directory), directory / "work", "https://d/images")
    digest = sha256 or hashlib.sha256(data).hexdigest()
    return asyncio.run(images.prepare_image(name, digest))


@needs_qemu
@pytest.mark.parametrize("options", [["-c"], [], ["-o", "cluster_size=4096"]])
def test_a_qcow2_image_is_offered_as_its_raw_bytes(tmp_path: Path, options: list[str]) -> None:
    data = content(96 * CLUSTER, seed=3) + bytes(5 * 512)

    image = prepared(tmp_path, "os.qcow2", made_by_qemu(tmp_path, data, *options))

    assert isinstance(image, ImageFile)
    start, length = read_range(len(data))
    assert (image.size, image.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert image.checked == hashlib.sha256(data[start : start + length]).hexdigest()
    assert (tmp_path / "work" / image.name).read_bytes() == data
    assert image.url == f"https://d/images/{image.name}"


def test_a_raw_image_is_offered_as_it_is(tmp_path: Path) -> None:
    data = content(6 * MIB)

    image = prepared(tmp_path, "os.raw", data)

    assert isinstance(image, ImageFile)
    assert (image.name, image.size) == ("os.raw", len(data))


def test_a_raw_image_as_gzip_is_offered_as_its_raw_bytes(tmp_path: Path) -> None:
    data = content(MIB) + bytes(3 * MIB) + b"end"

    image = prepared(tmp_path, "os.raw.gz", gzip.compress(data))

    assert isinstance(image, ImageFile)
    raw = tmp_path / "work" / image.name
    assert (image.size, image.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert raw.read_bytes() == data
    assert raw.stat().st_blocks * 512 < len(data) - MIB, "zeroes are holes"


NO_GZIP: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda data: data[:-9],
    "damaged": lambda data: data[:40] + b"\0\0\0\0" + data[44:],
    "followed by more": lambda data: data + b"more",
}


@pytest.mark.parametrize("case", NO_GZIP)
def test_a_gzip_file_is_refused_that_is(tmp_path: Path, case: str) -> None:
    answer = prepared(tmp_path, "os.raw.gz", NO_GZIP[case](gzip.compress(content(MIB))))

    assert isinstance(answer, Blocker)
    assert answer.reason is Reason.MALFORMED


@pytest.mark.parametrize(("share", "is_packed"), [(0.1, True), (1.0, False)])
def test_the_agents_client_gets_few_bytes_and_reads_the_whole_image(
    tmp_path: Path, share: float, is_packed: bool
) -> None:
    """The agent fetches with requests, which asks for gzip, and hashes what it has unpacked."""
    size = int(4 * MIB * share)
    data = random.Random(7).randbytes(size) + bytes(4 * MIB - size)
    (tmp_path / "os.raw").write_bytes(data)
    images = OsImages(Artifacts(tmp_path), tmp_path / "work", "https://d/images")

    async def fetch(**headers: str) -> requests.Response:
        async with TestServer(images.build_application()) as server:
            url = str(server.make_url("/os.raw"))
            return await asyncio.to_thread(requests.get, url, headers=headers, timeout=30)

    asyncio.run(images.prepare_image("os.raw", hashlib.sha256(data).hexdigest()))
    as_agent = asyncio.run(fetch())
    as_other = asyncio.run(fetch(**{"Accept-Encoding": "identity"}))

    assert as_agent.content == as_other.content == data
    assert int(as_other.headers["Content-Length"]) == len(data)
    assert (int(as_agent.headers["Content-Length"]) < len(data) / 5) is is_packed


def written(offset: int, value: int, length: int) -> Callable[[bytes], bytes]:
    """Changes one field of the header (QEMU, docs/interop/qcow2.rst)."""
    field = value.to_bytes(length, "big")
    return lambda data: data[:offset] + field + data[offset + length :]


REFUSED: dict[str, Callable[[bytes], bytes]] = {
    "another version": written(4, 7, 4),
    "encryption without a key": written(32, 1, 4),
    "external data": written(72, 4, 8),
    "an unknown feature": written(72, 1 << 40, 8),
    "a corruption mark": written(72, 2, 8),
    "a size beyond reason": written(24, 1 << 42, 8),
    "a first table too short": written(36, 0, 4),
    "a cut-off header": lambda data: data[:20],
}


@needs_qemu
@pytest.mark.parametrize("case", REFUSED)
def test_an_image_is_refused_with(tmp_path: Path, case: str) -> None:
    image = made_by_qemu(tmp_path, content(4 * CLUSTER, seed=5), "-o", "preallocation=metadata")

    answer = prepared(tmp_path, "os.qcow2", REFUSED[case](image))

    assert isinstance(answer, Blocker)
    assert answer.reason is Reason.MALFORMED


def test_an_image_with_another_digest_is_refused(tmp_path: Path) -> None:
    answer = prepared(tmp_path, "os.raw", content(6 * MIB), "0" * 64)

    assert isinstance(answer, Blocker)
    assert answer.reason is Reason.DIGEST_MISMATCH


@needs_qemu
def test_an_image_with_a_backing_file_is_refused(tmp_path: Path) -> None:
    """It may name any file of the daemon's machine, which qemu-img would copy into the image."""
    (tmp_path / "secret").write_bytes(b"s" * CLUSTER)
    command = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", "secret", "made"]
    subprocess.run(command, cwd=tmp_path, check=True)

    answer = prepared(tmp_path, "os.qcow2", (tmp_path / "made").read_bytes())

    assert isinstance(answer, Blocker)
    assert "backing file" in answer.detail


def test_without_qemu_a_qcow2_image_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    answer = prepared(tmp_path, "os.qcow2", b"QFI\xfb" + bytes(CLUSTER))

    assert isinstance(answer, Blocker)
    assert "apt-get install qemu-utils" in answer.detail
