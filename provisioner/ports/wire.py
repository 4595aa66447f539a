"""Requests to devices, and time: the interfaces that the simulator implements."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol

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
        """Return the body as JSON, its damaged values as `UNREADABLE`; raise `Malformed` if it is
        none (a UTF-8 byte order mark is accepted).
        """
        return self.read_marked()[0]

    def read_marked(self) -> tuple[Any, tuple[str, ...]]:
        """Return the body as `json` does, and the names of the fields that are damaged."""
        try:
            return parse_marked(self.body)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"not JSON: {error}") from None


# ------------------------------------------------------------------------------
# JSON with a damaged value: bytes that are no UTF-8, a bare control character, a number that is
# none. The value alone is lost. It stays there as `UNREADABLE`, which is no name, state or number:
# a port whose VRF cannot be read must not look like one without a VRF.


UNREADABLE = "\ufffd"  # what a decoder puts in the place of such bytes
_BARE = re.compile(r"[\x00-\x1f\ufffd\udc80-\udcff]")


def parse_marked(body: bytes | str) -> tuple[Any, tuple[str, ...]]:
    """Return the JSON value, and the names of its damaged fields. A body is given as bytes, or as
    text in which undecodable bytes were replaced. Raises ValueError or RecursionError.

    A field that is there twice with two values makes the whole unreadable: which one is meant is
    not known (RFC 8259, 4).
    """
    try:
        text = body if isinstance(body, str) else body.decode("utf-8-sig")
        if UNREADABLE not in text:  # nearly every body is sound
            return parse_sound(text), ()
    except (json.JSONDecodeError, UnicodeDecodeError, _NoNumber):
        text = body if isinstance(body, str) else body.decode("utf-8-sig", "replace")
    lost: dict[str, None] = {}

    def mark(value: Any, name: str) -> Any:
        if isinstance(value, list):
            return [mark(item, name) for item in value]
        damaged = isinstance(value, str) and _BARE.search(value) is not None
        if damaged or (isinstance(value, float) and not math.isfinite(value)):
            lost[name[:60]] = None
            return UNREADABLE
        return value

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        named = [(_BARE.sub(UNREADABLE, key), value) for key, value in pairs]
        for (key, _), (name, _) in zip(pairs, named, strict=True):
            if _BARE.search(key) is not None:
                lost[name[:60]] = None
        return _refuse_twice([(name, mark(value, name)) for name, value in named])

    value = json.loads(text, strict=False, object_pairs_hook=build)
    return mark(value, "") if not isinstance(value, dict) else value, tuple(lost)


def parse_sound(text: str) -> Any:
    """Return the JSON value of a text without any damage, at a fifth of the other readers' cost.

    Raises ValueError for all else: also for a number that is none, and two values of one name.
    """
    return _SOUND.decode(text)


def _read_finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


class _NoNumber(ValueError):
    """NaN or an infinity, which Python reads and JSON does not have."""


def _refuse(name: str) -> NoReturn:
    raise _NoNumber(name)


def _refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) != len(pairs):
        for key, value in pairs:
            if built[key] != value:
                raise ValueError(f"the field {ascii(key)[:60]} is there twice")
    return built


_SOUND = json.JSONDecoder(  # made once: to make one costs a fifth of reading a resource
    object_pairs_hook=_refuse_twice, parse_constant=_refuse, parse_float=_read_finite
)


class BmcTransport(Protocol):
    """Redfish requests to one BMC, as a logged-in client.

    The adapter owns sessions, TLS, pinning, per-BMC serialisation of writes, the login governor and
    size limits. It repeats a GET once on a dead connection, and never repeats anything else. Raises
    `PortError` subclasses only.
    """

    async def request(self, bmc: BmcAddress, call: Call) -> Reply: ...

    async def fingerprint(self, bmc: BmcAddress) -> str:
        """The SHA-256 of the certificate that the BMC presents now, for pinning on first use."""
        ...

    async def password_change(self, bmc: BmcAddress) -> str | None:
        """Log in, unless a session is open, and return the account whose password must change
        first.

        It is the account that the BMC names in its answer; "" if it names none, None if no change
        is needed.
        """
        ...

    async def forget(self, bmc: BmcAddress) -> None: ...

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
