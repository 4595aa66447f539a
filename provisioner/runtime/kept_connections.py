"""Connections of senders that stay open between their requests: the newest ones, up to a number.

A sender that comes back on its old connection saves both sides a TLS handshake, which costs more
than all else of a small request. A connection costs memory, so that their number is bounded, and
the one that was silent for the longest makes room. Its sender connects anew at its next request.

The rule that a reader would otherwise break: only a request whose secret was checked may be kept;
strangers have `Limits.stranger_s` and nothing more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol


class Closing(Protocol):
    """A connection that can be closed."""

    def force_close(self) -> None:
        """Close it now."""
        ...


class KeptConnections:
    """The open connections of proved senders, the last heard of at the end."""

    def __init__(self, most: int = 0, prove: Callable[[Any], None] = lambda _: None) -> None:
        """`most` of them stay open; `prove` shows the listener that one is no stranger's."""
        self._most = most
        self._prove = prove
        self._kept: OrderedDict[Closing, None] = OrderedDict()

    def close(self) -> None:
        """Close all of them."""
        while self._kept:
            self._kept.popitem()[0].force_close()

    def begin(self, connection: Closing) -> None:
        """Leave a connection alone while it has a request: only one that is silent makes room."""
        self._kept.pop(connection, None)

    def keep(self, connection: Closing) -> bool:
        """Return whether a connection stays open; another one may be closed for it."""
        if not self._most:
            return False
        self._prove(connection)
        self._kept[connection] = None
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)[0].force_close()  # one that has ended is left so
        return True
