"""The command `matrix graph`: the upgrade paths, in a terminal or as an SVG file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.text import Text

from provisioner.cli.options.matrix_files import MatrixOption, find_release, read_matrix
from provisioner.cli.options.tables import Table
from provisioner.integrations.matrix_map.graph import (
    Lane,
    Track,
    build_layout,
    draw_svg,
    select_releases,
)
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Activation
from provisioner.model.matrix import UNKNOWN, Matrix
from provisioner.planning.matrix.standing import list_lines

STYLES = {
    Activation.NONE: "bright_black",
    Activation.SERVICE_RESTART: "cyan",
    Activation.BMC_RESET: "blue",
    Activation.NIC_RESET: "magenta",
    Activation.WARM_REBOOT: "yellow",
    Activation.COLD_BOOT: "red",
    Activation.AC_CYCLE: "bold red",
    Activation.IMAGE_REBOOT: "bright_blue",
}


def build_graph_table(matrix: Matrix) -> Group:
    """Return the map as lines of text: one row for each chain of moves."""
    plan = build_layout(matrix)
    table = Table(header_style="bold", show_lines=True)
    table.add_column("component")
    table.add_column("upgrade paths")
    for lane in plan.lanes:
        table.add_row(f"{lane.title}\n[bright_black]{lane.kind}[/]", Group(*_chains(lane)))
    legend = Text("pinned by a release: ")
    legend.append("bold", "bold").append("   nobody vouches for it: ┄┄   activated by: ")
    for activation, style in STYLES.items():
        legend.append(f"{activation} ", style)
    return Group(table, legend)


def _chains(lane: Lane) -> list[Text]:
    """Return lines of tracks, each printed once; a track continues where the line above it ends."""
    remaining = list(lane.tracks)
    lines = []
    while remaining:
        ends = {track.end for track in remaining}
        track = next((t for t in remaining if t.start not in ends), remaining[0])
        line = _name(lane, track.start)
        while track:
            remaining.remove(track)
            style = STYLES[track.activates_by]
            bar = "──" if track.vouched else "┄┄"
            for version in (*track.via, track.end):
                line.append(f" {bar}{track.activates_by}{bar}▶ ", style)
                line.append_text(_name(lane, version))
            following = next((t for t in remaining if t.start == track.end), None)
            if following is None:
                break
            track = following
        lines.append(line)
    alone = [s for s in lane.stops if not any(s.version in _stops(t) for t in lane.tracks)]
    lines += [Text(s.version, "bold") for s in alone if not s.version.startswith(UNKNOWN)]
    if gaps := [r for s in alone if s.version.startswith(UNKNOWN) for r in s.releases]:
        lines.append(Text(f"not published: {', '.join(gaps)}", "bright_black"))
    return lines


def _stops(track: Track) -> tuple[str, ...]:
    return (track.start, *track.via, track.end)


def _name(lane: Lane, version: str) -> Text:
    return Text(version, style="bold" if lane.stop(version).releases else "")


def graph(
    matrix: MatrixOption = None,
    file: Annotated[
        Path | None, typer.Option("--svg", help="Write the picture to this SVG file.")
    ] = None,
    release: Annotated[
        str, typer.Option("--release", help="Only the line that this release belongs to.")
    ] = "",
) -> None:
    """Draw the upgrade paths: in the terminal, or as an SVG file.

    Example: provisioner matrix graph --release spectrum-x-2.1.2 --svg paths.svg
    """
    pinned = read_matrix(matrix or [])
    if release:
        name = find_release(pinned, release)
        line = next(line for line in list_lines(pinned) if name in line)
        pinned = select_releases(pinned, line)
    if file is None:
        Console().print(build_graph_table(pinned))
        return
    try:
        file.write_text(draw_svg(pinned), encoding="utf-8")
    except OSError as error:
        raise InputError(
            str(file), "", f"it cannot be written ({error.strerror})", "Choose another path."
        ) from None
    typer.echo(f"written: {file}")
