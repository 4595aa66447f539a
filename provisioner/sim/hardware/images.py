"""Firmware images of the simulated site: small JSON texts under any file name.

A simulated BMC accepts only these, as a real one accepts only images that its vendor signed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Image:
    """`contents` maps FirmwareInventory ids, or patterns of them, to versions."""

    target: str  # "hgx.bundle", "bluefield.bundle", "host.bmc": for people
    contents: Mapping[str, str]

    def version_for(self, item_id: str) -> str | None:
        """The version of an item in this image, or None."""
        return next((v for k, v in self.contents.items() if fnmatchcase(item_id, k)), None)


def make_image(target: str, contents: Mapping[str, str]) -> bytes:
    """The bytes of an image."""
    image = {"simulated": True, "target": target, "contents": dict(contents)}
    return json.dumps(image, sort_keys=True).encode()


def parse_image(data: bytes) -> Image | None:
    """Parse these bytes; None if they are no image."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("simulated") is not True:
        return None
    target = value.get("target")
    contents = value.get("contents")
    if not isinstance(target, str) or not isinstance(contents, dict) or not contents:
        return None
    if not all(isinstance(v, str) and v for v in contents.values()):
        return None
    return Image(target, contents)


def is_lower(version: str, than: str) -> bool:
    """Whether a package's comparison stamp is lower; fields are read as hexadecimal if possible.

    Hexadecimal also orders decimal fields of equal length correctly, which suffices here.
    """

    def fields(text: str) -> list[tuple[int, str]]:
        return [
            (len(f.lstrip("0")), f.lstrip("0").lower()) for f in re.findall(r"[0-9A-Fa-f]+", text)
        ]

    return fields(version) < fields(than)
