"""Options from people, checked before anything is opened, changed or sent."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from provisioner.model.input_error import InputError
from provisioner.runtime.late_module import LateModule

if TYPE_CHECKING:
    from provisioner import ports
else:  # it brings settings and checks with it, which a command without a network never needs
    ports = LateModule("provisioner.ports")

# ------------------------------------------------------------------------------
# Times on the command line: a day, an instant with its zone, or seconds since 1970.


def parse_time(option: str, text: str) -> float:
    """Return the seconds since 1970; without a zone the time is UTC. Raises InputError."""
    try:
        if re.fullmatch(r"\d{9,11}(?:\.\d+)?", text):
            return float(text)
        parsed = datetime.fromisoformat(text)
    except ValueError:
        remedy = "Write it as 2026-11-22, or as 2026-11-22T12:00:00Z."
        raise InputError(option, text[:40], "it is no time", remedy) from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


# ------------------------------------------------------------------------------
# Options of every command that prints something.


JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


PATH_CHARACTERS = r"[A-Za-z0-9._~/-]*"  # no escapes: not every BMC's client keeps them
PASSWORD = "PROVISIONER_BMC_PASSWORD"  # noqa: S105 (the name of the variable)


def check_url(option: str, url: str) -> str:
    """Return the origin of a Redfish service, without a path."""
    try:
        parts = urlsplit(url)
        port_ok = parts.port is None or parts.port > 0
    except ValueError as error:
        raise InputError(option, url, str(error), "Write https://HOST:PORT.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_ok:
        raise InputError(option, url, "not an http(s) address", "Write https://HOST:PORT.")
    if parts.username or parts.password:
        remedy = f"Give the user with --user and the password in {PASSWORD}."
        if option == "--bmc":
            remedy = "Factory credentials stand on the expected-hardware list."
        raise InputError(option, parts.hostname, "it must not hold credentials", remedy)
    if parts.path.rstrip("/") not in ("", "/redfish", "/redfish/v1") or parts.query:
        remedy = "Leave the path out; the service root is always /redfish/v1."
        raise InputError(option, url, "it has a path", remedy)
    return f"{parts.scheme}://{parts.netloc}"


def check_artifact_url(url: str) -> str:
    """Return the address of the files without a final slash; "" for none. Raises InputError."""
    if not url:
        return ""
    option = "--artifact-url"
    form = "Write http(s)://HOST[:PORT]/PATH."
    try:
        parts = urlsplit(url)
        port_ok = parts.port is None or parts.port > 0
    except ValueError as error:
        raise InputError(option, "", str(error)[:200], form) from None
    if parts.username is not None or parts.password is not None:
        problem = "it must not hold credentials: BMCs do not log in, and they would show them"
        remedy = "Let the server, or the bucket's policy, admit the site's networks instead."
        raise InputError(option, parts.hostname or "", problem, remedy)
    if "?" in url or "#" in url:
        problem = "it has a query or a fragment: signed addresses end, and BMCs keep no secret"
        remedy = "Let the server, or the bucket's policy, admit the site's networks instead."
        raise InputError(option, parts.hostname or "", problem, remedy)
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_ok:
        raise InputError(option, url[:200], "not an http(s) address", form)
    path = parts.path.rstrip("/")
    segments = path.split("/")[1:]
    if not re.fullmatch(PATH_CHARACTERS, path) or {"", ".", ".."} & set(segments):
        problem = "its path is none that every device would ask for alike"
        raise InputError(option, url[:200], problem, "Use plain folder names: letters, digits.")
    return f"{parts.scheme}://{parts.netloc}{path}"


def check_pin(pin: str, *, insecure: bool) -> str:
    """Return 64 lowercase hexadecimal digits, or "" for none."""
    if not pin:
        return ""
    if insecure:
        remedy = "Use --pin alone: it is the safer one."
        raise InputError("--pin", "--insecure", "they exclude each other", remedy)
    plain = pin.replace(":", "").lower()
    if not re.fullmatch(r"[0-9a-f]{64}", plain):
        remedy = "Give 64 hexadecimal digits, as `openssl x509 -fingerprint -sha256` prints them."
        raise InputError("--pin", pin[:80], "not a SHA-256", remedy)
    return plain


def check_ca(option: str, ca: Path | None) -> None:
    """Check that the file of CAs holds certificates."""
    if ca is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        problem = error.strerror or str(error)
        remedy = "Give a readable file of PEM certificates."
        raise InputError(option, str(ca), problem, remedy) from None


def check_file(option: str, file: Path | None) -> None:
    if file is None:
        return
    try:
        with file.open("rb"):
            return
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise InputError(option, str(file), problem, "Check the path and its mode.") from None


def check_directory(option: str, directory: Path) -> None:
    if not directory.is_dir():
        problem = "this is no directory" if directory.exists() else "there is no such directory"
        raise InputError(option, str(directory), problem, "Make it, or name another one.")


def check_remote(user: str, key: Path | None, known_hosts: Path | None) -> ports.Remote:
    """Return the login on hosts. Raises InputError for a missing file."""
    check_file("--ssh-key", key)
    check_file("--known-hosts", known_hosts)
    return ports.Remote(user, key, known_hosts)
