"""Signed CoRIMs of a simulated maker: CBOR by RFC 8949, COSE_Sign1 by RFC 9052, own keys.

The encoder shares nothing with the reader of the program; the form is that of draft-ietf-rats-corim
and of the samples of veraison/corim (53b3014e).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding

from provisioner.sim.hardware.device_authority import DeviceAuthority, Holder, sign_raw

_ES384 = -35


@dataclass(frozen=True)
class Tag:
    """A tagged value."""

    number: int
    value: Any


def encode(value: Any) -> bytes:
    """Return a value as CBOR."""
    if isinstance(value, bool) or value is None:
        return bytes([{False: 0xF4, True: 0xF5, None: 0xF6}[value]])
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        return _head(3, len(value.encode())) + value.encode()
    if isinstance(value, Tag):
        return _head(6, value.number) + encode(value.value)
    if isinstance(value, Mapping):
        rows = (encode(k) + encode(v) for k, v in value.items())
        return _head(5, len(value)) + b"".join(rows)
    return _head(4, len(value)) + b"".join(encode(one) for one in value)


def write_corim(
    digests: Mapping[Any, Sequence[bytes]], *, model: str = "CEC173x", version: str = "01.03"
) -> Any:
    """Return an unsigned CoRIM with one module; the keys are those of its measurements."""
    rows = [
        {0: key, 1: {0: {0: version}, 2: [[7, value] for value in values]}}
        for key, values in digests.items()
    ]
    environment = {0: {1: "Simulated maker", 2: model}}
    module = {1: {0: b"\x31" * 16}, 4: {0: [[environment, rows]]}}
    return Tag(501, {0: f"SIM_EROT_{version}", 1: [Tag(506, encode(module))]})


def sign_corim(
    corim: Any,
    by: DeviceAuthority,
    *,
    signer: Holder | None = None,
    headers: Mapping[int, Any] | None = None,
) -> bytes:
    """Return a CoRIM as a signed message with the chain of its signer."""
    holder = signer or by.make_signer()
    chain = [one.certificate.public_bytes(Encoding.DER) for one in (holder, by.family, by.root)]
    protected = encode({1: _ES384, 3: "application/rim+cbor", 33: chain, **(headers or {})})
    payload = encode(corim)
    signature = sign_raw(holder.key, encode(["Signature1", protected, b"", payload]))
    return encode(Tag(18, [protected, {}, payload, signature]))


def _head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    size = max(1, 1 << ((number.bit_length() + 7) // 8 - 1).bit_length())
    return bytes([major << 5 | 24 + size.bit_length() - 1]) + number.to_bytes(size, "big")
