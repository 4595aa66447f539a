"""The files that are installed: found by name, verified by digest, offered to BMCs that pull.

Only files that match the matrix's pins exactly are sent or served.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat as stat_bits
from pathlib import Path

from aiohttp import web

from provisioner.execution.artifacts.boot_images import BootTickets, find_slots, serve_ticket
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.watch.outside_files import make_unnamed_blocker
from provisioner.ports import Secret

CHUNK_BYTES = 1024 * 1024
Verified = tuple[str, int, int, int]  # a file's name, inode, size and time of its last change


class Artifacts:
    """A directory of firmware files. `url` is where BMCs, hosts and switches may pull them.

    `outside_artifacts.py` has the other kind: files that a server outside of us offers.
    """

    ask_max_s = 0.0  # longest that `confirm` may take

    def __init__(self, directory: Path, url: str = "") -> None:
        self.directory = directory
        self.url = url.rstrip("/")
        self._verified: dict[Verified, str] = {}
        self._served: dict[str, Verified] = {}
        self._slots: dict[Verified, tuple[int, ...]] = {}
        self.boots = BootTickets()

    async def resolve(self, name: str, sha256: str) -> Path | Blocker:
        """Return the verified file, or why it may not be used. The digest is computed once per
        file.
        """
        if not name:
            return make_unnamed_blocker(name)
        path = self.directory / name
        stat = _file_stat(path) if Path(name).name == name else None
        if stat is None:
            return Blocker(
                reason=Reason.MISSING_ARTIFACT,
                subject=name,
                detail=f"no such file in {self.directory}",
                unblock="Download it from the vendor and put it into the artifact directory.",
            )
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
        self._served[name] = key
        return path

    async def offer_file(self, name: str, sha256: str) -> Blocker | None:
        """Verify a file that a device is to pull; None: the device may get its address."""
        resolved = await self.resolve(name, sha256)
        return resolved if isinstance(resolved, Blocker) else None

    async def renew_offer(self, name: str, sha256: str) -> Blocker | None:
        """Verify a file as `offer` does, for a device that may have begun to pull before this
        start.
        """
        return await self.offer_file(name, sha256)

    async def confirm_offer(
        self, name: str, sha256: str, *, doubled: bool = False
    ) -> Blocker | None:
        """Return None: a file served from here needs no last check before a device gets its
        address.

        Each request is compared with the verified file when it is served.
        """
        return None

    def digest(self, name: str) -> str:
        """Return the SHA-256 of a file that was resolved before."""
        return self._verified[self._served[name]]

    def pull_url(self, name: str) -> str:
        """Return where a device fetches a file that was offered before."""
        return f"{self.url}/{name}"

    async def takes_token(self, name: str) -> bool:
        """Return whether a boot image that was offered before has a slot for a token."""
        verified = self._served[name]
        if verified not in self._slots:
            self._slots[verified] = await asyncio.to_thread(find_slots, self.directory / name)
        return bool(self._slots[verified])

    async def carries_slot(self, name: str) -> bool | None:
        """Return whether a file that devices get has a slot for a token; None: it is not there."""
        path = self.directory / name
        if _file_stat(path) is None:
            return None
        return bool(await asyncio.to_thread(find_slots, path))

    def boot_url(self, node: str, name: str, token: Secret) -> str:
        """Return where the BMC of a node fetches an image that carries the token of this boot."""
        ticket = self.boots.issue(node, name, self._slots[self._served[name]], token)
        return f"{self.url}/boot/{ticket.id}/{name}"

    def build_application(self) -> web.Application:
        """Return a read-only HTTP application that serves resolved files, and nothing else."""
        app = web.Application()
        # BlueField's BMC takes a server and a path with a slash of its own (facts: redfish 3.3)
        app.router.add_get(r"/{extra:/?}{name:[^/]+}", self._serve)
        app.router.add_get(r"/boot/{ticket:[0-9a-f]{32}}/{name:[^/]+}", self._serve_boot)
        return app

    async def _serve_boot(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        ticket = self.boots.find(request.match_info["ticket"], name)
        if ticket is None:
            raise web.HTTPNotFound
        return await serve_ticket(request, self._find_served(name), ticket)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        return web.FileResponse(self._find_served(request.match_info["name"]))

    def _find_served(self, name: str) -> Path:
        """Return a file that was resolved and is still the same; raises HTTPNotFound."""
        path = self.directory / name
        verified = self._served.get(name)
        stat = None if verified is None else _file_stat(path)
        # exchanged since it was verified: `resolve` has to verify it again before it is served
        if stat is None or verified != (name, stat.st_ino, stat.st_size, stat.st_mtime_ns):
            raise web.HTTPNotFound
        return path


def _file_stat(path: Path) -> os.stat_result | None:
    """Return a file's status; None if it is no regular file or cannot be one: a name with a NUL, or
    of 5,000 letters.
    """
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status if stat_bits.S_ISREG(status.st_mode) else None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
