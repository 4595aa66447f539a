"""Draws the pictures of docs/console.md anew (make screenshots): small, with few colours."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "console"), str(TESTS / "api")]

from chromium import Looker, chromium  # noqa: E402
from console_site import Site  # noqa: E402
from console_stories import UNDER_WAY  # noqa: E402

FOLDER = TESTS.parent / "docs" / "console"
# file, page, width and height in CSS pixels, theme
PICTURES = (
    ("fleet", "fleet", 1200, 640, "light"),
    ("node", f"nodes/{UNDER_WAY}", 1200, 760, "dark"),
    ("campaign", "campaigns/c0001", 1200, 760, "light"),
    ("narrow", "cases/su1-n05-c0001", 360, 760, "dark"),
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
            look.page.screenshot(path=FOLDER / f"{name}.png")
            size = (FOLDER / f"{name}.png").stat().st_size
            sys.stdout.write(f"{name}.png {size // 1024} KiB\n")


if __name__ == "__main__":
    main()
