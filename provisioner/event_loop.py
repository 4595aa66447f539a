"""An event loop whose TLS connections are small: the daemon keeps tens of thousands of them.

asyncio keeps a 256 KiB buffer for each TLS connection (308 KB measured); uvloop needs 57 KB, and
asyncio with a smaller buffer 67 KB (facts/redfish 1.5).
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto

TLS_BUFFER_BYTES = 16 * 1024  # one TLS record (RFC 8446 section 5.1), the least that makes sense


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's loop if it is there, else asyncio's with the small buffer.

    For `asyncio.Runner(loop_factory=new_event_loop)`.
    """
    try:
        import uvloop
    except ImportError:
        shrink_tls_buffers()
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def shrink_tls_buffers() -> bool:
    """Make asyncio's TLS buffers small, for connections from now on; False if it cannot be done.

    `SSLProtocol.max_size` is no promised interface: it is changed only where it is as we know it.
    """
    protocol = getattr(asyncio.sslproto, "SSLProtocol", None)
    size = getattr(protocol, "max_size", None)
    if protocol is None or not isinstance(size, int) or size < TLS_BUFFER_BYTES:
        return False
    protocol.max_size = TLS_BUFFER_BYTES
    return True
