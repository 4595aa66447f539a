"""Read one imported file: its format is found by its content, and by its name for plain text."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from provisioner.integrations.published_versions.deciding.json_documents import (
    make_contents,
    name_parts,
    read_catalog,
    read_document,
)
from provisioner.integrations.published_versions.deciding.published_pages import Choice, read_page
from provisioner.integrations.published_versions.deciding.statements import (
    PCI_DEVICES,
    STATEMENTS_MAX,
    Import,
    Statement,
    check_count,
    check_train,
    clean_file,
    clean_sha256,
    clean_text,
    clean_version,
    find_kind,
)
from provisioner.model.input_error import InputError

# ------------------------------------------------------------------------------
# Read a BlueField boot stream (.bfb): its image headers, and the version list inside it.
#
# Source of the layout: github.com/Mellanox/bfscripts, mlx-mkbfb: 24-byte headers, images padded to
# 8 bytes with a CRC-32. Newer streams hold a JSON list of their components ("info-v0"); the number
# of that image is not published, so it is recognised by its content. The release of the bundle is
# in its file name only.


MAGIC = b"Bf\x02\x13"
HEADER_SIZE = 24
IMAGES_MAX = 512  # of one stream; the image versions of 64 Ids are at most 3
INFO_SIZE_MAX = 256 * 1024  # the list of components is some kilobytes
_NAME = re.compile(r"(?:bf-(?:fw)?bundle-)(?P<release>\d+(?:\.\d+)+-\d+_\d+\.\d+)")
_REMEDY = "Fetch the bundle again; its maker publishes the digest."


class BootStream(NamedTuple):
    release: str  # of the bundle by its file name, "" if the name has none
    components: tuple[tuple[str, str], ...]  # (name, version) of the list inside it


def is_boot_stream(content: bytes) -> bool:
    return bytes(content[:4]) == MAGIC


def parse_boot_stream(source: str, content: bytes) -> BootStream:
    """Return the release and the components of a stream. Raises InputError."""
    components: tuple[tuple[str, str], ...] = ()
    at = 0
    for _ in range(IMAGES_MAX):
        if at >= len(content):
            break
        header = bytes(content[at : at + HEADER_SIZE])
        if len(header) < HEADER_SIZE or header[:4] != MAGIC:
            raise InputError(source, f"byte {at}", "no image header stands here", _REMEDY)
        size, checksum = struct.unpack_from("<II", header, 8)
        start = at + HEADER_SIZE
        at = start + (size + 7 & ~7)
        if at > len(content):
            raise InputError(source, f"byte {start}", "the last image is cut off", _REMEDY)
        if size <= INFO_SIZE_MAX and not components:
            image = bytes(content[start:at])
            if zlib.crc32(image) != checksum:
                raise InputError(source, f"byte {start}", "an image is damaged", _REMEDY)
            components = _read_info(image[:size])
    else:
        raise InputError(source, "", f"it has more than {IMAGES_MAX} images", _REMEDY)
    match = _NAME.search(source)
    return BootStream(match["release"] if match else "", components)


def _read_info(image: bytes) -> tuple[tuple[str, str], ...]:
    """Return the components of an image that is the version list; nothing of any other image."""
    if image.lstrip()[:1] not in (b"{", b"["):
        return ()
    try:
        document = json.loads(image.rstrip(b"\0"))
    except (ValueError, RecursionError):
        return ()
    pairs: list[tuple[str, str]] = []
    todo: list[Any] = [document]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            name = value.get("Name")
            version = value.get("Version")
            if isinstance(name, str) and isinstance(version, str):
                pairs.append((name, version))
            todo += value.values()
        elif isinstance(value, list):
            todo += value
    return tuple(sorted(pairs))


# ------------------------------------------------------------------------------
# Read the header of a PLDM firmware package (DSP0267 1.0 to 1.3): .fwpkg and NIC packages.
#
# Every length in the header is checked against the header's own size before it is used, and the
# header against its CRC-32. The images after it are not read. Source of the layout: DMTF DSP0267;
# Linux Documentation/driver-api/pldmfw/file-format.rst.


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
_PLDM_PACKAGES_REMEDY = "Fetch the package again; its maker publishes the digest."


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
    return bytes(content[:16]) in IDENTIFIERS


def parse_package(source: str, content: bytes) -> PldmPackage:
    """Return the header of a package. Raises InputError."""
    revision = IDENTIFIERS.get(bytes(content[:16]))
    if revision is None:
        raise InputError(source, "", "this is no PLDM package", _PLDM_PACKAGES_REMEDY)
    size = int.from_bytes(content[17:19], "little")
    header = bytes(content[:size])
    trailer = 8 if revision >= 4 else 4
    if len(header) < size or size < 36 + trailer:
        raise InputError(
            source, f"byte {len(header)}", "the package is cut off", _PLDM_PACKAGES_REMEDY
        )
    body = header[:-trailer]
    checksum = int.from_bytes(header[len(body) : len(body) + 4], "little")
    if zlib.crc32(body) != checksum:
        raise InputError(source, "header", "its checksum is wrong", _PLDM_PACKAGES_REMEDY)
    if body[16] != revision:
        problem = f"format revision {body[16]} under the identifier of revision {revision}"
        raise InputError(source, "header", problem, _PLDM_PACKAGES_REMEDY)
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
        return InputError(self.source, f"byte {self.at}", problem, _PLDM_PACKAGES_REMEDY)


# ------------------------------------------------------------------------------
# Read a table of versions as CSV: release notes, copied by a person into a spreadsheet.
#
# Columns by their header: `component` and `version`, and where there are any `profile`, `file`,
# `sha256` and `evidence`. Values are text as written; a version that a spreadsheet has turned into
# a
# number is refused, because its digits are lost.


SIZE_MAX = 4 * 1024 * 1024
COLUMNS = ("component", "version", "profile", "file", "sha256", "evidence")
_VERSION_TABLES_REMEDY = (
    f"The first line names the columns: {', '.join(COLUMNS)}; the first two are needed."
)


def read_table(source: str, content: bytes, *, maps: Mapping[str, str]) -> Import:
    """Return the rows of a table. Raises InputError with the line."""
    if len(content) > SIZE_MAX:
        raise InputError(source, "", f"it is larger than {SIZE_MAX} bytes", "Split the table.")
    try:
        text = bytes(content).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(source, "", "this is not UTF-8 text", "Save it as UTF-8.") from None
    first = text.split("\n", 1)[0]
    reader = csv.reader(io.StringIO(text), delimiter=";" if ";" in first else ",", strict=True)
    statements: list[Statement] = []
    try:
        header = [name.strip().lower() for name in next(reader, [])]
        if not {"component", "version"} <= set(header) or len(set(header)) < len(header):
            raise InputError(source, "line 1", "the columns are not named", _VERSION_TABLES_REMEDY)
        for row in reader:
            if any(cell.strip() for cell in row):
                where = f"line {reader.line_num}"
                statements.append(_read_row(source, where, header, row, maps))
            if len(statements) > STATEMENTS_MAX:
                break
    except csv.Error as error:
        where = f"line {reader.line_num}"
        raise InputError(
            source, where, f"this is no CSV: {error}", _VERSION_TABLES_REMEDY
        ) from None
    check_count(source, statements)
    notes = tuple(f"{s.name}: the table has no version" for s in statements if not s.version)
    stated = tuple(s for s in statements if s.version)
    return Import(source, "table", stated, notes=notes)


def _read_row(
    source: str, where: str, header: list[str], row: list[str], maps: Mapping[str, str]
) -> Statement:
    if len(row) > len(header):
        raise InputError(
            source, where, f"{len(row)} cells under {len(header)} columns", "Quote the commas."
        )
    cells = dict(zip(header, row, strict=False))
    name = clean_text(source, where, cells["component"])
    version = clean_version(source, where, cells.get("version", ""))
    return Statement(
        name=name,
        version=version,
        kind=find_kind(name, version, maps),
        file=clean_file(source, where, cells.get("file", "")),
        sha256=clean_sha256(source, where, cells.get("sha256", "")),
        evidence=clean_text(source, where, cells.get("evidence", "")),
        profile=clean_text(source, where, cells.get("profile", "")),
    )


PAGES = (".html", ".htm", ".md", ".rst", ".txt", ".yaml", ".yml")  # published pages, saved


def read_import(
    source: str,
    content: bytes,
    *,
    sha256: str,
    maps: Mapping[str, str],
    systems: tuple[str, ...] = (),
    choice: Choice | None = None,
) -> Import:
    """Return everything that a file states. Raises InputError.

    `source` is its name without folders, `sha256` the digest of the whole file, `maps` the
    component kinds that a person gave to names, `choice` the part of a page.
    """
    clean_text(source, "file name", source)
    if is_package(content):
        return _read_package(source, content, sha256, maps)
    if is_boot_stream(content):
        return _read_boot_stream(source, content, sha256, maps)
    if source.lower().endswith((".xml", ".gz")):
        return read_catalog(source, content, systems=systems)
    if source.lower().endswith(".json"):
        return read_document(source, content, maps=maps)
    if source.lower().endswith(".csv"):
        return read_table(source, content, maps=maps)
    if source.lower().endswith(PAGES):
        return read_page(source, content, maps=maps, choice=choice)
    raise InputError(
        source,
        "",
        "its format is not known",
        "It is a PLDM package, a BFB, a catalogue (.xml, .gz), .csv, .json, or a saved page: "
        f"{', '.join(PAGES)}.",
    )


def _read_package(source: str, content: bytes, sha256: str, maps: Mapping[str, str]) -> Import:
    package = parse_package(source, content)
    version = clean_version(source, "package version", package.version)
    statements: list[Statement] = []
    named: list[tuple[str, str]] = []
    for record in package.records:
        set_name = clean_text(source, "record", record.set_name)
        nic = PCI_DEVICES.get(record.pci_device or 0, "")
        versions = [package.components[index].version for index in record.components]
        if nic and len(versions) == 1:
            clean = clean_version(source, set_name, versions[0])
            kind = maps.get(set_name) or check_train(nic, clean)
            statements.append(Statement(set_name or nic, clean, kind, source, sha256))
        else:
            named += zip(name_parts(set_name, len(versions)), versions, strict=True)
    parts, contents = make_contents(source, version, named, (source, sha256), maps)
    return Import(source, f"PLDM package {version}", (*dict.fromkeys(statements), *parts), contents)


def _read_boot_stream(source: str, content: bytes, sha256: str, maps: Mapping[str, str]) -> Import:
    stream = parse_boot_stream(source, content)
    notes: tuple[str, ...] = ()
    statements: list[Statement] = []
    if stream.release:
        whole = Statement(source, stream.release, "bluefield.bundle", source, sha256)
        statements.append(whole)
    else:
        notes = ("the file name has no release: give it the name that NVIDIA gave it",)
    for name, stated in stream.components:
        text = clean_text(source, "version list", name)
        version = clean_version(source, text, stated)
        if version:
            statements.append(Statement(text, version, find_kind(text, version, maps)))
    return Import(source, "BlueField boot stream", tuple(statements), notes=notes)
