"""Public keys of OpenSSH, as a person sends them: one line, without options. Pure.

A line is hostile until it is parsed: it goes into a file of a host in which one more line is one
more key. The comment is dropped, and the kind within the blob has to be the one in front of it
(RFC 4253 section 6.6, RFC 5656, RFC 8709, OpenSSH's PROTOCOL.u2f).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct

LINE_MAX = 2048  # characters; RSA with 8,192 bits has some 1,400
RSA_MIN_BITS = 2048
KINDS = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
    "ssh-rsa",
)


def parse_public_key(line: str) -> str:
    """Return "KIND BASE64" of a public key. Raises ValueError with the reason."""
    parts = line.split(None, 2)
    if len(line) > LINE_MAX or "\n" in line.strip() or len(parts) < 2:
        raise ValueError("one line of OpenSSH is needed: kind, key, comment")
    kind, text = parts[:2]
    if kind not in KINDS:
        raise ValueError(f"the first word is {kind[:40]!r}; it has to be one of {', '.join(KINDS)}")
    try:
        blob = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the key is no base64") from None
    fields = _read_strings(blob)
    if len(fields) < 2 or fields[0] != kind.encode():
        raise ValueError(f"the key is none of {kind}")
    if kind == "ssh-rsa":
        bits = int.from_bytes(fields[-1], "big").bit_length()
        if bits < RSA_MIN_BITS:
            raise ValueError(f"an RSA key of {bits} bits; it needs {RSA_MIN_BITS}")
    return f"{kind} {base64.b64encode(blob).decode()}"


def compute_fingerprint(public_key: str) -> str:
    """Return the fingerprint of a parsed key, as `ssh-keygen -l` prints it."""
    digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def _read_strings(blob: bytes) -> list[bytes]:
    """Return the strings of a blob, each after its length; none if it does not end with one."""
    fields = []
    at = 0
    while at + 4 <= len(blob):
        (size,) = struct.unpack_from(">I", blob, at)
        at += 4 + size
        fields.append(blob[at - size : at])
    return fields if at == len(blob) else []
