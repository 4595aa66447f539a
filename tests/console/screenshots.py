"""Draws the pictures of docs/console.md anew (make screenshots), packed as well as PNG can be."""

from __future__ import annotations

import struct
import sys
import tempfile
import zlib
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("console", "api", "cli", "simulation")]

from chromium import Looker, chromium  # noqa: E402
from console_site import Site  # noqa: E402
from console_stories import UNDER_WAY  # noqa: E402

FOLDER = TESTS.parent / "docs" / "console"
# file, page, width and height in CSS pixels, theme
PICTURES = (
    ("fleet", "fleet", 1200, 600, "light"),
    ("node", f"nodes/{UNDER_WAY}", 1200, 470, "dark"),
    ("campaign", "campaigns/c0001", 1200, 520, "light"),
    ("case", "cases/su1-n05-c0001", 1200, 640, "light"),
    ("narrow", "cases/su1-n05-c0001", 320, 480, "dark"),
)


def packed(png: bytes) -> bytes:
    """The same picture with its data in one chunk, deflated anew: a browser packs for speed."""
    chunks, at = [], 8
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        chunks.append((kind, png[at + 8 : at + 8 + size]))
        at += size + 12
    data = zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
    kept = {kind: body for kind, body in chunks if kind in (b"IHDR", b"IEND")}
    made = [(b"IHDR", kept[b"IHDR"]), (b"IDAT", zlib.compress(data, 9)), (b"IEND", b"")]
    return png[:8] + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in made
    )


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        Site(Path(folder), liar=False) as site,
        chromium() as browser,
        Looker(browser, site.url, site.tokens["operator"]) as look,
    ):
        for name, where, width, height, theme in PICTURES:
            look.to(where)
            look.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            look.page.set_viewport_size({"width": width, "height": height})
            look.page.wait_for_timeout(500)
            picture = packed(look.page.screenshot())
            (FOLDER / f"{name}.png").write_bytes(picture)
            sys.stdout.write(f"{name}.png {len(picture) // 1024} KiB\n")


if __name__ == "__main__":
    main()
