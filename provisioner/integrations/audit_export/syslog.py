"""Hands rows to a syslog receiver over TLS, and waits for the proof that it read them.

Syslog has no acknowledgement of its own. The end of a TLS connection is one: a receiver answers our
close_notify with its own (RFC 5425 section 4.4), and TLS keeps the order, so that it has read all
that was sent before. Therefore each batch of rows has a connection of its own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from provisioner.adapters.bounded_http import error_words
from provisioner.integrations.audit_export.form import make_syslog_frame
from provisioner.model.integrations.audit_export import ExportOutcome
from provisioner.model.integrations.webhook import JournalRow

NO_ANSWER = (
    "the receiver ended the connection without close_notify, so that nothing proves that it read "
    "the rows (audit_syslog_receipt)"
)
UNEXPECTED_END = "UNEXPECTED_EOF_WHILE_READING"  # in Python 3.11.2, which knows it as no EOF


@dataclass(frozen=True)
class SyslogReceiver:
    """Where messages go, and how."""

    host: str
    port: int
    context: ssl.SSLContext
    receipt: Literal["close_notify", "end"]
    bytes_max: int


class SyslogSink:
    """`ports.AuditSink` over TLS."""

    receiver = "syslog"

    def __init__(self, to: SyslogReceiver, site: str) -> None:
        # Debian 12's Python 3.11.2 sets it: any end of the connection would count as close_notify
        to.context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        self._to = to
        self._site = site
        self._hostname = socket.gethostname()

    async def send(self, rows: Sequence[JournalRow], timeout_s: float) -> ExportOutcome:
        """As `ports.AuditSink`. The sockets block, therefore a thread does it."""
        most = self._to.bytes_max
        frames = b"".join(make_syslog_frame(r, self._site, self._hostname, most) for r in rows)
        return await asyncio.to_thread(self._hand_over, frames, timeout_s)

    def _hand_over(self, frames: bytes, timeout_s: float) -> ExportOutcome:
        where = (self._to.host, self._to.port)
        try:
            with (
                socket.create_connection(where, timeout_s) as plain,
                self._to.context.wrap_socket(plain, server_hostname=self._to.host) as wire,
            ):
                wire.sendall(frames)
                return self._await_receipt(wire)
        except (OSError, ValueError) as error:
            return ExportOutcome(taken=False, error=error_words(error))

    def _await_receipt(self, wire: ssl.SSLSocket) -> ExportOutcome:
        """End the connection. A reset raises: the receiver had not read everything."""
        try:
            wire.unwrap().close()
        except ssl.SSLError as error:
            if not isinstance(error, ssl.SSLEOFError) and error.reason != UNEXPECTED_END:
                raise
            if self._to.receipt == "close_notify":
                return ExportOutcome(taken=False, error=NO_ANSWER)
        return ExportOutcome(taken=True)

    async def close(self) -> None:
        """Nothing stays open between two batches."""
