"""`provisioner rack firmware-object`: NVIDIA's firmware objects of racks, in and out."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Annotated

import typer
import yaml

from provisioner.cli.options.checked_options import JsonOption, check_directory
from provisioner.cli.options.matrix_files import (
    MatrixOption,
    find_release,
    read_matrix,
)
from provisioner.cli.options.tables import Table, open_console
from provisioner.integrations.published_versions.deciding.reading import (
    is_package,
    parse_package,
)
from provisioner.integrations.racks.firmware_object import (
    BYTES_MAX,
    RackFirmware,
    find_swapped,
    pin_files,
    read_firmware_object,
    write_firmware_object,
)
from provisioner.integrations.racks.plan import read_record
from provisioner.integrations.racks.targets.object_pins import (
    build_object,
    pin_object,
    place_pins,
)
from provisioner.model.input_error import InputError
from provisioner.runtime.shipped import read_text

app = typer.Typer(help="NVIDIA's firmware objects (SOT JSON) of racks.", no_args_is_help=True)
HEADER_MAX_BYTES = 1 << 16  # a package's header states its own size in two bytes
OutOption = Annotated[Path | None, typer.Option(help="Write the result to this new file.")]


@app.command("import")
def import_object(
    file: Annotated[Path, typer.Argument(help="The firmware object: JSON of one release.")],
    files: Annotated[
        Path | None, typer.Option(help="Folder with the files: digests are computed and compared.")
    ] = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read a firmware object, pin each file by its SHA-256, and keep each version, file and digest.

    Refused: more than one milestone, a type that nobody knows, a login in an address, a package
    that holds another component's versions than it is listed for. Recovery images and certificates
    are kept and are no payload. Nothing is downloaded.

    Exit code 1: a payload has no SHA-256, or another one, or another content; then nothing is
    written.

    Example: provisioner rack firmware-object import dgx-gb200-1.3.6.json --files ./fw --out r.json
    """
    firmware = read_firmware_object(str(file), read_text(file, BYTES_MAX).encode())
    digests: dict[str, str] = {}
    swapped: tuple[str, ...] = ()
    if files is not None:
        check_directory("--files", files)
        wanted = {one.name for _, one in firmware.list_files() if one.name}
        digests = {name: _digest(files / name) for name in sorted(wanted) if _is_in(files, name)}
        swapped = find_swapped(firmware, {name: _read_versions(files / name) for name in digests})
    pinned, problems = pin_files(firmware, digests)
    problems = (*problems, *swapped)
    if as_json:
        said = {"firmware": pinned.model_dump(mode="json"), "problems": problems}
        typer.echo(json.dumps(said, indent=2))
    else:
        _show(pinned, problems)
    if out is not None and not problems:
        write_new(out, pinned.model_dump_json(indent=2))
    raise typer.Exit(1 if problems else 0)


def _is_in(folder: Path, name: str) -> bool:
    return (folder / name).is_file()


def _read_versions(file: Path) -> frozenset[str]:
    """Return the versions inside a PLDM package; none of a file that is none."""
    try:
        with file.open("rb") as opened:
            header = opened.read(HEADER_MAX_BYTES)
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise InputError(str(file), "", problem, "Check its permissions.") from None
    if not is_package(header):
        return frozenset()
    package = parse_package(str(file), header)
    return frozenset(one.version for one in package.components)


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise InputError(str(file), "", problem, "Check its permissions.") from None


def _show(firmware: RackFirmware, problems: tuple[str, ...]) -> None:
    table = Table("board", "for", "component", "version", "files", "pinned", "parts")
    for board in firmware.boards:
        for one in board.components:
            payloads = [file for file in one.files if file.is_payload]
            pinned = sum(bool(file.sha256) for file in payloads)
            cells = (board.name or board.board_type, one.kind.value, one.component)
            counts = (str(len(one.files)), f"{pinned}/{len(payloads)}", str(len(one.parts)))
            table.add_row(*cells, one.version or "-", *counts)
    table.title = f"{firmware.product} {firmware.milestone} {firmware.state}"
    console = open_console()
    console.print(table)
    for field in firmware.not_kept:
        console.print(f"not kept: {field}")
    for problem in problems:
        console.print(f"refused: {problem}")


def write_new(out: Path, written: str) -> None:
    """Write a new file for a person. Raises InputError: one that is there is kept."""
    try:
        with out.open("x", encoding="utf-8") as opened:
            opened.write(written + "\n")
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError("--out", str(out), problem, "Name a new file.") from None


@app.command("overlay")
def draft_overlay(
    file: Annotated[Path, typer.Argument(help="What `import --out` wrote.")],
    release: Annotated[str, typer.Option(help="Name of the new release, as dgx-gb200-1.3.7.")],
    like: Annotated[str, typer.Option(help="Release for whose machines it is.")],
    evidence: Annotated[str, typer.Option(help="Where it was published, and when read.")],
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", help="Profile of --like, where it has several for a kind."),
    ] = None,
    matrix: MatrixOption = None,
    out: OutOption = None,
) -> None:
    """Draft an overlay of the matrix: trays, NVLink switches with NVOS and shelves, with files.

    Each version is pinned with the file that brings it and its SHA-256, for a person to review.
    What a matrix has no place for is named, and stays in FILE.

    Exit code 1: a file has no digest, or two versions contradict each other; nothing is written.

    Example: provisioner rack firmware-object overlay r.json --release dgx-gb200-1.3.7
    --like dgx-gb200-1.3 --evidence "NVIDIA's release mail, read 2026-11-30" --out o.yaml
    """
    known = read_matrix(matrix or [])
    like = find_release(known, like)
    if release in known.releases:
        remedy = "Name a new one; what is published is changed in its own file."
        raise InputError("--release", release, "there is such a release", remedy)
    told = pin_object(read_record(file, RackFirmware), evidence)
    for each in told.left:
        typer.echo(f"not in the matrix: {each}", err=True)
    for each in told.problems:
        typer.echo(f"refused: {each}", err=True)
    if told.problems:
        raise typer.Exit(1)
    offered = known.releases[like].profiles
    several = {name: offered[name] for name in profile or () if name in offered} or offered
    chosen = {p.match.kind for p in several.values()}
    rest = {n: p for n, p in offered.items() if p.match.kind not in chosen}
    try:
        placed = place_pins(told.pins, [*several.items(), *rest.items()])
    except ValueError as error:
        raise InputError("--profile", ", ".join(profile or ()), str(error), "Name one.") from None
    profiles = {n: p.model_dump(mode="json", exclude_defaults=True) for n, p in placed.items()}
    tree = {"releases": {release: {"follows": like, "profiles": profiles}}}  # no matrix of its own
    written = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=120)
    with tempfile.TemporaryDirectory() as folder:  # it loads as an overlay, or its field is told
        draft = Path(folder) / "draft.yaml"
        draft.write_text(written)
        read_matrix([*(matrix or []), draft])
    if out is None:
        typer.echo(written, nl=False)
    else:
        write_new(out, written.rstrip("\n"))


@app.command("export")
def export_object(
    file: Annotated[
        Path | None, typer.Argument(help="What `import --out` wrote; else --release.")
    ] = None,
    release: Annotated[str, typer.Option(help="Release of the matrix, in place of a file.")] = "",
    matrix: MatrixOption = None,
    out: OutOption = None,
) -> None:
    """Write a release as NVIDIA's firmware object: to --out, or to the standard output.

    Example: provisioner rack firmware-object export r.json > dgx-gb200-1.3.6.json
    """
    if (file is None) is not bool(release):
        raise InputError("FILE", str(file or ""), "name it or --release", "Name one of both.")
    if file is not None:
        firmware = read_record(file, RackFirmware)
    else:
        known = read_matrix(matrix or [])
        name = find_release(known, release)
        try:
            firmware = build_object(name, known.releases[name])
        except ValueError as error:
            raise InputError("--release", name, str(error), "Name a rack's release.") from None
    written = json.dumps(write_firmware_object(firmware), indent=2)
    if out is None:
        typer.echo(written)
    else:
        write_new(out, written)
