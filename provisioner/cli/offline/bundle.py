"""`provisioner bundle`: everything for a site without a network in one signed file.

`verify` and `unpack` need nothing but the file and the public key.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.options.checked_options import check_directory
from provisioner.cli.options.data_options import DataOption, with_data
from provisioner.cli.options.matrix_files import FILE_NAME, read_matrix
from provisioner.cli.options.showing import JsonOption, open_console
from provisioner.daemon.data import Data, read_text
from provisioner.execution.artifacts import bundles
from provisioner.model.bundle import BundleManifest
from provisioner.model.input_error import InputError
from provisioner.planning.matrix.pinned_files import list_pinned_files
from provisioner.runtime.shipped import find_shipped
from provisioner.runtime.site_clock import read_clock
from provisioner.store.signing import keys_of

app = typer.Typer(help="Air-gap bundles: create, verify, unpack.", no_args_is_help=True)
Key = Annotated[Path, typer.Option("--key", help="File with the public keys to trust (PEM).")]
_KEY_REMEDY = "Write it where the bundle is made: provisioner certificate keys --pem"


@app.command()
def create(
    output: Path,
    artifacts: Annotated[Path, typer.Option(help="Directory of firmware files.")] = Path(
        "artifacts"
    ),
    matrix: Annotated[
        list[Path] | None, typer.Option(help="Matrix file, then overlays; repeatable.")
    ] = None,
    release: Annotated[
        list[str] | None, typer.Option(help="Pack these releases only; repeatable.")
    ] = None,
    wheels: Annotated[Path | None, typer.Option(help="Directory of Python wheels.")] = None,
    site: Annotated[str, typer.Option(help="Name of the site that makes the bundle.")] = "site",
    partial: Annotated[
        bool, typer.Option("--partial", help="Pack the bundle also if files are missing.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the contents.")] = False,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Pack the pinned files, the matrix, and wheels if any, into one file with a signed list.

    Example: provisioner bundle create site.tar --release spectrum-x-1.3.0
    """
    check_directory("--artifacts", artifacts)
    files: dict[str, Path] = {}
    chosen = matrix or [find_shipped(FILE_NAME)]
    pinned = list_pinned_files(read_matrix(chosen), release or ())
    for number, path in enumerate(chosen):
        files[f"matrix/{number}-{path.name}"] = path
    for name in pinned:
        if (artifacts / name).is_file():
            files[f"artifacts/{name}"] = artifacts / name
    if wheels is not None:
        check_directory("--wheels", wheels)
        files |= {f"wheels/{p.name}": p for p in wheels.iterdir() if p.suffix == ".whl"}
    listed = bundles.list_files(files)
    missing = bundles.find_missing_files(pinned, artifacts, listed)
    if missing and not partial:
        remedy = "Download them, name fewer releases (--release), or say --partial."
        raise InputError("--artifacts", ", ".join(missing)[:300], "they are not there", remedy)
    manifest = BundleManifest(
        site=site,
        made_at=read_clock(data).now(),
        releases=tuple(release or ()),
        missing=missing,
        files=listed,
    )
    if not dry_run:

        async def pack(opened: Data) -> None:
            bundles.pack(output, manifest, files, opened.signer.seal)

        with_data(data, pack)
    _show(manifest, as_json=as_json)


@app.command()
def verify(bundle: Path, key: Key, as_json: JsonOption = False) -> None:
    """Check the signature and every byte. Exit code 2: do not use the bundle.

    Example: provisioner bundle verify site.tar --key keys.pem
    """
    _show(bundles.verify(bundle, _keys(key)), as_json=as_json)


@app.command()
def unpack(
    bundle: Path,
    key: Key,
    into: Annotated[
        Path, typer.Option("--into", help="Directory to write; it must not exist yet.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Verify the bundle, then write its files: all of them or none.

    Example: provisioner bundle unpack site.tar --key keys.pem --into artifacts
    """
    _show(bundles.unpack(bundle, _keys(key), into), as_json=as_json)


def _keys(file: Path) -> dict[str, bytes]:
    try:
        keys = dict(keys_of(read_text(file)))
    except ValueError as error:
        raise InputError(str(file), "", f"unreadable key: {error}", _KEY_REMEDY) from None
    if not keys:
        raise InputError(str(file), "", "there is no public key in it", _KEY_REMEDY)
    return keys


def _show(manifest: BundleManifest, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(manifest.model_dump(mode="json")))
        return
    made = datetime.fromtimestamp(manifest.made_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    table = Table("file", "bytes", "SHA-256", title=Text(f"of {manifest.site}, {made}"))
    for file in manifest.files:
        table.add_row(Text(file.path), str(file.size), file.sha256)
    open_console().print(table)
    for name in manifest.missing:
        open_console().print(Text(f"not in it: {name}"), style="yellow")
