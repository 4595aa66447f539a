"""TLS of a server, from a key and a certificate in memory."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path


def open_server_context(pem: bytes) -> ssl.SSLContext:
    """Return TLS that shows the certificate of `pem`, which has its private key as well."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory() as folder:  # mode 0700; `ssl` takes keys from files only
        file = Path(folder) / "server.pem"
        file.touch(0o600)
        file.write_bytes(pem)
        context.load_cert_chain(file)
    return context
