"""CBOR (RFC 8949) as signed manifests use it: a strict reader of definite lengths, and no more.

Tags are kept as they are. A library would build objects from 25 of them while it reads (regular
expressions, cyclic references, numbers of any size), which is no help with hostile files: decision
0090. Floats, indefinite lengths, duplicate keys and trailing bytes are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEPTH_MAX = 24  # a CoRIM has eleven levels
ITEMS_MAX = 20_000
_BYTES = 2
_TEXT = 3
_ARRAY = 4
_MAP = 5
_TAG = 6
_SIMPLE = 7
_SIMPLE_VALUES: Mapping[int, bool | None] = {20: False, 21: True, 22: None}


class NotCbor(ValueError):
    """The bytes are not one CBOR item of the accepted kinds; the text says where."""


@dataclass(frozen=True)
class Tagged:
    """A tag and the value behind it."""

    number: int
    value: Any


def parse_cbor(raw: bytes) -> Any:
    """Return the one item that the bytes hold: int, bytes, str, bool, None, list, dict or Tagged.

    Raises NotCbor.
    """
    reader = _Reader(raw)
    value = reader.read(0)
    if reader.at != len(raw):
        raise NotCbor(f"{len(raw) - reader.at} bytes behind the item")
    return value


def write_head(major: int, number: int) -> bytes:
    """Return the first bytes of an item in their shortest form: its major type and argument."""
    for limit, info, size in ((24, number, 0), (1 << 8, 24, 1), (1 << 16, 25, 2), (1 << 32, 26, 4)):
        if number < limit:
            return bytes([major << 5 | info]) + (number.to_bytes(size, "big") if size else b"")
    return bytes([major << 5 | 27]) + number.to_bytes(8, "big")


def write_bytes(content: bytes) -> bytes:
    """Return a byte string."""
    return write_head(_BYTES, len(content)) + content


def write_text(text: str) -> bytes:
    """Return a text string."""
    content = text.encode()
    return write_head(_TEXT, len(content)) + content


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0
        self._items = 0

    def read(self, depth: int) -> Any:
        self._items += 1
        if depth > DEPTH_MAX or self._items > ITEMS_MAX:
            raise NotCbor(f"nested too deep or too many items at byte {self.at}")
        begin = self.at
        first = self._take(1)[0]
        major = first >> 5
        if major == _SIMPLE:
            return self._read_simple(first & 31, begin)
        number = self._read_argument(first & 31, begin)
        if major == 0:
            return number
        if major == 1:
            return -1 - number
        if major == _BYTES:
            return self._take(number)
        if major == _TEXT:
            return self._read_text(number, begin)
        if major == _ARRAY:
            self._require(number, begin)
            return [self.read(depth + 1) for _ in range(number)]
        if major == _TAG:
            return Tagged(number, self.read(depth + 1))
        return self._read_map(number, depth, begin)

    def _read_simple(self, info: int, begin: int) -> bool | None:
        if info not in _SIMPLE_VALUES:
            raise NotCbor(f"a float or an unknown simple value at byte {begin}")
        return _SIMPLE_VALUES[info]

    def _read_text(self, size: int, begin: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise NotCbor(f"text that is not UTF-8 at byte {begin}") from None

    def _read_map(self, count: int, depth: int, begin: int) -> dict[int | str, Any]:
        self._require(2 * count, begin)
        entries: dict[int | str, Any] = {}
        for _ in range(count):
            key = self.read(depth + 1)
            if isinstance(key, bool) or not isinstance(key, int | str) or key in entries:
                raise NotCbor(f"a key of another type, or a second one, in the map at byte {begin}")
            entries[key] = self.read(depth + 1)
        return entries

    def _read_argument(self, info: int, begin: int) -> int:
        if info < 24:
            return info
        if info > 27:
            raise NotCbor(f"an indefinite or reserved length at byte {begin}")
        return int.from_bytes(self._take(1 << (info - 24)), "big")

    def _require(self, count: int, begin: int) -> None:
        """Refuse a count that the bytes that are left cannot hold, before anything is built."""
        if count > len(self.raw) - self.at:
            raise NotCbor(f"more items than bytes at byte {begin}")

    def _take(self, size: int) -> bytes:
        if size > len(self.raw) - self.at:
            raise NotCbor(f"cut short at byte {self.at}")
        taken = self.raw[self.at : self.at + size]
        self.at += size
        return taken
