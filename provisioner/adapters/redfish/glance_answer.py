"""Reads the answer to a glance from its bytes, in bounds, with httptools' parser.

llhttp bounds neither the head nor the body, and it reports no end of an answer whose length only
the end of the connection shows. Both are done here. A coding of the body is not undone: none was
asked for, and the ordinary way knows how to treat a BMC that sends one in spite of that.
"""

from __future__ import annotations

import httptools

from provisioner.ports import Malformed, Reply, TooLarge

HEAD_MAX_BYTES = 64 * 1024  # names and values; real ones have one KiB


class GlanceAnswer:
    """One answer. `feed` takes its bytes as they come; `reply` is set once it is whole."""

    def __init__(self, size_max_bytes: int) -> None:
        self.reply: Reply | None = None
        self._size_max_bytes = size_max_bytes
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._head_size = 0
        self._begun = False

    def feed(self, received: bytes) -> None:
        """Take in bytes. Raises `TooLarge`, or `Malformed` for what is no HTTP."""
        if self.reply is not None:
            return  # what follows the answer was not asked for
        try:
            self._parser.feed_data(received)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self.reply is not None:
                return
            cause = error.__context__  # the error of a callback below
            if isinstance(cause, TooLarge | Malformed):
                raise cause from None
            raise Malformed(f"no HTTP answer: {error}") from None

    def end(self) -> None:
        """The connection ended: an answer without a stated length ends with it."""
        bounded = self._headers.keys() & {"content-length", "transfer-encoding"}
        if self.reply is None and self._begun and not bounded:
            self._finish()

    # callbacks of the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep the first of several headers with one name (facts E5)."""
        self._head_size += len(name) + len(value)
        if self._head_size > HEAD_MAX_BYTES:
            raise TooLarge(f"headers over {HEAD_MAX_BYTES} bytes")
        self._headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """Refuse a body that announces too much, or comes in a coding."""
        self._begun = self._parser.get_status_code() >= 200
        announced = self._headers.get("content-length", "")
        if announced.isascii() and announced.isdigit() and int(announced) > self._size_max_bytes:
            raise TooLarge(f"announces {announced[:20]} bytes of {self._size_max_bytes}")
        coding = self._headers.get("content-encoding", "").strip().lower()
        if coding not in ("", "identity"):
            raise Malformed(f"content coding {coding[:20]!r} was not asked for")

    def on_body(self, piece: bytes) -> None:
        """Keep a piece of the body."""
        self._size += len(piece)
        if self._size > self._size_max_bytes:
            raise TooLarge(f"over {self._size_max_bytes} bytes")
        self._body.append(piece)

    def on_message_complete(self) -> None:
        """The answer is whole; a provisional one (1xx) is followed by another."""
        if self._begun:
            if self.reply is None:
                self._finish()
        else:
            self._headers.clear()

    def _finish(self) -> None:
        status = self._parser.get_status_code()
        self.reply = Reply(status, dict(self._headers), b"".join(self._body))


def read_answer(received: bytes, size_max_bytes: int) -> Reply | None:
    """Return the answer that a connection brought until it ended; None if it is not whole."""
    answer = GlanceAnswer(size_max_bytes)
    answer.feed(received)
    answer.end()
    return answer.reply
