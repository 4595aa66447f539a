"""Creates an event loop with small TLS connections, which lets the store's threads run soon.

The daemon keeps tens of thousands of connections. asyncio keeps a 256 KiB buffer for each TLS
connection (308 KB measured); uvloop needs 57 KB, and asyncio with a smaller buffer 67 KB
(facts/redfish 1.5).
"""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import sys

# A thread that waits for the interpreter gets it after this time. A store's thread waits once for
# each statement: with CPython's 5 ms a transaction of 100 statements takes half a second beside a
# busy loop, and holds the lock of the only writer among all daemons for that time. Measured: writes
# 2.5 times as fast on PostgreSQL, 1.3 times on a file, for a twentieth of the loop's iterations.
SWITCH_S = 0.0005
TLS_BUFFER_BYTES = 16 * 1024  # one TLS record (RFC 8446 section 5.1), the useful minimum


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop if it is installed, else asyncio's with the small buffer.

    For `asyncio.Runner(loop_factory=new_event_loop)`.
    """
    sys.setswitchinterval(SWITCH_S)
    try:
        import uvloop
    except ImportError:
        shrink_tls_buffers()
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def shrink_tls_buffers() -> bool:
    """Make asyncio's TLS buffers small for later connections; return False if it is not possible.

    `SSLProtocol.max_size` is not a public interface: it is changed only where it is as expected.
    """
    protocol = getattr(asyncio.sslproto, "SSLProtocol", None)
    size = getattr(protocol, "max_size", None)
    if protocol is None or not isinstance(size, int) or size < TLS_BUFFER_BYTES:
        return False
    protocol.max_size = TLS_BUFFER_BYTES
    return True
