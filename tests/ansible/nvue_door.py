"""A simulated Cumulus switch's API on a throw-away host's loopback, over TLS; the test sees inside.

The listening socket is made by a thread that stepped into the host's network, so that a play over
ssh finds the API where a switch has it, and the test still holds the `Switch` in its hands.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from hosts import Host

from provisioner.integrations.sim.hardware.clock import FastClock, Schedule, make_certificate
from provisioner.integrations.sim.switches.nvue import NvueService
from provisioner.integrations.sim.switches.switch import Switch

PORT = 8765
SPEED = 100.0  # an installation takes minutes; the clock runs that much faster
CLONE_NEWNET = 0x40000000
CA = "/etc/provisioner-test/nvue.pem"
OLD, NEW = "5.11.0.0026", "5.12.1.100"
IMAGE = json.dumps(
    {"simulated": True, "target": "switch.os", "contents": {"switch.os": NEW}}
).encode()


class Door:
    """One switch; `peers` are its BGP sessions by neighbour, `writes` what was not a GET."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.fresh()

    def fresh(self, version: str = OLD) -> Switch:
        """A switch as it left the factory, with its password changed."""
        self.switch = Switch("leaf", Schedule(), seed="1", version=version, password="secret")
        for name in ("swp1", "swp51", "swp52"):
            self.switch.add_port(name)
        self.switch.fetch = lambda _url, done: done(IMAGE)
        self.service = NvueService(self.switch, FastClock(SPEED))
        self.peers = {"swp51": "Established", "swp52": "established"}
        self.writes: list[tuple[str, str]] = []
        return self.switch

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes) -> Any:
        parts = urlsplit(target)
        with self.lock:
            if method != "GET":
                self.writes.append((method, parts.path))
            found = self.service.handle(
                method, parts.path, dict(parse_qsl(parts.query)), headers, body
            )
            if found.status == 200 and parts.path.endswith("/vrf/default/router/bgp/neighbor"):
                peers = {name: {"state": state} for name, state in self.peers.items()}
                return 200, json.dumps(peers).encode()
        return found.status, found.body


@contextlib.contextmanager
def opened(host: Host) -> Iterator[Door]:
    """The door of a fresh switch on this host's loopback."""
    door = Door()
    cert, key = make_certificate("leaf", "127.0.0.1")
    host.put(CA, cert.decode())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        Path(file.name).write_bytes(key + cert)
        context.load_cert_chain(file.name)
    server = ThreadingHTTPServer(("127.0.0.1", PORT), _handler(door), bind_and_activate=False)
    server.daemon_threads = True
    server.socket.close()
    server.socket = context.wrap_socket(_listening(host), server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield door
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _listening(host: Host) -> socket.socket:
    made: list[socket.socket] = []

    def inside() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        descriptor = os.open(host.netns, os.O_RDONLY)
        try:
            if libc.setns(descriptor, CLONE_NEWNET):  # of this thread only, which ends
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(descriptor)
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", PORT))
        listening.listen(16)
        made.append(listening)

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    return made[0]


def _handler(door: Door) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Hands every request to the door."""

        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            headers = {k.lower(): v for k, v in self.headers.items()}
            status, body = door.answer(self.command, self.path, headers, self.rfile.read(length))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815 - the server's own names

        def log_message(self, *_args: Any) -> None:
            """Silence."""

    return Handler
