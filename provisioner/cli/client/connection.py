"""One request to a daemon and its answer: through its unix socket, or over verified TLS.

Only the standard library is used, so that a command starts fast. A change carries an idempotency
key: if its answer was lost, it is sent again with the same key and is made once.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode, urlsplit

import typer

from provisioner.model.input_error import InputError
from provisioner.runtime.whole_files import replace_file

# ------------------------------------------------------------------------------
# Contexts: the daemons that a person works with, by name, in one file of their own.
#
# The file holds addresses and names of files, never a token. The daemon of a command is chosen by,
# in this order: its options, PROVISIONER_SERVER, PROVISIONER_DATA, the context in use, and last the
# unix socket of the data directory `var`.


DATA = Path("var")  # the data directory where nothing names another one
SIZE_MAX = 1024 * 1024  # bytes
NAME_MAX = 64


@dataclass(frozen=True)
class Place:
    """The address of a daemon: a server, or the socket of a data directory."""

    server: str = ""
    data: str = ""
    token_file: str = ""
    ca: str = ""

    def __str__(self) -> str:
        return self.server or f"the unix socket of {self.data}"


@dataclass(frozen=True)
class Contexts:
    """All contexts, and the one in use; "" for none."""

    places: Mapping[str, Place]
    current: str = ""


def find_file() -> Path:
    """Return the file of contexts (XDG Base Directory Specification)."""
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path("~/.config").expanduser())
    return Path(home) / "provisioner" / "contexts.json"


def read_contexts() -> Contexts:
    """Return the contexts; none without a file. Raises InputError for an unreadable one."""
    file = find_file()
    try:
        with file.open("rb") as opened:
            document = json.loads(opened.read(SIZE_MAX))
        places = {str(n): Place(**p) for n, p in document["contexts"].items()}
        return Contexts(places, str(document.get("current", "")))
    except FileNotFoundError:
        return Contexts({})
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        problem = f"it cannot be read ({type(error).__name__})"
        raise InputError(str(file), "", problem, "Correct it, or delete it.") from None


def write_contexts(contexts: Contexts) -> None:
    """Replace the file by these contexts. Raises InputError if it cannot be written."""
    file = find_file()
    places = {name: asdict(place) for name, place in contexts.places.items()}
    document = {"current": contexts.current, "contexts": places}
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError(str(file), "", problem, "Check its owner and mode.") from None


def find_place(given: Mapping[str, object]) -> Place:
    """Return the daemon for a command. `given`: its options by name. Raises InputError."""
    server = str(given.get("server") or "")
    data = str(given.get("data") or "")
    name = str(given.get("context") or "")
    if sum(map(bool, (server, data, name))) > 1:
        problem = "--context, --server and --data exclude each other"
        raise InputError("--context", "", problem, "Give one of them.")
    more = {
        "token_file": str(given.get("token_file") or os.environ.get("PROVISIONER_TOKEN_FILE", "")),
        "ca": str(given.get("ca_file") or os.environ.get("PROVISIONER_CA", "")),
    }
    if not (server or data or name):
        server = os.environ.get("PROVISIONER_SERVER", "")
        data = "" if server else os.environ.get("PROVISIONER_DATA", "")
    if server or data:
        return Place(server=server, data=data, **more)
    contexts = read_contexts()
    name = name or contexts.current
    if not name:
        return Place(data=str(DATA))
    if name not in contexts.places:
        names = ", ".join(sorted(contexts.places)) or "none"
        problem = "there is no such context"
        raise InputError("--context", name[:NAME_MAX], problem, f"Known: {names}.")
    place = contexts.places[name]
    return Place(
        place.server, place.data, more["token_file"] or place.token_file, more["ca"] or place.ca
    )


SOCKET = "api.sock"  # in the data directory; `provisioner/daemon/api.py` has the same name
PREFIX = "/v1"
TRIES = 3  # tries of one request whose answer was lost
WAIT_S = 0.5  # seconds before the second try; doubles
FILE_S = 3600.0  # seconds without a byte of a file; the daemon reads and writes it meanwhile
LIMIT_S = 150.0  # seconds for one request; a scan before an intake takes longest
CONNECTION_SIZE_MAX = (
    256 * 1024 * 1024
)  # bytes; a case's archive may be large, everything else is small
LINE_MAX = 1024 * 1024  # bytes of one line of a stream
LIMITED = 429  # the caller asked too often: tried again after Retry-After
PATIENCE_S = 300.0  # seconds that one request waits in all, when asked to wait
STEADY = frozenset({502, 503, 504})  # of a balancer or a full daemon: it may pass
PATH_MAX = 100  # bytes of a socket's path (unix(7) has 108)


class NoAnswer(Exception):
    """No daemon answered, or the answer is not one of a daemon. The exit code is 1."""


@dataclass(frozen=True)
class Answer:
    """One answer.

    `document` is its JSON; None where it has none, and then `content` holds the bytes.
    """

    status: int
    document: Any
    content: bytes = b""
    location: str = ""
    etag: str = ""
    retry_after_s: float = 0.0  # 0: the server did not say

    @property
    def good(self) -> bool:
        return self.status < 400


Connect = Callable[[float | None], http.client.HTTPConnection]


class Connection:
    """Requests to one daemon; each has a connection of its own."""

    def __init__(self, connect: Connect, place: Place, headers: Mapping[str, str]) -> None:
        self._connect = connect
        self.place = place
        self._headers = headers

    def send_request(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        changes: bool = False,
    ) -> Answer:
        """Send one request, up to TRIES times; an answer's Retry-After is obeyed for PATIENCE_S.

        Raises NoAnswer.
        """
        named = {**self._headers, **(headers or {})}
        if changes:
            named.setdefault("Idempotency-Key", str(uuid.uuid4()))
        waited_s = 0.0
        attempt = 0
        while True:
            attempt += 1
            wait_s = WAIT_S * 2 ** (min(attempt, TRIES) - 1)
            try:
                answer = self._once(verb, path, query, body, named)
                if answer.status == LIMITED or answer.status in STEADY:
                    wait_s = answer.retry_after_s or wait_s
                over = answer.status != LIMITED and attempt >= TRIES
                good = answer.status != LIMITED and answer.status not in STEADY
                if good or over or waited_s + wait_s > PATIENCE_S:
                    return answer
            except http.client.InvalidURL as error:
                raise NoAnswer(f"{path[:80]!r}: {error}") from None
            except (OSError, http.client.HTTPException) as error:
                if attempt >= TRIES:
                    raise NoAnswer(f"{self.place}: {_words(error)}") from None
            time.sleep(wait_s)
            waited_s += wait_s

    def _once(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Any,
        headers: Mapping[str, str],
    ) -> Answer:
        raw = None if body is None else json.dumps(body).encode()
        sent = {**headers, "Content-Type": "application/json"} if raw is not None else dict(headers)
        with closing(self._connect(LIMIT_S)) as connection:
            connection.request(verb, _target(path, query), raw, sent)
            answer = connection.getresponse()
            content = answer.read(CONNECTION_SIZE_MAX + 1)
        if len(content) > CONNECTION_SIZE_MAX:
            raise NoAnswer(f"{path}: the answer is larger than {CONNECTION_SIZE_MAX} bytes")
        kind = answer.headers.get_content_type()
        location = answer.headers.get("Location", "")
        etag = answer.headers.get("ETag", "")
        waits_s = _retry_after_s(answer)
        return Answer(answer.status, _document(kind, content), content, location, etag, waits_s)

    def send_file(
        self, path: str, query: Mapping[str, str], size_bytes: int, chunks: Iterator[bytes]
    ) -> Answer:
        """Send a file's bytes once, as the body of a PUT. Raises NoAnswer."""
        headers = {
            **self._headers,
            "Content-Type": "application/octet-stream",
            "Content-Length": str(size_bytes),
        }
        try:
            with closing(self._connect(FILE_S)) as connection:
                connection.request("PUT", _target(path, query), chunks, headers)
                answer = connection.getresponse()
                content = answer.read(CONNECTION_SIZE_MAX)
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(f"{self.place}: {_words(error)}") from None
        document = _document(answer.headers.get_content_type(), content)
        return Answer(answer.status, document, content, answer.headers.get("Location", ""))

    def follow_events(self, path: str, query: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """Yield events as they come, and continue after a break. Raises NoAnswer."""
        query_now = dict(query)
        attempt = 0
        while True:
            attempt = attempt + 1
            wait_s = WAIT_S
            broken = "the stream ended"
            try:
                with closing(self._connect(None)) as connection:
                    connection.request("GET", _target(path, query_now), headers=dict(self._headers))
                    answer = connection.getresponse()
                    if answer.status in (LIMITED, *STEADY):
                        wait_s = min(_retry_after_s(answer) or WAIT_S, PATIENCE_S)
                        broken = f"status {answer.status}"
                    elif answer.status != 200:
                        raise NoAnswer(f"{path}: status {answer.status}")
                    else:
                        for number, event in _events(answer):
                            # the server ends a stream now and then; a new one continues it
                            attempt = 0
                            query_now["after"] = number or query_now.get("after", "-1")
                            yield event
            except (OSError, http.client.HTTPException) as error:
                broken = _words(error)
            if attempt >= TRIES:
                raise NoAnswer(f"{self.place}: {broken}")
            time.sleep(wait_s)


def connect(place: Place) -> Connection:
    """Return a connection to a daemon. Raises InputError for an unusable address."""
    if not place.server:
        file = Path(place.data) / SOCKET
        return Connection(lambda limit_s: _LocalConnection(file, limit_s), place, {})
    parts = urlsplit(place.server)
    if parts.scheme != "https" or not parts.hostname:
        remedy = "Write https://HOST:PORT; a token is never sent in clear."
        raise InputError("--server", place.server[:80], "not an https address", remedy)
    host = parts.hostname
    port = parts.port or 443
    trust = ssl.create_default_context(cafile=place.ca or None)
    headers = {"Authorization": f"Bearer {_find_token(place)}"}

    def over_tls(limit_s: float | None) -> http.client.HTTPConnection:
        return http.client.HTTPSConnection(host, port, timeout=limit_s, context=trust)

    return Connection(over_tls, place, headers)


class _LocalConnection(http.client.HTTPConnection):
    """HTTP through a unix socket."""

    def __init__(self, file: Path, limit_s: float | None) -> None:
        super().__init__("localhost", timeout=limit_s)
        self._file = file

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        try:
            if len(os.fsencode(self._file)) <= PATH_MAX:
                self.sock.connect(str(self._file))
                return
            directory = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                self.sock.connect(f"/proc/self/fd/{directory}/{self._file.name}")
            finally:
                os.close(directory)
        except OSError as error:
            raise _no_daemon(self._file, error) from None


def _no_daemon(file: Path, error: OSError) -> NoAnswer:
    if isinstance(error, PermissionError):
        remedy = "The daemon's own user and root may ask here; others name a --server and a token."
        return NoAnswer(f"{file}: it is another user's. {remedy}")
    remedy = (
        "Start `provisioner serve`, name its directory with --data or a server with --server, or "
        "read the directory itself with --offline."
    )
    return NoAnswer(f"{file}: no daemon answers here. {remedy}")


def _find_token(place: Place) -> str:
    """Return the token of the place's file, else of its sign-in. Raises InputError for none."""
    if place.token_file:
        return _read_token(place.token_file)
    # imported only here: a command with a token file, or at a socket, starts without it
    token: str = import_module("provisioner.runtime.integrations").find_signed_in_token(place)
    if not token:
        remedy = (
            "Give --token-file FILE, set PROVISIONER_TOKEN_FILE, add it to the context, or run "
            "`provisioner sign-in`."
        )
        raise InputError("--token-file", "", "it is not given", remedy)
    return token


def _read_token(name: str) -> str:
    """Return the token of a file. Raises InputError if it holds none."""
    try:
        with Path(name).expanduser().open(encoding="ascii") as file:
            token = file.read(8192).strip()
    except (OSError, ValueError) as error:
        problem = f"it cannot be read ({type(error).__name__})"
        raise InputError("--token-file", name, problem, "Check its path, owner and mode.") from None
    if not token or not token.isprintable():
        remedy = "Write one token of `provisioner token create` into it."
        raise InputError("--token-file", name, "it holds no token", remedy)
    return token


def _target(path: str, query: Mapping[str, str] | None) -> str:
    quoted = quote(path, safe="/%:@!$&'()*+,;=~?")  # names are quoted already, links may not be
    return PREFIX + quoted + (f"?{urlencode(query)}" if query else "")


def _retry_after_s(answer: http.client.HTTPResponse) -> float:
    """Return the seconds of Retry-After (RFC 9110 section 10.2.3), 0.0 without a readable one."""
    text = answer.headers.get("Retry-After", "").strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0.0


def _document(kind: str, content: bytes) -> Any:
    if not kind.endswith("json"):
        return None
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise NoAnswer("the answer is no JSON, though it says so") from None


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (number, event) of server-sent events (WHATWG HTML, section 9.2)."""
    number = ""
    data = ""
    while line := answer.readline(LINE_MAX):
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        name, _, value = text.partition(": ")
        if name == "id":
            number = value
        elif name == "data":
            data += value
        elif not text and data:
            event = json.loads(data)
            if isinstance(event, dict):
                yield number, event
            data = ""


def _words(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}. Name its CA with --ca."
    return str(error) or type(error).__name__


# ------------------------------------------------------------------------------
# Options that say which daemon a command written by hand asks, and the connection to it.


ContextOption = Annotated[str, typer.Option("--context", help="Context: a daemon by its name.")]
DataOption = Annotated[Path | None, typer.Option("--data", help="Data directory of a daemon.")]
ServerOption = Annotated[str, typer.Option("--server", help="https://HOST:PORT of a daemon.")]
TokenOption = Annotated[Path | None, typer.Option("--token-file", help="File with a token.")]
CaOption = Annotated[
    Path | None, typer.Option("--ca", help="File with the CA of the daemon's certificate.")
]


def open_connection(
    *,
    context: str = "",
    data: Path | None = None,
    server: str = "",
    token_file: Path | None = None,
    ca_file: Path | None = None,
) -> Connection:
    """Return a connection to the daemon that these options name. Raises InputError."""
    options = {
        "context": context,
        "data": data,
        "server": server,
        "token_file": token_file,
        "ca_file": ca_file,
    }
    return connect(find_place(options))
