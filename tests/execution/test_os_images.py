"""Images become raw bytes with digests: qcow2 read as QEMU reads it, everything else refused."""

from __future__ import annotations

import asyncio
import hashlib
import random
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from provisioner.execution import qcow2
from provisioner.execution.artifacts import Artifacts
from provisioner.execution.os_images import OsImages
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.deployment import MIB, ImageFile, read_range

CLUSTER_BITS = 16
CLUSTER = 1 << CLUSTER_BITS


def content(size: int, seed: int = 1) -> bytes:
    """Random data with holes, as images have them."""
    rng = random.Random(seed)
    return b"".join(
        rng.randbytes(CLUSTER) if rng.random() < 0.5 else bytes(CLUSTER)
        for _ in range(size // CLUSTER)
    )


def hand_made(data: bytes, *, compressed: bool = False, **changes: int) -> bytes:
    """A small qcow2 image (version 3), made by the format's description."""
    clusters = [data[i : i + CLUSTER] for i in range(0, len(data), CLUSTER)]
    entries, body, at = [], b"", 3 * CLUSTER
    for cluster in clusters:
        if cluster == bytes(CLUSTER):
            entries.append(1)  # reads as zero
            continue
        packed = cluster
        if compressed:
            packer = zlib.compressobj(9, zlib.DEFLATED, -12)
            packed = packer.compress(cluster) + packer.flush()
            sectors = (at % 512 + len(packed) - 1) // 512
            entries.append(1 << 62 | sectors << (62 - (CLUSTER_BITS - 8)) | at)
        else:
            entries.append(1 << 63 | at)
        body += packed
        at += len(packed)
    fields = {"magic": int.from_bytes(qcow2.MAGIC), "version": 3, "backing": 0, "bits": 16}
    fields |= {"size": len(data), "crypt": 0, "l1": 1, "features": 0, **changes}
    head = struct.pack(
        ">IIQIIQIIQQIIQQQQII",
        fields["magic"], fields["version"], fields["backing"], 0, fields["bits"], fields["size"],
        fields["crypt"], fields["l1"], CLUSTER, 0, 0, 0, 0, fields["features"], 0, 0, 4, 104,
    )  # fmt: skip
    first = struct.pack(">Q", 1 << 63 | 2 * CLUSTER)
    second = struct.pack(f">{len(entries)}Q", *entries)
    return (
        head.ljust(CLUSTER, b"\0")
        + first.ljust(CLUSTER, b"\0")
        + second.ljust(CLUSTER, b"\0")
        + body
    )


def prepared(directory: Path, name: str, data: bytes, sha256: str = "") -> ImageFile | Blocker:
    (directory / name).write_bytes(data)
    images = OsImages(Artifacts(directory), directory / "work", "https://d/images")
    digest = sha256 or hashlib.sha256(data).hexdigest()
    return asyncio.run(images.prepare(name, digest))


@pytest.mark.parametrize("compressed", [False, True])
def test_a_qcow2_image_is_offered_as_the_raw_bytes_in_it(tmp_path: Path, compressed: bool) -> None:
    data = content(80 * CLUSTER)
    rng = random.Random(2)
    if compressed:  # so that there is something to compress
        data = b"".join(bytes([rng.randrange(1, 99)]) * CLUSTER for _ in range(80))

    found = prepared(tmp_path, "os.qcow2", hand_made(data, compressed=compressed))

    assert isinstance(found, ImageFile)
    start, length = read_range(len(data))
    assert (found.size, found.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert found.checked == hashlib.sha256(data[start : start + length]).hexdigest()
    assert (tmp_path / "work" / found.name).read_bytes() == data
    assert found.url == f"https://d/images/{found.name}"


@pytest.mark.skipif(
    shutil.which("qemu-img") is None, reason="no qemu-img: apt-get install qemu-utils"
)
@pytest.mark.parametrize("options", [["-c"], [], ["-o", "cluster_size=4096"]])
def test_what_qemu_writes_is_read_as_qemu_reads_it(tmp_path: Path, options: list[str]) -> None:
    data = content(96 * CLUSTER, seed=3) + bytes(5 * 512)
    (tmp_path / "raw").write_bytes(data)
    made = tmp_path / "made.qcow2"
    command = ["qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, "raw", made.name]
    subprocess.run(command, cwd=tmp_path, check=True)

    found = prepared(tmp_path, "os.qcow2", made.read_bytes())

    assert isinstance(found, ImageFile)
    assert found.sha256 == hashlib.sha256(data).hexdigest()


def test_a_raw_image_is_offered_as_it_is(tmp_path: Path) -> None:
    data = content(6 * MIB)

    found = prepared(tmp_path, "os.raw", data)

    assert isinstance(found, ImageFile)
    assert (found.name, found.size) == ("os.raw", len(data))


GOOD = hand_made(content(4 * CLUSTER))
REFUSED = {
    "another digest": (GOOD, "0" * 64, Reason.DIGEST_MISMATCH),
    "a backing file": (hand_made(b"\1" * CLUSTER, backing=4096), "", Reason.MALFORMED),
    "encryption": (hand_made(b"\1" * CLUSTER, crypt=2), "", Reason.MALFORMED),
    "external data": (hand_made(b"\1" * CLUSTER, features=4), "", Reason.MALFORMED),
    "extended L2 entries": (hand_made(b"\1" * CLUSTER, features=16), "", Reason.MALFORMED),
    "another version": (hand_made(b"\1" * CLUSTER, version=7), "", Reason.MALFORMED),
    "a size beyond reason": (hand_made(b"\1" * CLUSTER, size=1 << 60), "", Reason.MALFORMED),
    "a first table too short": (hand_made(b"\1" * CLUSTER, size=1 << 34), "", Reason.MALFORMED),
    "a cut-off table": (GOOD[: 2 * CLUSTER + 9], "", Reason.MALFORMED),
    "a cut-off header": (GOOD[:20], "", Reason.MALFORMED),
    "clusters that do not unpack": (
        hand_made(b"\1" * CLUSTER, compressed=True)[: 3 * CLUSTER] + b"\xff" * 600,
        "",
        Reason.MALFORMED,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_image_is_refused_with(tmp_path: Path, case: str) -> None:
    data, sha256, reason = REFUSED[case]

    found = prepared(tmp_path, "os.qcow2", data, sha256)

    assert isinstance(found, Blocker)
    assert found.reason is reason
