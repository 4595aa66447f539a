"""Takes a server-sent event stream apart, within bounds (WHATWG HTML 9.2.6; DSP0266 13.5.2).

Pure: bytes in, events out. A stream that goes beyond its bounds raises TooLarge and is over.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from provisioner.ports import TooLarge

LINE_MAX = 1024 * 1024  # bytes; bmcweb puts a whole metric report into one line
DATA_MAX = 2 * 1024 * 1024
ID_MAX = 128


class Frame(NamedTuple):
    """One event: its id ("" if it has none), and its data as JSON (None if it is none)."""

    id: str
    data: Any


class SseReader:
    """Parses frames from bytes as they arrive; a new connection resumes after `last_id`."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_s: float | None = None
        self._rest = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._skip_lf = False

    def feed(self, piece: bytes) -> list[Frame]:
        """The events that are complete with this piece. Raises TooLarge."""
        if self._skip_lf and piece.startswith(b"\n"):
            piece = piece[1:]
        self._skip_lf = piece.endswith(b"\r")
        self._rest += piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, last = self._rest.split(b"\n")
        self._rest = bytearray(last)
        if len(last) > LINE_MAX:
            raise TooLarge(f"a line of an event stream is over {LINE_MAX} bytes")
        return [frame for line in lines if (frame := self._line(bytes(line))) is not None]

    def _line(self, line: bytes) -> Frame | None:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if name == b"data":
            self._size += len(value) + 1
            if self._size > DATA_MAX or len(value) > LINE_MAX:
                raise TooLarge(f"an event of a stream is over {DATA_MAX} bytes")
            self._data.append(value)
        elif name == b"id":
            ident = value.decode("ascii", "replace")
            if len(ident) <= ID_MAX and ident.isprintable() and ident.isascii():
                self.last_id = ident
        elif name == b"retry" and value.isdigit() and len(value) <= 7:
            self.retry_s = int(value) / 1000
        return None

    def _dispatch(self) -> Frame | None:
        if not self._data:
            return None
        whole = b"\n".join(self._data)
        self._data = []
        self._size = 0
        try:
            return Frame(self.last_id, json.loads(whole.decode("utf-8-sig")))
        except (ValueError, RecursionError):
            return Frame(self.last_id, None)
