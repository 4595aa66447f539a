"""The options of `provisioner serve`: their types, and what help says of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataDirectory = Annotated[Path, typer.Option(help="Data directory; made if it is not there.")]
Database = Annotated[str, typer.Option(help="postgresql://USER@HOST/NAME, for several daemons.")]
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
Simulator = Annotated[Path | None, typer.Option(help="Control socket of `provisioner sim serve`.")]
