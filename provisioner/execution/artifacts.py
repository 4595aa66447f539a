"""The files that are installed: found by name, verified by digest, offered to BMCs that pull.

Rule: nothing is sent or served that is not exactly what the matrix pins.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from aiohttp import web

from provisioner.model.outcome import Blocker, Reason

CHUNK_BYTES = 1024 * 1024


class Artifacts:
    """A directory of firmware files. `url` is where BMCs, hosts and switches may pull them."""

    def __init__(self, directory: Path, url: str = "") -> None:
        self.directory = directory
        self.url = url.rstrip("/")
        self._verified: dict[tuple[str, int, int, int], str] = {}
        self._served: set[str] = set()

    async def resolve(self, name: str, sha256: str) -> Path | Blocker:
        """The verified file, or why it may not be used. The digest is computed once per file."""
        if not name:
            return Blocker(
                reason=Reason.MISSING_ARTIFACT,
                subject="(no file)",
                detail="the matrix names no file to install it from",
                unblock="Add `artifact` and `sha256` to the edge or pin (an overlay will do).",
            )
        path = self.directory / name
        if Path(name).name != name or not path.is_file():
            return Blocker(
                reason=Reason.MISSING_ARTIFACT,
                subject=name,
                detail=f"no such file in {self.directory}",
                unblock="Download it from the vendor and put it into the artifact directory.",
            )
        stat = path.stat()
        key = (name, stat.st_ino, stat.st_size, stat.st_mtime_ns)
        if key not in self._verified:
            self._verified[key] = await asyncio.to_thread(_sha256, path)
        if sha256 and self._verified[key] != sha256:
            return Blocker(
                reason=Reason.DIGEST_MISMATCH,
                subject=name,
                detail=f"its SHA-256 is {self._verified[key]}, the matrix pins {sha256}",
                unblock="Download it again; if it is right, correct the digest in the matrix.",
            )
        self._served.add(name)
        return path

    def pull_url(self, name: str) -> str:
        """Where a device fetches a file that was resolved before."""
        return f"{self.url}/{name}"

    def application(self) -> web.Application:
        """A read-only HTTP application that serves resolved files, and nothing else."""
        app = web.Application()
        # BlueField's BMC takes a server and a path with a slash of its own (facts: redfish 3.3)
        app.router.add_get(r"/{extra:/?}{name:[^/]+}", self._serve)
        return app

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in self._served:
            raise web.HTTPNotFound
        return web.FileResponse(self.directory / name)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
