"""How smooth the console's map of 65,536 nodes is in headless Chromium, next to an empty page.

The fleet lies in a real store and is served by the API. Frames are in milliseconds, while a box is
scrolled from its top to its end in 45 of them; "long" is the sum of tasks over 50 ms. The last line
is JSON. Other work on the machine makes all of it larger: look at the ratios.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("console", "api", "cli", "simulation")]

from chromium import Looker, chromium  # noqa: E402
from console_site import Site  # noqa: E402
from smoothness import measure  # noqa: E402


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 65_536
    with (
        tempfile.TemporaryDirectory() as folder,
        Site(Path(folder), size) as site,
        chromium() as browser,
        Looker(browser, site.url, site.tokens["operator"]) as look,
    ):
        look.page.get_by_text(f"{size:,} nodes").first.wait_for(timeout=120_000)
        told = {"nodes": size, **measure(look)}
    for name in ("empty", "map", "rails", "table"):
        sys.stdout.write(f"{name:8} {told[name]}\n")
    for name, took in told["turns"].items():
        sys.stdout.write(f"{name:20} {took} ms\n")
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
