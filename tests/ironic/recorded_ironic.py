"""Answers of a real Ironic 39.0.0, served again on loopback.

`answers.json` has them by path. It was recorded from Ironic as PyPI has it (standalone, no
authentication, redfish driver, see tests/bench/ironic_peer.py) with three hosts of the simulator:
one was inspected, named, lent to `red` and adopted there, one was put into maintenance, and one is
available. Of the inventories only the system's vendor is left.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ANSWERS: dict[str, Any] = json.loads((Path(__file__).parent / "answers.json").read_text())


@dataclass
class Served:
    """A running server. `answers` may be changed; `log` has (method, path, headers)."""

    url: str = ""
    answers: dict[str, Any] = field(default_factory=lambda: json.loads(json.dumps(ANSWERS)))
    statuses: dict[str, int] = field(default_factory=dict)
    log: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """The nodes of its only page."""
        return next(a["nodes"] for p, a in self.answers.items() if p.endswith("detail?limit=200"))


@contextmanager
def serve_ironic() -> Iterator[Served]:
    """Serve the recorded answers on loopback."""
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.log.append((self.command, self.path, dict(self.headers)))
            status = served.statuses.get(self.path, 200 if self.path in served.answers else 404)
            body = json.dumps(served.answers.get(self.path, {"error_message": "-"})).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_words: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
