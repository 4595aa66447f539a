"""A plain file server over a recorded tree: `/redfish/v1/X` is answered from `X/index.json`."""

from __future__ import annotations

import http.server
import os
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BESIDE = Path(__file__).parents[3] / "shared" / "mockups"


def recorded_tree(name: str, scratch: Path) -> Path:
    """The recorded tree of this name, unpacked; the test is skipped where there is none."""
    place = Path(os.environ.get("PROVISIONER_MOCKUPS", BESIDE))
    for found in (place / name, place / "tests" / "mockups" / name):
        if (found / "redfish").is_dir():
            return found
    archive = place / f"{name}.tar.gz"
    if not archive.is_file():
        pytest.skip(f"no recorded tree {name}: set PROVISIONER_MOCKUPS to a folder that has it")
    with tarfile.open(archive) as tar:
        tar.extractall(scratch)  # `filter` came with Python 3.11.4
    return next(p.parent for p in scratch.rglob("redfish") if p.is_dir())


@contextmanager
def serving(tree: Path, asked: set[str] | None = None, *, absent: int = 404) -> Iterator[str]:
    """Serve the tree over http on loopback; its URL. `asked` gets the methods that arrived.

    `absent`: the status of what is not in the tree.
    """

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = tree / self.path.split("?")[0].strip("/") / "index.json"
            body = found.read_bytes() if found.is_file() else b""
            self.send_response(200 if body else absent)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def parse_request(self) -> bool:
            parsed = super().parse_request()
            if parsed and asked is not None:
                asked.add(self.command)
            return parsed

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
