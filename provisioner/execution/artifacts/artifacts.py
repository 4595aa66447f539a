"""The files that are installed: found by name, verified by digest, offered to BMCs that pull.

Only files that match the matrix's pins exactly are sent or served.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import stat as stat_bits
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.watch.outside_files import make_unnamed_blocker
from provisioner.ports import Secret
from provisioner.runtime.bounded_listener import hear_requests

# ------------------------------------------------------------------------------
# Boot images that carry the token of one boot: the same file, with the token put into its slot.
#
# The kernel command line of our ISO has a slot of 64 characters after `ipa-agent-token=`, which the
# ironic-python-agent takes its token from (config.py and agent.py of ironic-python-agent 13.0). The
# file itself never changes, so that its digest is the pinned one; the token replaces the slot while
# the file is read by the BMC, at an address that is valid for one boot of one node.


# `images/iso.py` has the same words: `tests/images` holds the two equal
SLOT = b"provisioner-boot-token-slot-000000000000000000000000000000000000"
CHUNK_BYTES = 1024 * 1024
SLOTS_MAX = 16  # of one image: its boot loaders have two
TICKETS_MAX = 4096  # boots of nodes that are under way at once; the oldest make room


@dataclass(frozen=True)
class Ticket:
    """One boot of one node: the file, where its slots are, and the token that goes into them."""

    id: str
    name: str
    slots: tuple[int, ...]
    token: Secret


class BootTickets:
    """The boots that are under way in this process, by node."""

    def __init__(self) -> None:
        self._by_node: dict[str, Ticket] = {}

    def issue(self, node: str, name: str, slots: tuple[int, ...], token: Secret) -> Ticket:
        """Return a ticket for one boot; the one before it is void."""
        assert len(token.reveal()) == len(SLOT), "a token fills its slot"
        self._by_node.pop(node, None)
        while len(self._by_node) >= TICKETS_MAX:
            del self._by_node[next(iter(self._by_node))]
        ticket = Ticket(secrets.token_hex(16), name, slots, token)
        self._by_node[node] = ticket
        return ticket

    def withdraw_ticket(self, node: str) -> None:
        """End the boot of a node: its address gives nothing any more."""
        self._by_node.pop(node, None)

    def find(self, ticket_id: str, name: str) -> Ticket | None:
        for ticket in self._by_node.values():
            if secrets.compare_digest(ticket.id.encode(), ticket_id.encode()):
                return ticket if ticket.name == name else None
        return None


def find_slots(path: Path) -> tuple[int, ...]:
    """Return the offsets of the token slots in a file, in order; () if it has none."""
    slots: list[int] = []
    with path.open("rb") as file:
        # `at`: offset of the first byte of `kept`
        carried = b""
        at = 0
        while chunk := file.read(CHUNK_BYTES):
            window = carried + chunk
            start = window.find(SLOT)
            while start >= 0 and len(slots) < SLOTS_MAX:
                slots.append(at + start)
                start = window.find(SLOT, start + len(SLOT))
            tail = min(len(window), len(SLOT) - 1)
            carried = window[len(window) - tail :]
            at = at + len(window) - tail
    return tuple(slots)


def fill_slots(piece: bytes, offset: int, slots: Sequence[int], token: bytes) -> bytes:
    """Return a piece of a file that begins at `offset`, with the token in place of its slots."""
    filled = bytearray(piece)
    for slot in slots:
        first = max(slot, offset)
        last = min(slot + len(token), offset + len(piece))
        if first < last:
            filled[first - offset : last - offset] = token[first - slot : last - slot]
    return bytes(filled)


async def serve_ticket(request: web.Request, path: Path, ticket: Ticket) -> web.StreamResponse:
    """Send the file, or the range that is asked for, with the token in its slots."""
    size = (await asyncio.to_thread(path.stat)).st_size
    try:
        requested = request.http_range
    except ValueError:
        raise web.HTTPRequestRangeNotSatisfiable from None
    start, stop = _bounds(requested, size)
    partial = requested.start is not None or requested.stop is not None
    if partial and start >= stop:
        raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{size}"})
    response = web.StreamResponse(status=206 if partial else 200)
    response.content_type = "application/octet-stream"
    response.content_length = stop - start
    response.headers["Accept-Ranges"] = "bytes"
    response.headers["Cache-Control"] = "no-store"
    if partial:
        response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    await response.prepare(request)
    if request.method != "HEAD":
        token = ticket.token.reveal().encode()
        pieces = _read(path, start, stop)
        offset = start
        while piece := await asyncio.to_thread(next, pieces, b""):
            await response.write(fill_slots(piece, offset, ticket.slots, token))
            offset += len(piece)
    await response.write_eof()
    return response


def _bounds(asked: slice, size: int) -> tuple[int, int]:
    if asked.start is not None and asked.start < 0:  # the last bytes
        return max(0, size + asked.start), size
    stop = size if asked.stop is None else min(asked.stop, size)
    return asked.start or 0, stop


def _read(path: Path, start: int, stop: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while start < stop and (piece := file.read(min(CHUNK_BYTES, stop - start))):
            start += len(piece)
            yield piece


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
        """The verified file, or why it may not be used. The digest is computed once per file."""
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
        """Verify a file as `offer` does, for a device that may pull since before this start."""
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
        app = web.Application(middlewares=[web.middleware(hear_requests)])
        # BlueField's BMC takes a server and a path with a slash of its own
        # (docs/sources/redfish.md#bf-uri)
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
