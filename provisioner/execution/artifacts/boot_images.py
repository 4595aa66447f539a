"""Boot images that carry the token of one boot: the same file, with the token put into its slot.

The kernel command line of our ISO has a slot of 64 characters after `ipa-agent-token=`, which the
ironic-python-agent takes its token from (config.py and agent.py of ironic-python-agent 13.0). The
file itself never changes, so that its digest is the pinned one; the token replaces the slot while
the file is read by the BMC, at an address that is valid for one boot of one node.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from provisioner.ports import Secret

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
        """Return the ticket with this id and file, or None."""
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
