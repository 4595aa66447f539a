"""Frames between the daemon and its process for events, over one pair of sockets.

A frame is a head of fixed size, a name and a body. Frames of the other process are bounded
here: that one reads the bytes of strangers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

_HEAD = struct.Struct(">BIHHI")  # kind, number, status, bytes of the name, bytes of the body
NAME_MAX = 64  # bytes of a subscription's id
FRAME_BODY_MAX = 2 * 1024 * 1024  # bytes: an event's
OUTSTANDING_MAX = 32  # events that are on their way to the daemon, or being taken by it


class FrameKind(IntEnum):
    """The kind of a frame."""

    START = 1  # to the process: its settings, as JSON, and its key
    LISTENS = 2  # from it: the number is its port; the body says why not, with a status
    EVENT = 3  # from it: the subscription's id, and the document
    ANSWER = 4  # to it: the status for the event of that number
    DROPPED = 5  # from it: an event of this id was not taken; without a name: of any


@dataclass(frozen=True)
class Frame:
    """One message; `number` pairs an answer with its event."""

    kind: FrameKind
    number: int = 0
    status: int = 0
    name: bytes = b""
    body: bytes = b""

    def encode(self) -> bytes:
        """Return its bytes."""
        head = _HEAD.pack(self.kind, self.number, self.status, len(self.name), len(self.body))
        return head + self.name + self.body


class FrameReader:
    """Puts frames together from pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[Frame]:
        """Yield the frames that are whole now. Raises ValueError at bytes that are no frame."""
        self._buffer += piece
        while len(self._buffer) >= _HEAD.size:
            kind, number, status, named, sized = _HEAD.unpack_from(self._buffer)
            if named > NAME_MAX or sized > FRAME_BODY_MAX:
                raise ValueError("a frame beyond its bounds")
            end = _HEAD.size + named + sized
            if len(self._buffer) < end:
                return
            name = bytes(self._buffer[_HEAD.size : _HEAD.size + named])
            body = bytes(self._buffer[_HEAD.size + named : end])
            del self._buffer[:end]
            yield Frame(FrameKind(kind), number, status, name, body)
