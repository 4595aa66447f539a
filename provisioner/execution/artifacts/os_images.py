"""Images of operating systems: verified, made raw, and offered to agents that fetch them.

An agent is given raw bytes and their digest, whatever the pinned file is: it streams them to the
disk, and no image ever meets a parser on the machine that it is written to. On the network they are
gzip where the agent asks for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import shutil
import zlib
from pathlib import Path

from aiohttp import web

from provisioner.execution.artifacts.artifacts import CHUNK_BYTES as ARTIFACTS_CHUNK_BYTES
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.erasure.deployment import ImageFile, read_range

# ------------------------------------------------------------------------------
# Convert qcow2 images into raw ones with qemu-img, so that an agent only receives raw bytes.
#
# The digest of the file was checked before, so it is the file that a person pinned. It is a foreign
# format all the same: `qemu-img info` reads it first, and an image that refers to other files
# (backing file, external data), is encrypted or marked corrupt is refused, since qemu-img would
# open the files that the image names. Both calls run under limits of memory, CPU time and file
# size, as OpenStack does after CVE-2015-5162 and CVE-2024-32498.


MAGIC = b"QFI\xfb"
SIZE_MAX_BYTES = 1 << 40  # 1 TiB: no image of an operating system is near it
_MEMORY_MAX_BYTES = 2 << 30  # OpenStack gives `info` 1 GiB; a conversion needs buffers beside
_INFO_CPU_S = 30  # OpenStack's own limit
_CONVERT_CPU_S = 3600  # 1 TiB at 300 MB/s; images are a hundred times smaller
_MESSAGE_CHARS = 200
_MISSING = "qemu-img is not installed on this machine (Debian: apt-get install qemu-utils)"


class NotReadable(Exception):
    """The file is not a qcow2 image that can be converted here."""


def is_qcow2(path: Path) -> bool:
    """Return whether the file begins as a qcow2 image does, regardless of its name."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


async def convert_to_raw(source: Path, target: Path) -> int:
    """Convert `source` to a sparse raw file at `target` and return its size in bytes.

    Raises `NotReadable`, with the reason, for an image that is refused or cannot be read.
    """
    size = _check(await _run(["info", "--output=json", "-f", "qcow2"], source, _INFO_CPU_S, 0))
    convert = ["convert", "-f", "qcow2", "-O", "raw"]
    await _run(convert, source, _CONVERT_CPU_S, size, target)
    written = await asyncio.to_thread(_sync, target)
    if written != size:
        raise NotReadable(f"qemu-img wrote {written} bytes instead of {size}")
    return size


def _check(output: bytes) -> int:
    """Return the virtual size in bytes, of an image that stands alone."""
    try:
        image = json.loads(output)
        size = int(image["virtual-size"])
    except (ValueError, KeyError, TypeError):
        raise NotReadable("qemu-img describes it in a way that is not understood") from None
    specific = image.get("format-specific", {}).get("data", {})
    for problem, present in {
        "it needs a backing file": "backing-filename" in image,
        "it keeps its data in another file": "data-file" in specific,
        "it is encrypted": image.get("encrypted") or "encrypt" in specific,
        "it is marked as corrupt": specific.get("corrupt"),
        f"its size of {size} bytes is out of bounds": not 0 < size <= SIZE_MAX_BYTES,
    }.items():
        if present:
            raise NotReadable(problem)
    return size


async def _run(
    arguments: list[str], source: Path, cpu_s: int, written_max: int, *target: Path
) -> bytes:
    program = shutil.which("qemu-img")
    limiter = shutil.which("prlimit")
    if program is None or limiter is None:
        raise NotReadable(_MISSING)
    process = await asyncio.create_subprocess_exec(
        limiter,
        f"--as={_MEMORY_MAX_BYTES}",
        f"--cpu={cpu_s}",
        f"--fsize={written_max}",
        "--core=0",
        program,
        *arguments,
        # absolute, so that no part of a name is taken for a protocol or an option
        *(str(path.resolve()) for path in (source, *target)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": os.defpath, "LC_ALL": "C"},
    )
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode != 0:
        message = errors.decode("utf-8", "replace").strip() or f"exit code {process.returncode}"
        raise NotReadable(f"qemu-img: {message.replace(str(source.parent), '')[:_MESSAGE_CHARS]}")
    return output


def _sync(path: Path) -> int:
    """Flush the file to the disk and return its size in bytes."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


# ------------------------------------------------------------------------------
# Images as gzip: pinned ones are unpacked, and raw ones are packed once for all nodes.
#
# An image of an operating system is mostly zeroes. The agent fetches it over HTTP, and its client
# (requests) asks for gzip and unpacks it before the digest is computed, so that the bytes on the
# disk, and their proof, are the same (ironic-python-agent 13.0.0, extensions/standby.py,
# ImageDownload). Zeroes then cost a thousandth on the network, for each of a hundred nodes.


PACKED_IMAGES_MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 20
_GZIP = 31  # zlib.h: 15 bits of window, and 16 for the format of gzip
_LEVEL = 1  # zeroes at 700 MB/s; stronger levels cost times as much for a tenth less
# a packed image over this share of the raw one is not worth the agent's time to unpack it
_WORTH = 0.9


def is_gzip(path: Path) -> bool:
    """Return whether the file begins as a gzip file does, regardless of its name."""
    with path.open("rb") as file:
        return file.read(len(PACKED_IMAGES_MAGIC)) == PACKED_IMAGES_MAGIC


def unpack_image(source: Path, target: Path) -> int:
    """Unpack a gzip file into a sparse raw file; return its size. Raises NotReadable, OSError."""
    unpacker = zlib.decompressobj(_GZIP)
    size = 0
    with source.open("rb") as packed, target.open("wb") as raw:
        try:
            while chunk := unpacker.unconsumed_tail or packed.read(CHUNK_BYTES):
                data = unpacker.decompress(chunk, CHUNK_BYTES)
                size += len(data)
                if size > SIZE_MAX_BYTES:
                    raise NotReadable(f"it unpacks to more than {SIZE_MAX_BYTES} bytes")
                _write_sparse(raw.fileno(), data)
                if unpacker.eof:
                    break
        except zlib.error as error:
            raise NotReadable(f"it is no sound gzip file: {error}") from None
        if not unpacker.eof:
            raise NotReadable("it is cut off")
        if unpacker.unused_data or packed.read(1):
            raise NotReadable("bytes follow its end; only one gzip member is read")
        raw.truncate(size)
        os.fsync(raw.fileno())
    return size


def _write_sparse(handle: int, data: bytes) -> None:
    """Write, leaving a hole for a block of zeroes."""
    if data.strip(b"\0"):
        os.write(handle, data)
    else:
        os.lseek(handle, len(data), os.SEEK_CUR)


def pack_image(raw: Path, target: Path) -> bool:
    """Write the raw image as gzip, unless that is hardly smaller; return whether it is there.

    A file that is there already is not made again: the agent verifies its content in any case.
    """
    if target.exists():
        return True
    unfinished = target.with_suffix(".part")
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    limit = raw.stat().st_size * _WORTH
    with raw.open("rb") as file, unfinished.open("wb") as packed:
        while chunk := file.read(CHUNK_BYTES):
            packed.write(packer.compress(chunk))
            if packed.tell() > limit:
                break
        else:
            packed.write(packer.flush())
            unfinished.replace(target)
            return True
    unfinished.unlink()
    return False


log = logging.getLogger(__name__)


class OsImages:
    """`work` keeps raw copies of qcow2 images; `url` is where agents fetch from, over HTTPS."""

    def __init__(self, artifacts: Artifacts, work: Path, url: str = "") -> None:
        self.url = url.rstrip("/")
        self._artifacts = artifacts
        self._work = work
        self._ready: dict[tuple[str, int, int], tuple[Path, ImageFile]] = {}
        self._served: dict[str, Path] = {}
        self._packed: dict[str, Path] = {}
        self._turn = asyncio.Lock()  # one conversion at a time: they are large

    async def prepare_image(self, name: str, sha256: str) -> ImageFile | Blocker:
        """Return the raw image of an artifact, offered from now on; or why it may not be used."""
        path = await self._artifacts.resolve(name, sha256)
        if isinstance(path, Blocker):
            return path
        stat = path.stat()
        key = (name, stat.st_size, stat.st_mtime_ns)
        async with self._turn:
            if key not in self._ready:
                try:
                    self._ready[key] = await self._make(path, stat.st_size, sha256)
                except (NotReadable, OSError) as error:
                    return _unusable(name, str(error))
                await self._pack(*self._ready[key])
            file, image = self._ready[key]
        self._served[image.name] = file
        return image.model_copy(update={"url": f"{self.url}/{image.name}"})

    async def _make(self, path: Path, size: int, sha256: str) -> tuple[Path, ImageFile]:
        is_packed = is_gzip(path)
        if not is_packed and not is_qcow2(path):
            whole, checked = await asyncio.to_thread(_digests, path, size)
            assert not sha256 or whole == sha256
            return path, ImageFile(name=path.name, url="", size=size, sha256=whole, checked=checked)
        self._work.mkdir(parents=True, exist_ok=True)
        raw = self._work / f"{sha256 or path.stem}.raw"
        unfinished = raw.with_suffix(".part")
        if is_packed:
            size = await asyncio.to_thread(unpack_image, path, unfinished)
        else:
            size = await convert_to_raw(path, unfinished)
        whole, checked = await asyncio.to_thread(_digests, unfinished, size)
        unfinished.replace(raw)
        return raw, ImageFile(name=raw.name, url="", size=size, sha256=whole, checked=checked)

    async def _pack(self, file: Path, image: ImageFile) -> None:
        """Make the file that goes over the network; without room for it, the raw one does."""
        packed = self._work / f"{image.sha256}.gz"
        try:
            self._work.mkdir(parents=True, exist_ok=True)
            if await asyncio.to_thread(pack_image, file, packed):
                self._packed[image.name] = packed
        except OSError as error:
            log.warning("%s is served without compression: %s", image.name, error)

    def build_application(self) -> web.Application:
        """Return a read-only application that serves prepared images only."""
        app = web.Application()
        app.router.add_get("/{name}", self._serve)
        return app

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = self._served.get(request.match_info["name"])
        if path is None:
            raise web.HTTPNotFound
        packed = self._packed.get(request.match_info["name"])
        if packed is None or "gzip" not in request.headers.get("Accept-Encoding", "").lower():
            return web.FileResponse(path)
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/octet-stream"}
        return web.FileResponse(packed, headers=headers)


def _digests(path: Path, size: int) -> tuple[str, str]:
    """Return the SHA-256 of the whole file, and of the range that is read back from the disk."""
    start, length = read_range(size)
    whole = hashlib.sha256()
    checked = hashlib.sha256()
    with path.open("rb") as file:
        at = 0
        while chunk := file.read(ARTIFACTS_CHUNK_BYTES):
            whole.update(chunk)
            first = max(start - at, 0)
            last = min(start + length - at, len(chunk))
            if first < last:
                checked.update(chunk[first:last])
            at += len(chunk)
    return whole.hexdigest(), checked.hexdigest()


def _unusable(name: str, detail: str) -> Blocker:
    return Blocker(
        reason=Reason.MALFORMED,
        subject=name,
        detail=f"the image cannot be used: {detail}",
        unblock="Pin a raw image, one as gzip, or a qcow2 image that stands alone, and install "
        "qemu-utils here.",
    )
