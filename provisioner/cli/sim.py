"""`provisioner sim`."""

from __future__ import annotations

import typer

app = typer.Typer(help="A simulated site.", no_args_is_help=True)
