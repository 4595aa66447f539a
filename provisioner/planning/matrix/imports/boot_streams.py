"""Read a BlueField boot stream (.bfb): its image headers, and the version list inside it.

Source of the layout: github.com/Mellanox/bfscripts, mlx-mkbfb: 24-byte headers, images padded to 8
bytes with a CRC-32. Newer streams hold a JSON list of their components ("info-v0"); the number of
that image is not published, so it is recognised by its content. The release of the bundle is in its
file name only.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from typing import Any, NamedTuple

from provisioner.model.input_error import InputError

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
    """Return whether a file starts as a boot stream does."""
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
