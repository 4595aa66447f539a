"""A server on loopback that answers requests by a function, and keeps what was asked."""

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
RawAnswer = Callable[[str, str, Mapping[str, str]], tuple[int, Any]]


@dataclass
class Served:
    """A running server."""

    url: str
    log: list[tuple[str, str]] = field(default_factory=list)  # method, path with query


@contextmanager
def serve_answers(answer: Answer) -> Iterator[Served]:
    """Serve `answer(path, query, headers)` until the block ends."""
    served = Served("")

    def reply(method: str, target: str, headers: Mapping[str, str]) -> tuple[int, Any]:
        served.log.append((method, target))
        parts = urlsplit(target)
        return answer(parts.path, parse_qs(parts.query), headers)

    with serve_json(reply) as served.url:
        yield served


@contextmanager
def serve_json(answer: RawAnswer) -> Iterator[str]:
    """Serve `answer(method, path with query, headers)` as JSON until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, document = answer(self.command, self.path, dict(self.headers))
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - names of http.server

        def log_message(self, *_words: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
