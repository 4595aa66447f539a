"""The master key in the form that a key service sealed, and how that service is reached."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import Field, model_validator

from provisioner.model.base import Record

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class KeyService(Record):
    """An OpenBao or Vault server with a transit key. Secrets are named by their files."""

    address: str = Field(pattern=r"^https?://[^\s@/?#]+$", max_length=300)
    mount: str = Field("transit", pattern=r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$", max_length=200)
    key: str = Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=200)
    namespace: str = Field("", pattern=r"^[A-Za-z0-9_/-]*$", max_length=200)
    ca_file: str = Field("", max_length=1000)  # "": the system's authorities
    token_file: str = Field("", max_length=1000)
    role_id_file: str = Field("", max_length=1000)  # AppRole, instead of a token
    secret_id_file: str = Field("", max_length=1000)
    approle_mount: str = Field(
        "approle", pattern=r"^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$", max_length=200
    )

    @model_validator(mode="after")
    def _usable(self) -> KeyService:
        roles = (bool(self.role_id_file), bool(self.secret_id_file))
        if roles not in ((True, True), (False, False)) or roles[0] == bool(self.token_file):
            raise ValueError("give a token file, or a file of the role id and one of the secret id")
        parts = urlsplit(self.address)
        if parts.scheme != "https" and parts.hostname not in LOOPBACK:
            raise ValueError("the master key would be sent unencrypted: use https://")
        return self


class WrappedKey(Record):
    """The file `master.key.wrapped`."""

    service: KeyService
    ciphertext: str = Field(min_length=1, max_length=4096)
    key_id: str  # of the master key: names it without revealing it
