"""The options of `provisioner serve`: what help says of each, and how files and places are read."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.options.checked_options import check_ca, check_directory
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.daemon.data import database_of, read_settings
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.runtime.shipped import find_shipped
from provisioner.settings import Settings

PLAYBOOKS = Path("ansible/playbooks")  # without --playbooks: here, or what came with the program

DataDirectory = Annotated[Path, typer.Option(help="Data directory; made if it is not there.")]
Database = Annotated[str, typer.Option(help="postgresql://USER@HOST/NAME, for several daemons.")]
Restored = Annotated[
    bool, typer.Option("--restored", help="Only look, until `provisioner recovery finish`.")
]
Matrices = Annotated[list[Path] | None, typer.Option(help="Matrix, then overlays; repeatable.")]
Artifacts = Annotated[Path, typer.Option(help="Firmware files; a cache of --artifact-url.")]
ArtifactHost = Annotated[
    str, typer.Option(help="Our address that BMCs and switches pull artifacts from.")
]
ArtifactUrl = Annotated[
    str,
    typer.Option(help="http(s)://HOST[:PORT]/PATH that they, and we, fetch from instead."),
]
Port = Annotated[int, typer.Option(min=0, max=65535)]
ApiPort = Annotated[int | None, typer.Option(min=0, max=65535, help="Of the API; 0: a free one.")]
AgentHost = Annotated[str, typer.Option(help="Our address that maintenance agents call.")]
AgentUrl = Annotated[str, typer.Option(help="How ramdisks reach it, if not by host and port.")]
CaFile = Annotated[Path | None, typer.Option(help="CAs that certificates may have.")]
Thresholds = Annotated[Path | None, typer.Option(help="The site's own (docs/thresholds.md).")]
EventsUrl = Annotated[str, typer.Option(help="https://ADDRESS:PORT where events are pushed.")]
AlertSources = Annotated[Path | None, typer.Option(help="Who may push (docs/watch.md).")]
ChangeUntil = Annotated[
    str,
    typer.Option(help="Until then daemons with another version, matrix or settings are let in."),
]
Simulator = Annotated[Path | None, typer.Option(help="Control socket of `provisioner sim serve`.")]


def read(
    settings: Path | None,
    matrix: list[Path] | None,
    api_port: int | None,
    kept: tuple[Path, str],
    *,
    lab: bool,
) -> tuple[Settings, Matrix, str]:
    """Settings, matrix and database (`kept`: data directory and --database). Raises InputError."""
    chosen = read_settings(settings, production=False if lab else None, api_port=api_port)
    return chosen, read_matrix(matrix or []), database_of(*kept)


def checked_places(
    simulator: Path | None, playbooks: Path, artifacts: Path, ca_file: Path | None
) -> Path:
    """The playbooks' directory. What is missing is told now, not when the first node needs it."""
    playbooks = find_shipped("ansible/playbooks") if playbooks == PLAYBOOKS else playbooks
    check_ca("--ca-file", ca_file)
    check_directory("--artifacts", artifacts)
    if simulator is None:
        check_directory("--playbooks", playbooks)
    elif not simulator.exists() or not stat.S_ISSOCK(simulator.stat().st_mode):
        remedy = "Start `provisioner sim serve --control FILE` first."
        raise InputError("--simulator", str(simulator), "there is no such socket", remedy)
    return playbooks
