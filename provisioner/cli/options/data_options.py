"""The data directory of a command that works beside a daemon, or in place of one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataOption = Annotated[Path, typer.Option("--data", help="Data directory of the daemon.")]
