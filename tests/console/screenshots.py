"""Draws the pictures of docs/console.md anew (make screenshots), packed as well as PNG can be.

They are of `provisioner demo --stay` with a GPU that broke, was found and waits for a technician.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chromium import Looker, chromium

FOLDER = Path(__file__).parents[2] / "docs" / "console"
PROVISIONER = str(Path(sys.executable).with_name("provisioner"))
BROKEN, CASE = "su0-n05", "su0-n05-c0001"
# file, page, width and height in CSS pixels, theme
PICTURES = (
    ("fleet", "fleet", 1280, 870, "light"),
    ("node", f"nodes/{BROKEN}", 1200, 640, "dark"),
    ("campaign", "campaigns/c0001", 1200, 760, "light"),
    ("case", f"cases/{CASE}", 1200, 640, "light"),
    ("narrow", f"cases/{CASE}", 320, 480, "dark"),
)
PATIENCE_S = 1_800.0  # of real time: a busy machine is site, daemon and browser
LOOK_S = 3.0


@contextmanager
def staying(folder: Path, *more: str) -> Iterator[Path]:
    """A demonstration that stays, once every node serves; what it printed."""
    said = folder / "said"
    with said.open("w") as out:
        demo = subprocess.Popen(
            [PROVISIONER, "demo", "--stay", "--directory", str(folder / "demo"), *more], stdout=out
        )
        try:
            wait_for(lambda: "serves" in said.read_text(), demo)
            yield said
        finally:
            demo.terminate()
            demo.wait()


def wait_for(there: Callable[[], bool], demo: subprocess.Popen[bytes] | None = None) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not there():
        if time.monotonic() > ends or (demo is not None and demo.poll() is not None):
            raise SystemExit("the demonstration did not come so far")
        time.sleep(LOOK_S)


def ask(folder: Path, *words: str) -> str:
    """What the command says of the demonstration in this folder."""
    command = [PROVISIONER, *words, "--data", str(folder / "data")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def play(folder: Path) -> None:
    """Break a GPU, wait until it is found, then begin an upgrade of the other hosts."""
    control = ["--control", str(folder / "control.sock")]
    broken = ["sim", "break", BROKEN, "remap_failure", "--part", "GPU_SXM_4"]
    subprocess.run([PROVISIONER, *broken, *control], check=True)
    wait_for(lambda: CASE in ask(folder, "case", "list"))
    wait_for(lambda: "hardware" in ask(folder, "case", "show", CASE).splitlines()[0])
    chosen = ["--release", "spectrum-x-1.3.0", "--select", "kind=host"]
    ask(folder, "campaign", "create", *chosen, "--policy", str(folder / "policy.yaml"))
    steps = [
        "bluefield.bundle 2.10.0-147_25.01",
        "host.doca 2.10.0-0.5.3",
        "host.spcx_cc 2.10.0",
        "supernic.nic 32.44.1036",
    ]
    ask(folder, "campaign", "start", "c0001", *(w for step in steps for w in ("--confirm", step)))
    wait_for(lambda: " done " in ask(folder, "campaign", "show", "c0001"))


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


def draw(said: Path) -> None:
    """Draw each picture from the demonstration that printed this."""
    found = re.search(r"(https://[\d.:]+)/\s+token: (\S+)", said.read_text())
    assert found is not None
    FOLDER.mkdir(exist_ok=True)
    with chromium() as browser, Looker(browser, found[1], found[2]) as look:
        for name, where, width, height, theme in PICTURES:
            look.to(where)
            look.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            look.page.set_viewport_size({"width": width, "height": height})
            look.page.wait_for_timeout(1_500)
            picture = packed(look.page.screenshot())
            (FOLDER / f"{name}.png").write_bytes(picture)
            sys.stdout.write(f"{name}.png {len(picture) // 1024} KiB\n")


def main() -> None:
    """`screenshots.py [SAID]`: SAID is what a demonstration that was played already printed."""
    if len(sys.argv) > 1:
        draw(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as name, staying(Path(name)) as said:
        play(said.parent / "demo")
        draw(said)


if __name__ == "__main__":
    main()
