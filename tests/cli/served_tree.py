"""A reduced tree of `tests/recorded/writes` behind plain HTTP, which refuses every write."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TREES = Path(__file__).parents[1] / "recorded" / "writes"


class Served:
    """A reduced tree behind plain HTTP; `others` are requests that were no reads."""

    def __init__(self, tree: dict[str, Any]) -> None:
        self.others: list[str] = []
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = tree.get(self.path.rstrip("/"))
                body = json.dumps(found or {}).encode()
                self.send_response(200 if found is not None else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                served.others.append(f"{self.command} {self.path}")
                self.send_error(405)

            do_PATCH = do_DELETE = do_PUT = do_POST  # noqa: N815 (names of the library)

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@contextmanager
def serve_tree(name: str) -> Iterator[Served]:
    """Serve a reduced tree for the length of the block."""
    served = Served(json.loads((TREES / f"{name}.json").read_text())["tree"])
    thread = threading.Thread(target=served.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        served.server.shutdown()
        served.server.server_close()
        thread.join()
