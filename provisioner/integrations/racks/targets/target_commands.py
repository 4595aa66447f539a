"""`provisioner rack targets`, and the targets of a release for `rack plan` and `rack update`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.options.matrix_files import MatrixOption, find_release, read_matrix
from provisioner.integrations.racks.campaign import CampaignFile
from provisioner.integrations.racks.firmware_commands import OutOption, write_new
from provisioner.integrations.racks.plan import read_record
from provisioner.integrations.racks.targets.matrix_targets import (
    draft_campaign,
    fill_targets,
    find_targets,
)
from provisioner.model.input_error import InputError

ProfileOption = Annotated[
    list[str] | None,
    typer.Option("--profile", help="Profile of the release, where it has several for a kind."),
]
ReleaseOption = Annotated[
    str, typer.Option(help="Release of the matrix: targets of the kinds that the file names.")
]


def targets(
    release: Annotated[str, typer.Argument(help="Release of the matrix, as dgx-gb300-1.0.1.")],
    profile: ProfileOption = None,
    matrix: MatrixOption = None,
    out: OutOption = None,
) -> None:
    """Draft a campaign's file from what the matrix pins for trays, NVLink switches and shelves.

    Each version has its source; what nobody publishes is told and has no target. The files of the
    packages are yours.

    Exit code 1: something is left open.

    Example: provisioner rack targets dgx-gb300-1.0.1 --profile power-shelf-delta --out c.yaml
    """
    pinned = read_matrix(matrix or [])
    found = find_targets(pinned, find_release(pinned, release), profile or ())
    written = "\n".join(draft_campaign(release, found))
    if out is None:
        typer.echo(written)
    else:
        write_new(out, written)
    raise typer.Exit(1 if found.gaps else 0)


def read_campaign(
    file: Path, release: str, matrix: list[Path] | None, profiles: list[str] | None
) -> CampaignFile:
    """Return a campaign's file, with a release's targets where one is named. Raises InputError."""
    asked = read_record(file, CampaignFile)
    if not release:
        if matrix or profiles:
            problem = "it says nothing without a release"
            raise InputError("--matrix", "", problem, "Name one: --release.")
        return asked
    pinned = read_matrix(matrix or [])
    filled, gaps = fill_targets(asked, pinned, find_release(pinned, release), profiles or ())
    for gap in gaps:
        typer.echo(f"open: {gap}", err=True)
    return filled
