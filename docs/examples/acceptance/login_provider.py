"""An OIDC provider on loopback: discovery, keys, the code flow, and tokens for the steps.

OpenID Connect Core 1.0 and Discovery 1.0, RFC 6749, RFC 8176 (`amr`). Nobody is asked for a
password: the browser's cookie `methods` names how its person signed in.
"""

from __future__ import annotations

import json
import threading
import time
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

AUDIENCE = "provisioner"
CLIENT = "console"
MFA = "otp"
DAY_S = 86400


class LoginProvider:
    """The provider; `serve` answers until `close`."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._stranger = ec.generate_private_key(ec.SECP256R1())
        self._codes: dict[str, dict[str, Any]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _make_handler(self))
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"

    def serve(self) -> None:
        """Answer in a thread."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()

    def sign(self, **claims: Any) -> str:
        """Return a token with these claims; None takes one away."""
        now = int(time.time())
        base = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + DAY_S}
        own = {**base, "roles": ["operator"], "amr": ["pwd", MFA], **claims}
        content = {k: v for k, v in own.items() if v is not None}
        return jwt.encode(content, self._key, algorithm="ES256", headers={"kid": "k1"})

    def write_tokens(self, file: Path) -> None:
        """Write a token for each case of the steps."""
        good = {"iss": self.issuer, "aud": AUDIENCE, "sub": "ada", "roles": ["operator"]}
        times = {"iat": int(time.time()), "exp": int(time.time()) + DAY_S, "amr": [MFA]}
        forged = jwt.encode(good | times, self._stranger, algorithm="ES256", headers={"kid": "k1"})
        tokens = {
            "valid": self.sign(),
            "bad_signature": forged,
            "wrong_issuer": self.sign(iss="https://login.example.com"),
            "wrong_audience": self.sign(aud="another"),
            "expired": self.sign(exp=int(time.time()) - DAY_S),
            "missing_claim": self.sign(sub=None),
            "password_only": self.sign(amr=["pwd"]),
            "password_only_viewer": self.sign(amr=["pwd"], roles=["viewer"]),
        }
        file.touch(mode=0o600)
        file.write_text(json.dumps(tokens), encoding="utf-8")

    def answer(self, path: str, query: dict[str, str], cookie: str) -> tuple[int, str, Any]:
        """Return status, Location and body of a reading request."""
        if path == "/.well-known/openid-configuration":
            ends = {"jwks_uri": "keys", "authorization_endpoint": "authorize"}
            ends["token_endpoint"] = "token"  # noqa: S105 (an address)
            return (
                200,
                "",
                {"issuer": self.issuer}
                | {name: f"{self.issuer}/{end}" for name, end in ends.items()},
            )
        if path == "/keys":
            public = jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
            return 200, "", {"keys": [{**public, "kid": "k1", "use": "sig"}]}
        if path == "/authorize":
            code = str(len(self._codes))
            jar = SimpleCookie(cookie)
            methods = jar["methods"].value.split("+") if "methods" in jar else ["pwd"]
            self._codes[code] = {"nonce": query["nonce"], "amr": methods}
            back = urlencode({"code": code, "state": query["state"]})
            return 302, f"{query['redirect_uri']}?{back}", None
        return 404, "", {}

    def exchange(self, form: dict[str, str]) -> Any:
        """Return the tokens of a code."""
        claims = self._codes.pop(form["code"])
        identity = self.sign(aud=CLIENT, auth_time=int(time.time()), **claims)
        return {"access_token": "opaque", "token_type": "Bearer", "id_token": identity}


def _first(text: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(text).items()}


def _make_handler(provider: LoginProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            cookie = self.headers.get("Cookie", "")
            self._send(*provider.answer(parts.path, _first(parts.query), cookie))

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._send(200, "", provider.exchange(_first(text)))

        def _send(self, status: int, location: str, body: Any) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Write no log."""

    return Handler
