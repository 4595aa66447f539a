"""Options of commands that ask one BMC, and its address as they give it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.options.checked_options import PASSWORD, check_ca, check_pin, check_url
from provisioner.model.input_error import InputError
from provisioner.ports import BmcAddress, Secret

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
    """Return the password of the option, from the environment or from the terminal."""
    if not user:
        return None
    password = os.environ.get(PASSWORD)
    if password is None and sys.stdin.isatty():
        password = str(typer.prompt(f"Password of {user}", hide_input=True))
    if not password:
        remedy = f"Set {PASSWORD}, or run it in a terminal to be asked."
        raise InputError("--user", user, "no password is given", remedy)
    return Secret(password)
