"""A reader of binary evidence that names the byte at which a length or a field is wrong."""

from __future__ import annotations

from provisioner.model.attestation import FindingName, Unacceptable, unproves


def malformed_at(offset: int, reason: str) -> Unacceptable:
    """Return the refusal of bytes that cannot be parsed at `offset`."""
    return Unacceptable(unproves(FindingName.MALFORMED, f"at byte {offset}: {reason}"))


class ByteReader:
    """Reads fields one after the other and never past the end."""

    def __init__(self, raw: bytes, *, base: int = 0) -> None:
        self._raw = raw
        self._base = base  # offset of these bytes in the whole document, for messages
        self._at = 0

    @property
    def offset(self) -> int:
        """The offset of the next byte in the whole document."""
        return self._base + self._at

    @property
    def left(self) -> int:
        """How many bytes are not read yet."""
        return len(self._raw) - self._at

    def peek(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end, without reading them."""
        return self._raw[self._at : self._at + size]

    def take(self, size: int, field: str) -> bytes:
        """Read `size` bytes. Raises Unacceptable if they are not there."""
        if size > self.left:
            raise malformed_at(self.offset, f"{field} needs {size} bytes, {self.left} are left")
        start = self._at
        self._at += size
        return self._raw[start : self._at]

    def take_little(self, size: int, field: str) -> int:
        """Read an unsigned little-endian number."""
        return int.from_bytes(self.take(size, field), "little")

    def take_big(self, size: int, field: str) -> int:
        """Read an unsigned big-endian number."""
        return int.from_bytes(self.take(size, field), "big")
