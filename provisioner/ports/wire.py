"""Requests to devices, and time: the interfaces that the simulator implements."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from provisioner.ports.errors import Malformed


class Secret:
    """A password or token that no log, repr or traceback shows; only adapters call `reveal()`."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value itself; only an adapter that is about to send it may call this."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True)
class BmcAddress:
    """The URL and login of a BMC. Without `secret`, only unauthenticated resources are read.

    `pin` is the SHA-256 of its certificate (DER, hex); "" means: verify against the trusted CAs,
    unless `insecure`, which a person configured and which is logged.
    """

    url: str
    username: str = ""
    secret: Secret | None = None
    pin: str = ""
    insecure: bool = False


@dataclass(frozen=True)
class Upload:
    """A multipart push: parts in the order listed, the image streamed with Content-Length.

    `parts` are (name, content type, body) before the image part `file_part`. Where `session_part`
    is set, the adapter sends the session's key as the first part of this name, and as a cookie.
    """

    parts: tuple[tuple[str, str, bytes], ...]
    file: Path
    file_name: str
    file_part: str = "UpdateFile"
    session_part: str = ""


@dataclass(frozen=True)
class Call:
    """One HTTP request: `path` begins with "/"; `body` is JSON or an upload.

    `known_s`: the age up to which a cached answer of a service root is accepted. `alone`: a read
    with no other soon before or after it, for which a session need not be opened.
    """

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 30.0
    size_max_bytes: int = 8 * 1024 * 1024
    known_s: float = 0.0
    alone: bool = False


@dataclass(frozen=True)
class Reply:
    """One HTTP answer with any status. Header names are lowercase.

    `stated`: the status that the device gave, where its body calls for the other; 0: the same.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    stated: int = 0

    def json(self) -> Any:
        """Return the body as JSON; raise `Malformed` if it is none (a UTF-8 byte order mark is
        accepted).
        """
        try:
            return json.loads(self.body.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise Malformed(f"not JSON: {error}") from None


class BmcTransport(Protocol):
    """Redfish requests to one BMC, as a logged-in client.

    The adapter owns sessions, TLS, pinning, per-BMC serialisation of writes, the login governor and
    size limits. It repeats a GET once on a dead connection, and never repeats anything else. Raises
    `PortError` subclasses only.
    """

    async def request(self, bmc: BmcAddress, call: Call) -> Reply: ...

    async def fingerprint(self, bmc: BmcAddress) -> str:
        """Return the SHA-256 of the certificate that the BMC presents now, for pinning on first
        use.
        """
        ...

    async def password_change(self, bmc: BmcAddress) -> str | None:
        """Log in, unless a session is open, and return the account whose password must change
        first.

        It is the account that the BMC names in its answer; "" if it names none, None if no change
        is needed.
        """
        ...

    async def forget(self, bmc: BmcAddress) -> None:
        """Log out and drop the cached data of this BMC."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True)
class SwitchAddress:
    """Management address of a switch, "https://10.0.0.1:8765", with its operating system.

    `system`: "" where none was recorded; then the address' scheme decides.
    """

    url: str
    username: str = ""
    secret: Secret | None = None
    pin: str = ""
    system: str = ""


class SwitchTransport(Protocol):
    """Requests to a switch's REST API over HTTPS. Raises `PortError` subclasses only."""

    async def request(self, switch: SwitchAddress, call: Call) -> Reply: ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """The only source of time above the adapters, in Unix seconds."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


# ------------------------------------------------------------------------------
# Replies that are not JSON, as text for people.


READ_MAX_BYTES = 65_536
SAID_MAX = 200
_NOT_SHOWN = re.compile(r"<(script|style|head)\b.*?</\1\s*>|<[^>]*>", re.IGNORECASE | re.DOTALL)


def plain_text(reply: Reply) -> str:
    """Return the text of the body without markup, on one short line; "" if there is none."""
    text = reply.body[:READ_MAX_BYTES].decode("utf-8", "replace")
    if "<" in text[:SAID_MAX]:
        text = _NOT_SHOWN.sub(" ", text)
    line = " ".join(text.split())
    return "".join(c for c in line if c.isprintable())[:SAID_MAX].rstrip()


def status_words(reply: Reply) -> str:
    """Return "status 403: TEXT" with the text of the body, or the status alone where it is
    empty.
    """
    return ": ".join(filter(None, (f"status {reply.status}", plain_text(reply))))
