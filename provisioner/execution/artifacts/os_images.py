"""Images of operating systems: verified, made raw, and offered to agents that fetch them.

An agent is given raw bytes and their digest, whatever the pinned file is: it streams them to the
disk, and no image ever meets a parser on the machine that it is written to. On the network they are
gzip where the agent asks for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from pathlib import Path

from aiohttp import web

from provisioner.execution.artifacts.artifacts import CHUNK_BYTES, Artifacts
from provisioner.execution.artifacts.image_conversion import NotReadable, convert_to_raw, is_qcow2
from provisioner.execution.artifacts.packed_images import is_gzip, pack_image, unpack_image
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.erasure.deployment import ImageFile, read_range

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
        while chunk := file.read(CHUNK_BYTES):
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
