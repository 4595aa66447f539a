"""The SSH key that a host is to have: made by us, so that its first answer is known to be its own.

It is kept with the other secrets, encrypted, and is the same for every image that is written to a
node: whoever trusts the host's key goes on trusting it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from provisioner.model.input_error import InputError
from provisioner.model.node import Node
from provisioner.ports import Credentials, Secret


@dataclass(frozen=True)
class HostLogin:
    """How the daemon logs in to the hosts that it writes: user, and its public key's line."""

    user: str
    authorized_key: str


def credential_of(node: Node) -> str:
    """The name of the key among the secrets; its "username" is the public line."""
    return f"{node.id}/ssh-host-key"


async def host_key(credentials: Credentials, node: Node) -> tuple[str, str]:
    """(private, public) in OpenSSH's formats; made at the first call for a node."""
    known = await credentials.current(credential_of(node))
    if known is not None:
        return known[1].reveal(), known[0]
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    await credentials.put(credential_of(node), public, Secret(private))
    return private, public


def login_of(user: str, private_key: Path | None) -> HostLogin | None:
    """The login that goes with a private key; None without one.

    Raises InputError for a key that cannot be read: a passphrase would have to be asked for.
    """
    if private_key is None:
        return None
    try:
        key = load_ssh_private_key(private_key.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        problem = f"this is no private key without a passphrase ({error})"
        remedy = "Make one for the daemon: ssh-keygen -t ed25519 -N '' -f FILE"
        raise InputError("--ssh-key", str(private_key), problem, remedy) from None
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    return HostLogin(user, f"{line} provisioner")
