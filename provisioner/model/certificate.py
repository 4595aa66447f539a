"""A node's certificate: bound to serials, versions, tests and place; it expires, it is revoked."""

from __future__ import annotations

from provisioner.model.base import Record


class Certificate(Record):
    """Times are seconds since the epoch. `signature` is Ed25519 over `payload_digest`, hex."""

    id: str
    node: str
    release: str
    profile: str
    serials: tuple[str, ...]  # every device serial, sorted
    versions: tuple[tuple[str, str], ...]  # (kind/slot, running version), sorted
    boot_id: str
    location: str
    ports: tuple[str, ...]  # "switch/interface", sorted
    report_digest: str
    matrix_digest: str
    issued_at: float
    expires_at: float
    key_id: str = ""
    signature: str = ""

    def payload_digest(self) -> str:
        """Digest of everything but the signature."""
        return self.model_copy(update={"signature": ""}).digest()
