"""An OIDC provider on loopback, made of Authlib's own grants: code flow, PKCE, ID tokens.

Authlib decides what a client may send (RFC 6749, RFC 7636, OpenID Connect Core 1.0); this file only
keeps its records in memory. There is no page to sign in at: each person of `people` is signed in
already, and the one of `person` agrees at once.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import jwt
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import AuthorizationCodeMixin, OpenIDCode
from cryptography.hazmat.primitives.asymmetric import rsa
from flask import Flask, Response, jsonify, request
from werkzeug.serving import make_server

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "true"  # Authlib refuses http, which loopback has
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUBLIC = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key())) | {
    "kid": "k1",
    "use": "sig",
    "alg": "RS256",
}
PRIVATE = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY)) | {"kid": "k1"}


@dataclass
class Client(ClientMixin):
    """The console as a client; without a secret it is a public one."""

    client_id: str
    redirect_uri: str
    secret: str = ""

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_allowed_scope(self, scope: str) -> str:
        return scope or ""

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri == self.redirect_uri

    def check_client_secret(self, client_secret: str) -> bool:
        return bool(self.secret) and client_secret == self.secret

    def check_endpoint_auth_method(self, method: str, _endpoint: str) -> bool:
        return method == ("client_secret_basic" if self.secret else "none")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code"


@dataclass
class Code(AuthorizationCodeMixin):
    """One code that was given out."""

    code: str
    sub: str
    redirect_uri: str
    scope: str
    nonce: str
    auth_time: int
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str:
        return self.nonce

    def get_auth_time(self) -> int:
        return self.auth_time

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> list[str]:
        return ["pwd", "otp"]


@dataclass
class Person:
    """Somebody at the provider, with the claims that it gives."""

    sub: str
    claims: dict[str, Any] = field(default_factory=dict)

    def get_user_id(self) -> str:
        return self.sub


class Provider:
    """The provider; `with` serves it. Its fields may change while it serves."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.people = {"ada": Person("ada", {"roles": ["operator"]})}
        self.person: str | None = "ada"  # who is at the browser; None: refuses to agree
        self.signed_in_before_s = 0
        self.nonce: str | None = None  # instead of the one that was asked for
        self.access: dict[str, Any] | None = None  # claims of a JWT access token
        self.codes: dict[str, Code] = {}
        self.exchanges: list[dict[str, str]] = []
        self.addresses: dict[str, str] = {}  # further ones of the discovery document
        self._app = self._build()
        self._server = make_server("127.0.0.1", 0, self._app, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Provider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(30)
        self._server.server_close()

    def add_console(self, url: str, secret: str = "") -> dict[str, str]:
        """Register the console at this address; return the settings for it."""
        back = url + "/console/signed-in"
        self.clients["console"] = Client("console", back, secret)
        return {
            "api_oidc_issuer": self.issuer,
            "api_oidc_audience": "provisioner",
            "api_oidc_client_id": "console",
            "api_oidc_redirect_url": back,
        }

    def save_token(self, token: dict[str, Any], request: Any) -> None:
        """Keep what was given out; here nothing."""

    def _build(self) -> Flask:
        app = Flask("oidc")
        app.config["OAUTH2_REFRESH_TOKEN_GENERATOR"] = True
        self.authority = authority = AuthorizationServer(
            app,
            query_client=lambda client_id: self.clients.get(client_id),
            save_token=self.save_token,
        )
        authority.register_grant(_code_grant(self), [CodeChallenge(required=True), _identity(self)])

        @app.get("/.well-known/openid-configuration")
        def discovery() -> Response:
            return jsonify(
                issuer=self.issuer,
                authorization_endpoint=self.issuer + "/authorize",
                token_endpoint=self.issuer + "/token",
                jwks_uri=self.issuer + "/keys",
                code_challenge_methods_supported=["S256"],
                **self.addresses,
            )

        @app.get("/keys")
        def keys() -> Response:
            return jsonify(keys=[PUBLIC])

        @app.get("/authorize")
        def authorize() -> Any:
            person = self.people.get(self.person or "")
            grant = authority.get_consent_grant(end_user=person)
            return authority.create_authorization_response(grant=grant, grant_user=person)

        @app.post("/token")
        def token() -> Any:
            self.exchanges.append(dict(request.form))
            answer = authority.create_token_response()
            if self.access is not None and answer.status_code == 200:
                told = answer.get_json()
                told["access_token"] = self.sign_access(self.access)
                return jsonify(told)
            return answer

        return app

    def sign_access(self, claims: dict[str, Any]) -> str:
        """Return an access token by RFC 9068 with these claims."""
        now = int(time.time())
        base = {"iss": self.issuer, "iat": now, "exp": now + 300}
        return jwt.encode(base | claims, KEY, algorithm="RS256", headers={"kid": "k1"})


def _code_grant(provider: Provider) -> type[grants.AuthorizationCodeGrant]:
    class Grant(grants.AuthorizationCodeGrant):
        TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "none"]  # noqa: RUF012 (Authlib's)

        def save_authorization_code(self, code: str, request: Any) -> None:
            asked = request.payload.data
            provider.codes[code] = Code(
                code=code,
                sub=request.user.sub,
                redirect_uri=request.payload.redirect_uri,
                scope=request.payload.scope,
                nonce=provider.nonce if provider.nonce is not None else asked.get("nonce", ""),
                auth_time=int(time.time()) - provider.signed_in_before_s,
                code_challenge=asked.get("code_challenge", ""),
                code_challenge_method=asked.get("code_challenge_method", ""),
            )

        def query_authorization_code(self, code: str, _client: Client) -> Code | None:
            return provider.codes.get(code)

        def delete_authorization_code(self, authorization_code: Code) -> None:
            provider.codes.pop(authorization_code.code, None)

        def authenticate_user(self, authorization_code: Code) -> Person | None:
            return provider.people.get(authorization_code.sub)

    return Grant


def _identity(provider: Provider) -> OpenIDCode:
    class Identity(OpenIDCode):
        def exists_nonce(self, _nonce: str, _request: Any) -> bool:
            return False

        def resolve_client_private_key(self, _client: Client) -> dict[str, Any]:
            return PRIVATE

        def get_client_algorithm(self, _client: Client) -> str:
            return "RS256"

        def get_encode_header(self, _client: Client) -> dict[str, Any]:
            return {"alg": "RS256", "kid": "k1"}

        def get_client_claims(self, client: Client) -> dict[str, Any]:
            now = int(time.time())
            aud = [client.get_client_id()]
            return {"iss": provider.issuer, "aud": aud, "iat": now, "exp": now + 300}

        def generate_user_info(self, user: Person, _scope: str) -> dict[str, Any]:
            return {"sub": user.sub, **user.claims}

    return Identity(require_nonce=True)
