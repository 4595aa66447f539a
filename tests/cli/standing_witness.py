"""A witness of transparency logs at loopback, as c2sp.org/tlog-witness says: `add-checkpoint`.

It keeps the newest checkpoint that it cosigned, and answers 400, 403, 404, 409 and 422 by that
text. Proofs are verified by the steps of RFC 9162, 2.1.4.2, written for this file.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

NAME = "witness.example/w1"


def grew(old: int, before: bytes, size: int, after: bytes, path: Sequence[bytes]) -> bool:
    """RFC 9162, 2.1.4.2."""
    if old == size:
        return before == after and not path
    if not path:
        return False
    proof = list(path)
    if old & (old - 1) == 0:
        proof.insert(0, before)
    fn, sn = old - 1, size - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    first = second = proof[0]
    for step in proof[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            first = hashlib.sha256(b"\x01" + step + first).digest()
            second = hashlib.sha256(b"\x01" + step + second).digest()
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            second = hashlib.sha256(b"\x01" + second + step).digest()
        fn, sn = fn >> 1, sn >> 1
    return first == before and second == after and sn == 0


class Witness:
    """Its key, the logs that it knows by their verifier keys, and what it cosigned last."""

    def __init__(self) -> None:
        self.key = Ed25519PrivateKey.generate()
        self.logs: dict[str, bytes] = {}
        self.seen: dict[str, tuple[int, bytes]] = {}
        self.at = 1_790_000_000

    @property
    def verifier_key(self) -> str:
        public = b"\x04" + self.key.public_key().public_bytes_raw()
        name = hashlib.sha256(NAME.encode() + b"\n" + public).digest()[:4].hex()
        return f"{NAME}+{name}+{base64.b64encode(public).decode()}"

    def trust(self, verifier_key: str) -> None:
        name, _, rest = verifier_key.partition("+")
        self.logs[name] = base64.b64decode(rest.partition("+")[2])

    def add(self, body: str) -> tuple[int, str]:
        asked, _, note = body.partition("\n\n")
        old_line, *proof = asked.split("\n")
        text, _, signatures = note.partition("\n\n")
        origin, size_line, root_line = (text + "\n").split("\n")[:3]
        old, size, root = int(old_line[4:]), int(size_line), base64.b64decode(root_line)
        trusted = self.logs.get(origin)
        if trusted is None:
            return 404, ""
        if not self._signed(f"{text}\n", origin, trusted, signatures):
            return 403, ""
        if old > size:
            return 400, ""
        known, before = self.seen.get(origin, (0, b""))
        if old != known:
            return 409, f"{known}\n"
        path = [base64.b64decode(line) for line in proof]
        if (old == 0 and path) or (old and not grew(old, before, size, root, path)):
            return 422, ""
        self.seen[origin] = (size, root)
        message = f"cosignature/v1\ntime {self.at}\n{text}\n".encode()
        blob = self.at.to_bytes(8, "big") + self.key.sign(message)
        identity = bytes.fromhex(self.verifier_key.split("+")[1])
        return 200, f"\N{EM DASH} {NAME} {base64.b64encode(identity + blob).decode()}\n"

    def _signed(self, text: str, origin: str, trusted: bytes, signatures: str) -> bool:
        identity = hashlib.sha256(origin.encode() + b"\n" + trusted).digest()[:4]
        for line in signatures.splitlines():
            _, name, encoded = line.split(" ")
            blob = base64.b64decode(encoded)
            if name == origin and blob[:4] == identity:
                try:
                    Ed25519PublicKey.from_public_bytes(trusted[1:]).verify(blob[4:], text.encode())
                except InvalidSignature:
                    return False
                return True
        return False


@contextmanager
def serve(witness: Witness) -> Iterator[str]:
    """Yield its submission prefix."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            found = self.path == "/w1/add-checkpoint"
            status, text = witness.add(body) if found else (404, "")
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/w1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
