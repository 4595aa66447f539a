"""Options of commands that ask one BMC, and its address as they give it."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from provisioner.adapters.redfish.recorded import Recording
from provisioner.cli.options.checked_options import PASSWORD, check_ca, check_pin, check_url
from provisioner.model.input_error import InputError
from provisioner.ports import BmcAddress, Secret
from provisioner.runtime.shipped import read_text
from provisioner.store.signing import keys_of

# ------------------------------------------------------------------------------
# Reads recorded BMCs from files.


BYTES_MAX = 256 * 1024 * 1024  # unpacked; a DGX H100 is 6 MB
_REMEDY = "Make it with `provisioner record URL --out FILE`."


def read_recording(path: Path) -> Recording:
    """Return the recording in a file, packed by gzip or not. Raises InputError."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            unpacked = gzip.GzipFile(fileobj=file) if packed else file
            raw = unpacked.read(BYTES_MAX + 1)
    except (OSError, EOFError, zlib.error) as error:
        problem = getattr(error, "strerror", None) or str(error) or "cannot be read"
        raise InputError(str(path), "", problem, "Check the path.") from None
    if len(raw) > BYTES_MAX:
        raise InputError(str(path), "", f"larger than {BYTES_MAX} bytes", _REMEDY)
    try:
        return Recording.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"][:3])
        raise InputError(str(path), where, first["msg"][:200], _REMEDY) from None


# ------------------------------------------------------------------------------
# Reads the file of public keys that a command trusts.


KeyOption = Annotated[Path, typer.Option("--key", help="File with the public keys to trust (PEM).")]
_TRUSTED_KEYS_REMEDY = "Write it where it was signed: provisioner certificate keys --pem"


def read_trusted_keys(file: Path) -> dict[str, bytes]:
    """Return the public keys of a PEM file by key id. Raises InputError if it has none."""
    try:
        keys = dict(keys_of(read_text(file)))
    except ValueError as error:
        raise InputError(str(file), "", f"unreadable key: {error}", _TRUSTED_KEYS_REMEDY) from None
    if not keys:
        raise InputError(str(file), "", "there is no public key in it", _TRUSTED_KEYS_REMEDY)
    return keys


UrlArgument = Annotated[str, typer.Argument(help="https://HOST[:PORT] of a Redfish service.")]
UserOption = Annotated[
    str, typer.Option(help=f"User; the password is asked for, or taken from {PASSWORD}.")
]
InsecureOption = Annotated[bool, typer.Option("--insecure", help="Accept any certificate.")]
PinOption = Annotated[str, typer.Option(help="SHA-256 of the only certificate to accept.")]
CaOption = Annotated[Path | None, typer.Option(help="File of trusted CAs, PEM.")]


def build_address(url: str, user: str, pin: str, ca: Path | None, *, insecure: bool) -> BmcAddress:
    """Return the address and the login of a BMC. Raises InputError for a wrong option."""
    address = BmcAddress(
        url=check_url("URL", url),
        username=user,
        secret=read_password(user),
        pin=check_pin(pin, insecure=insecure),
        insecure=insecure,
    )
    check_ca("--ca", ca)
    return address


def read_password(user: str) -> Secret | None:
    if not user:
        return None
    password = os.environ.get(PASSWORD)
    if password is None and sys.stdin.isatty():
        password = str(typer.prompt(f"Password of {user}", hide_input=True))
    if not password:
        remedy = f"Set {PASSWORD}, or run it in a terminal to be asked."
        raise InputError("--user", user, "no password is given", remedy)
    return Secret(password)
