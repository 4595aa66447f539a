"""`provisioner matrix`."""

from __future__ import annotations

import typer

app = typer.Typer(help="The pinned matrix.", no_args_is_help=True)
