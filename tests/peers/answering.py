"""A server on loopback that answers GET requests by a function, and keeps what was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Query = Mapping[str, list[str]]
Answer = Callable[[str, Query, Mapping[str, str]], tuple[int, Any]]


@dataclass
class Served:
    """A running server."""

    url: str
    log: list[tuple[str, str]] = field(default_factory=list)  # method, path with query


@contextmanager
def serve_answers(answer: Answer) -> Iterator[Served]:
    """Serve `answer(path, query, headers)` until the block ends."""
    served = Served("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.log.append((self.command, self.path))
            parts = urlsplit(self.path)
            status, document = answer(parts.path, parse_qs(parts.query), dict(self.headers))
            body = json.dumps(document).encode()
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
