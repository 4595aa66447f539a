"""Options of destructive verbs: they show the change, ask for consent, and record the person.

Rule: nothing is written before the person has read the sentences and agreed. Where there is no
terminal to ask on, consent is `--yes`.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from provisioner.model.input_error import InputError

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show the changes without making them.")
]
ActorOption = Annotated[
    str, typer.Option("--by", help="Person who asks, for the journal; by default the login name.")
]


def name_actor(by: str) -> str:
    """Return the person who asks: as given, else the login behind `sudo`, else our own."""
    login = os.environ.get("SUDO_USER", "")
    if not login:
        try:
            login = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:  # a container's user without a name
            login = f"uid {os.getuid()}"
    return (by or login)[:200]


def confirm_change(
    lines: Sequence[str], *, yes: bool, dry_run: bool, as_json: bool = False
) -> None:
    """Show the change and return once the person agreed.

    Ends the command with exit code 0 after a dry run and with 1 if the person does not agree. With
    `as_json` the text for people goes to the error stream. Raises InputError without a terminal to
    ask on.
    """
    for line in lines:
        typer.echo(line, err=as_json)
    if dry_run:
        typer.echo("Nothing was done: --dry-run.", err=as_json)
        raise typer.Exit(0)
    if yes:
        return
    if not sys.stdin.isatty():
        problem = "it is not given, and there is no terminal to ask on"
        raise InputError("--yes", "", problem, "Look with --dry-run, then give --yes.")
    typer.confirm("Is that meant?", abort=True, err=as_json)
