"""An OIDC provider with the device flow, refresh and revocation, made of Authlib's own grants.

Authlib decides what a client may send (RFC 8628, RFC 6749, RFC 7009); this file keeps its records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from authlib.oauth2.rfc6749 import grants
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc8628 import (
    DeviceAuthorizationEndpoint,
    DeviceCodeGrant,
    DeviceCredentialDict,
)
from oidc_server import Client, Person, Provider

GRANTS = (DeviceCodeGrant.GRANT_TYPE, "refresh_token")
CLIENT = "provisioner-cli"


class CommandLine(Client):
    """A public client for the device flow."""

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in GRANTS


@dataclass
class Refresh:
    """One refresh token that was given out."""

    text: str
    sub: str
    revoked: bool = False

    def check_client(self, client: Client) -> bool:
        return client.client_id == CLIENT

    def get_scope(self) -> str:
        return "openid"


class DeviceProvider(Provider):
    """`answers` are the person's, one for each question of the command line: None is not yet."""

    def __init__(self) -> None:
        super().__init__()
        self.clients[CLIENT] = CommandLine(CLIENT, "")
        self.answers: list[bool | None] = []
        self.slow = False  # it asks command lines to ask less often
        self.credentials: dict[str, DeviceCredentialDict] = {}
        self.refreshes: dict[str, Refresh] = {}
        self.access = {"sub": "ada", "aud": "provisioner", "roles": ["operator"]}
        self.addresses = {
            "device_authorization_endpoint": self.issuer + "/device",
            "revocation_endpoint": self.issuer + "/revoke",
        }
        self.authority.register_grant(_device_grant(self))
        self.authority.register_grant(_refresh_grant(self))
        self.authority.register_endpoint(_device_endpoint(self))
        self.authority.register_endpoint(_revocation(self))
        for path, name in (("/device", "device_authorization"), ("/revoke", "revocation")):
            self._app.add_url_rule(
                path,
                name,
                lambda name=name: self.authority.create_endpoint_response(name),
                methods=["POST"],
            )

    def save_token(self, token: dict[str, Any], request: Any) -> None:
        if refresh := token.get("refresh_token"):
            self.refreshes[refresh] = Refresh(refresh, request.user.sub)


def _device_endpoint(provider: DeviceProvider) -> type[DeviceAuthorizationEndpoint]:
    class Endpoint(DeviceAuthorizationEndpoint):
        INTERVAL = 0.01

        def get_verification_uri(self) -> str:
            return provider.issuer + "/activate"

        def save_device_credential(self, client_id: str, scope: str, data: dict[str, Any]) -> None:
            credential = DeviceCredentialDict(client_id=client_id, scope=scope, **data)
            provider.credentials[data["device_code"]] = credential

    return Endpoint


def _device_grant(provider: DeviceProvider) -> type[DeviceCodeGrant]:
    class Grant(DeviceCodeGrant):
        def query_device_credential(self, device_code: str) -> DeviceCredentialDict | None:
            return provider.credentials.get(device_code)

        def query_user_grant(self, _user_code: str) -> tuple[Person, bool] | None:
            answer = provider.answers.pop(0) if provider.answers else None
            return None if answer is None else (provider.people["ada"], answer)

        def should_slow_down(self, _credential: DeviceCredentialDict) -> bool:
            return provider.slow

    return Grant


def _refresh_grant(provider: DeviceProvider) -> type[grants.RefreshTokenGrant]:
    class Grant(grants.RefreshTokenGrant):
        TOKEN_ENDPOINT_AUTH_METHODS = ["none"]  # noqa: RUF012 (Authlib's)
        INCLUDE_NEW_REFRESH_TOKEN = True

        def authenticate_refresh_token(self, refresh_token: str) -> Refresh | None:
            token = provider.refreshes.get(refresh_token)
            return None if token is None or token.revoked else token

        def authenticate_user(self, refresh_token: Refresh) -> Person | None:
            return provider.people.get(refresh_token.sub)

        def revoke_old_credential(self, refresh_token: Refresh) -> None:
            refresh_token.revoked = True

    return Grant


def _revocation(provider: DeviceProvider) -> type[RevocationEndpoint]:
    class Endpoint(RevocationEndpoint):
        CLIENT_AUTH_METHODS = ["none"]  # noqa: RUF012 (Authlib's)

        def query_token(self, token: str, _hint: str | None) -> Refresh | None:
            return provider.refreshes.get(token)

        def revoke_token(self, token: Refresh, _request: Any) -> None:
            token.revoked = True

    return Endpoint
