"""Makes pseudonyms of the same form as the value: deterministic, by a keyed hash.

Two spellings of one MAC address, GUID or IP address get the same pseudonym in their spelling. A MAC
address keeps its maker's first three bytes.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Callable, Mapping

_HEX = "0123456789abcdefABCDEF"
_MAKER_DIGITS = 6  # of a MAC address
_MAC_DIGITS = 12


def make_pseudonym(key: bytes, kind: str, value: str) -> str:
    """Return the pseudonym of a value of this kind."""
    spelled = f"{kind} {_normalise(kind, value)}".encode(errors="surrogatepass")
    return _MAKERS[kind](value, hmac.new(key, spelled, "sha512").digest())


def list_spellings(kind: str, value: str) -> list[str]:
    """Return other spellings in which the same value may stand elsewhere."""
    digits = re.sub("[^0-9a-fA-F]", "", value)
    if kind == "MAC address" and len(digits) == _MAC_DIGITS:
        pairs = [digits[n : n + 2] for n in range(0, _MAC_DIGITS, 2)]
        fours = [digits[n : n + 4] for n in range(0, _MAC_DIGITS, 4)]
        return [digits, ":".join(pairs), "-".join(pairs), ".".join(fours)]
    if kind == "MAC address":
        return [digits]
    return []


def _normalise(kind: str, value: str) -> str:
    if kind in ("MAC address", "GUID"):
        bare = value[2:] if value[:2].lower() == "0x" else value
        if not re.search("[g-z]", bare, re.IGNORECASE):
            return re.sub("[^0-9a-f]", "", bare.lower())
    if kind == "IP address":
        return str(ipaddress.ip_address(value))
    return value.lower()


def _keep_form(value: str, digest: bytes) -> str:
    """Return text of the same length: a digit for a digit, a letter for a letter."""
    if value[:2].lower() == "0x":
        return _keep_hex(value, digest, 0)
    made = []
    for number, c in enumerate(value):
        one = digest[number % len(digest)]
        if not c.isalnum() or not c.isascii():
            made.append(c)
        elif c.isdigit():
            made.append(str(one % 10))
        else:
            letter = chr(ord("A") + one % 26)
            made.append(letter if c.isupper() else letter.lower())
    return "".join(made)


def _keep_hex(value: str, digest: bytes, kept: int) -> str:
    """Return hex digits for hex digits, after the first `kept`; "0x" and separators stay."""
    digits = digest.hex()
    start = 2 if value[:2].lower() == "0x" else 0
    made = [value[:start]]
    passed = 0
    for c in value[start:]:
        if c in _HEX:
            made.append(c if passed < kept else digits[passed % len(digits)])
            passed += 1
        else:
            made.append(c)
    whole = "".join(made)
    return whole.upper() if value.upper() == value else whole


def _make_guid(value: str, digest: bytes) -> str:
    return _keep_hex(value, digest, 0)


def _make_mac(value: str, digest: bytes) -> str:
    whole = sum(c in _HEX for c in value) == _MAC_DIGITS
    return _keep_hex(value, digest, _MAKER_DIGITS if whole else 0)


def _make_address(value: str, digest: bytes) -> str:
    number = int.from_bytes(digest[:8], "big")
    address = ipaddress.ip_address(value)
    if address.version == 4:  # RFC 2544: a network for measurements, of no site
        network = ipaddress.ip_network("198.18.0.0/15")
        return str(network[1 + number % (network.num_addresses - 2)])
    network6 = "fe80::/64" if address.is_link_local else "2001:db8::/64"  # RFC 3849
    return str(ipaddress.IPv6Network(network6)[number])


def _make_name(_value: str, digest: bytes) -> str:
    return f"name-{digest.hex()[:8]}"


def _make_user(_value: str, digest: bytes) -> str:
    return f"user-{digest.hex()[:8]}"


_MAKERS: Mapping[str, Callable[[str, bytes], str]] = {
    "serial number": _keep_form,
    "licence": _keep_form,
    "GUID": _make_guid,
    "MAC address": _make_mac,
    "IP address": _make_address,
    "name": _make_name,
    "user": _make_user,
}
