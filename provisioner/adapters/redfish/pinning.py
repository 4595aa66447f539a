"""What certificate a BMC presents, without believing it: for pinning on first use.

Every BMC ships with a self-signed certificate and makes a new one at a factory reset (facts T15),
so a pin is taken once, by intake, and compared ever after.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl

from yarl import URL

from provisioner.adapters.bounded_http import (
    CONNECT_MAX_S,
    Attempt,
    bare_context,
    port_error,
)
from provisioner.ports import Malformed


async def presented_fingerprint(url: str, limit_s: float = CONNECT_MAX_S) -> str:
    """SHA-256 of the certificate (DER) as lowercase hex; "" for plain http, which has none.

    Raises Unreachable, or Malformed if the peer does not speak TLS.
    """
    try:
        place = URL(url)
    except ValueError as error:
        raise Malformed(f"{url}: {error}") from None
    if place.scheme == "http":
        return ""
    attempt = Attempt(safe=True)
    try:
        async with asyncio.timeout(limit_s):
            _, writer = await asyncio.open_connection(
                place.host, place.port, ssl=bare_context(), server_hostname=place.host
            )
            certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.transport.abort()  # nothing was asked, so nothing is waited for
    except ssl.SSLError as error:
        raise Malformed(f"{url}: no TLS: {error.reason}") from None
    except (OSError, ValueError) as error:
        raise port_error(url, error, attempt) from None
    if not certificate:
        raise Malformed(f"{url}: presents no certificate")
    return hashlib.sha256(certificate).hexdigest()
