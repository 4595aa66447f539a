"""Read the header of a PLDM firmware package (DSP0267 1.0 to 1.3): .fwpkg and NIC packages.

Every length in the header is checked against the header's own size before it is used, and the
header against its CRC-32. The images after it are not read. Source of the layout: DMTF DSP0267;
Linux Documentation/driver-api/pldmfw/file-format.rst.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from provisioner.model.input_error import InputError

# PackageHeaderIdentifier -> format revision
IDENTIFIERS = {
    bytes.fromhex("f018878ccb7d49439800a02f059aca02"): 1,
    bytes.fromhex("1244d2648d7d4718a030fc8a56587d5a"): 2,
    bytes.fromhex("3119ce2fe80a4a99af6d46f8b121f6bf"): 3,
    bytes.fromhex("7b291c996db64208801b0202e6463c78"): 4,
}
RECORDS_MAX = 255  # the count is one byte
COMPONENTS_MAX = 512  # a GB300 package has 20
_PCI_DEVICE = 0x0100
_ENCODINGS = {0: "ascii", 1: "ascii", 2: "utf-8", 3: "utf-16", 4: "utf-16-le", 5: "utf-16-be"}
_REMEDY = "Fetch the package again; its maker publishes the digest."


class PackageComponent(NamedTuple):
    identifier: int
    version: str


class DeviceRecord(NamedTuple):
    """The components for one kind of device; `set_name` names them in NVIDIA's packages."""

    set_name: str
    components: tuple[int, ...]
    pci_device: int | None


class PldmPackage(NamedTuple):
    version: str
    revision: int
    records: tuple[DeviceRecord, ...]
    components: tuple[PackageComponent, ...]


def is_package(content: bytes) -> bool:
    """Return whether a file starts as a PLDM package does."""
    return bytes(content[:16]) in IDENTIFIERS


def parse_package(source: str, content: bytes) -> PldmPackage:
    """Return the header of a package. Raises InputError."""
    revision = IDENTIFIERS.get(bytes(content[:16]))
    if revision is None:
        raise InputError(source, "", "this is no PLDM package", _REMEDY)
    size = int.from_bytes(content[17:19], "little")
    header = bytes(content[:size])
    trailer = 8 if revision >= 4 else 4
    if len(header) < size or size < 36 + trailer:
        raise InputError(source, f"byte {len(header)}", "the package is cut off", _REMEDY)
    body = header[:-trailer]
    checksum = int.from_bytes(header[len(body) : len(body) + 4], "little")
    if zlib.crc32(body) != checksum:
        raise InputError(source, "header", "its checksum is wrong", _REMEDY)
    if body[16] != revision:
        problem = f"format revision {body[16]} under the identifier of revision {revision}"
        raise InputError(source, "header", problem, _REMEDY)
    return _Header(source, body, revision).read_package()


class _Header:
    """A cursor over the header; no read goes beyond its end."""

    def __init__(self, source: str, body: bytes, revision: int) -> None:
        self.source = source
        self.body = body
        self.revision = revision
        self.at = 32  # identifier, revision, size, release date

    def read_package(self) -> PldmPackage:
        bitmap_bits = self.read_number(2)
        version_type = self.read_number(1)
        version = self.read_text(version_type, self.read_number(1))
        records = tuple(self._read_record(bitmap_bits) for _ in range(self.read_number(1)))
        if self.revision >= 2:
            for _ in range(self.read_number(1)):  # devices below another: named by its own record
                self.take(self._read_length() - 2)
        count = self.read_number(2)
        if count > COMPONENTS_MAX:
            raise self.build_error(f"{count} components are more than {COMPONENTS_MAX}")
        parts = tuple(self._read_component() for _ in range(count))
        if self.at != len(self.body):
            raise self.build_error("bytes are left over after the last component")
        for record in records:
            if any(index >= len(parts) for index in record.components):
                raise self.build_error("a device record names a component that is not there")
        return PldmPackage(version, self.revision, records, parts)

    def _read_record(self, bitmap_bits: int) -> DeviceRecord:
        start = self.at
        end = start + self._read_length()
        descriptors = self.read_number(1)
        self.take(4)
        text_type = self.read_number(1)
        text_length = self.read_number(1)
        data_length = self.read_number(2)
        if self.revision >= 4:
            data_length += self.read_number(4)
        bits = int.from_bytes(self.take((bitmap_bits + 7) // 8), "little")
        if bits.bit_length() > COMPONENTS_MAX:
            raise self.build_error("a device record names too many components")
        set_name = self.read_text(text_type, text_length)
        pci_device = None
        for _ in range(descriptors):
            descriptor = self.read_number(2)
            value = self.take(self.read_number(2))
            if descriptor == _PCI_DEVICE and len(value) == 2:
                pci_device = int.from_bytes(value, "little")
        self.take(data_length)
        if self.at != end:
            raise self.build_error("a device record has another length than it says")
        indexes = tuple(n for n in range(bits.bit_length()) if bits >> n & 1)
        return DeviceRecord(set_name, indexes, pci_device)

    def _read_component(self) -> PackageComponent:
        self.take(2)
        identifier = self.read_number(2)
        self.take(16)  # comparison stamp, options, activation, offset, size
        text_type = self.read_number(1)
        version = self.read_text(text_type, self.read_number(1))
        if self.revision >= 3:
            self.take(self.read_number(4))
        return PackageComponent(identifier, version)

    def _read_length(self) -> int:
        length = self.read_number(2)
        if length < 2:
            raise self.build_error("a record without a length")
        return length

    def take(self, size: int) -> bytes:
        if size < 0 or self.at + size > len(self.body):
            raise self.build_error("a length leads beyond the header")
        self.at += size
        return self.body[self.at - size : self.at]

    def read_number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def read_text(self, encoding: int, size: int) -> str:
        raw = self.take(size)
        try:
            return raw.decode(_ENCODINGS.get(encoding, "ascii")).rstrip("\0")
        except UnicodeDecodeError:
            raise self.build_error("a text is not in its encoding") from None

    def build_error(self, problem: str) -> InputError:
        return InputError(self.source, f"byte {self.at}", problem, _REMEDY)
