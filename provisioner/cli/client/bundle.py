"""`provisioner bundle`: everything for a site without a network in one signed file.

`create` asks a daemon for the signature; `verify` and `unpack` need nothing but the file and the
public key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.text import Text

from provisioner.cli.client.connection import (
    Answer,
    CaOption,
    Connection,
    ContextOption,
    DataOption,
    ServerOption,
    TokenOption,
    open_connection,
)
from provisioner.cli.client.following import follow_operation
from provisioner.cli.client.output import show_problem
from provisioner.cli.options.bmc_options import KeyOption, read_trusted_keys
from provisioner.cli.options.checked_options import JsonOption, check_directory
from provisioner.cli.options.matrix_files import FILE_NAME, read_matrix
from provisioner.cli.options.tables import Table, open_console
from provisioner.execution.artifacts import bundles
from provisioner.execution.observe.inband import describe_reference, list_references
from provisioner.model.agent import BundleManifest, BundleReference
from provisioner.model.input_error import InputError
from provisioner.model.times.instant import AT_EDGE
from provisioner.planning.matrix.pinned_files import list_pinned_files
from provisioner.runtime.shipped import find_shipped
from provisioner.runtime.wall_clock import WallClock

# ------------------------------------------------------------------------------
# Uploads a file into the artifact store: digest, then a dry run, then the bytes.


CHUNK_BYTES = 1024 * 1024
WAITS = 3  # exit code: another person has to approve it


def upload_image(
    file: Annotated[Path, typer.Argument(help="File to upload.", show_default=False)],
    name: Annotated[
        str, typer.Option(help="Name in the store; by default the file's own.", show_default=False)
    ] = "",
    note: Annotated[str, typer.Option(help="What it is, in a sentence.", show_default=False)] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only ask whether it would be taken.")
    ] = False,
    as_json: JsonOption = False,
    context: ContextOption = "",
    data: DataOption = None,
    server: ServerOption = "",
    token_file: TokenOption = None,
    ca_file: CaOption = None,
) -> None:
    """Upload a file into the artifact store, verified by its SHA-256.

    Nothing is sent before the daemon answered that it takes a file of this length and digest. No
    node gets the file by that: pin it in the matrix by the digest that is printed.

    Example: provisioner image upload ubuntu-22.04-hgx-7.qcow2 --note 'with DOCA 3.1'
    """
    reach = open_connection(
        context=context, data=data, server=server, token_file=token_file, ca_file=ca_file
    )
    path = f"/images/{quote(name or file.name, safe='')}"
    try:
        size_bytes = file.stat().st_size
        digest = hashlib.sha256()
        for chunk in _read_chunks(file, size_bytes, "reading", shown=not as_json):
            digest.update(chunk)
        query = {"sha256": digest.hexdigest(), "size_bytes": str(size_bytes), "note": note}
        asked = reach.send_request("PUT", path, {**query, "dry_run": "true"})
        there = asked.good and asked.document["result"].get("there") and not note
        if dry_run or there or not asked.good or asked.document["blockers"]:
            _finish(asked, query, as_json=as_json)
            return
        chunks = _read_chunks(file, size_bytes, "sending", shown=not as_json)
        answer = reach.send_file(path, query, size_bytes, chunks)
    except FileNotFoundError:
        raise InputError("FILE", str(file), "there is no such file", "Check its path.") from None
    except OSError as error:
        problem = f"it cannot be read ({error.strerror or error})"
        raise InputError("FILE", str(file), problem, "Check its owner and mode.") from None
    _finish(follow_operation(reach, answer, to_the_end=False), query, as_json=as_json)


def _read_chunks(file: Path, size_bytes: int, word: str, *, shown: bool) -> Iterator[bytes]:
    """Yield the file's bytes, with a bar on a terminal's standard error."""
    stream = typer.get_text_stream("stderr")
    hidden = not (shown and stream.isatty())
    with (
        file.open("rb") as opened,
        typer.progressbar(length=size_bytes, label=word, file=stream, hidden=hidden) as bar,
    ):
        while chunk := opened.read(CHUNK_BYTES):
            yield chunk
            bar.update(len(chunk))


def _finish(answer: Answer, query: dict[str, str], *, as_json: bool) -> None:
    """Print an answer and end with its exit code."""
    document: Any = answer.document
    if not answer.good:
        show_problem(document, answer.status, "json" if as_json else "table")
        raise typer.Exit(2 if answer.status in (400, 413, 422) else 1)
    from provisioner.cli.client.output import show_blockers, show_document

    def write() -> None:
        for line in (document.get("result") or {}).get("lines", ()):
            typer.echo(line)
        show_blockers(document["blockers"])
        if document["state"] != "dry_run":
            typer.echo(f"{document['subject']}: {document['state']} ({document['id']})")
        typer.echo(f"sha256: {query['sha256']}")

    show_document(document, "json" if as_json else "table", write)
    if document["blockers"] or document["state"] == "failed":
        raise typer.Exit(1)
    if document["state"] == "waiting":
        raise typer.Exit(WAITS)


app = typer.Typer(help="Air-gap bundles: create, verify, unpack.", no_args_is_help=True)


BundleArgument = Annotated[Path, typer.Argument(help="The bundle.")]


@app.command()
def create(
    output: Annotated[Path, typer.Argument(help="The new bundle.")],
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
    references: Annotated[
        Path | None, typer.Option(help="Directory of RIMs, and OCSP answers (*.ocsp).")
    ] = None,
    site: Annotated[str, typer.Option(help="Name of the site that makes the bundle.")] = "site",
    partial: Annotated[
        bool, typer.Option("--partial", help="Pack the bundle also if files are missing.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the contents.")] = False,
    request: Annotated[
        str, typer.Option("--request", help="An approved request for these files: r12.")
    ] = "",
    context: ContextOption = "",
    data: DataOption = None,
    server: ServerOption = "",
    token_file: TokenOption = None,
    ca_file: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pack the pinned files, the matrix, and wheels if any, into one file with a signed list.

    The files are read here; the daemon signs their list. Exit code 3: another person has to
    approve the signature.

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
    now = float(int(WallClock().now()))  # the API keeps milliseconds
    described = _add_references(files, references, now)
    listed = bundles.list_files(files)
    missing = bundles.find_missing_files(pinned, artifacts, listed)
    if missing and not partial:
        remedy = "Download them, name fewer releases (--release), or say --partial."
        raise InputError("--artifacts", ", ".join(missing)[:300], "they are not there", remedy)
    manifest = BundleManifest(
        site=site,
        made_at=now,
        releases=tuple(release or ()),
        missing=missing,
        files=listed,
        references=described,
    )
    if not dry_run:
        reach = open_connection(
            context=context, data=data, server=server, token_file=token_file, ca_file=ca_file
        )
        bundles.pack(output, _request_seal(reach, manifest, request), files)
    _show(manifest, as_json=as_json)


@app.command()
def verify(bundle: BundleArgument, key: KeyOption, as_json: JsonOption = False) -> None:
    """Check the signature and every byte. Exit code 2: do not use the bundle.

    Example: provisioner bundle verify site.tar --key keys.pem
    """
    _show(bundles.verify(bundle, read_trusted_keys(key)), as_json=as_json)


@app.command()
def unpack(
    bundle: BundleArgument,
    key: KeyOption,
    into: Annotated[
        Path, typer.Option("--into", help="Directory to write; it must not exist yet.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Verify the bundle, then write its files: all of them or none.

    Example: provisioner bundle unpack site.tar --key keys.pem --into artifacts
    """
    _show(bundles.unpack(bundle, read_trusted_keys(key), into), as_json=as_json)


def _add_references(
    files: dict[str, Path], directory: Path | None, now: float
) -> tuple[BundleReference, ...]:
    """Add a folder of references to the files; return their rows of the list."""
    described = []
    for path in list_references(directory) if directory is not None else ():
        described.append(describe_reference(path, now))
        files[described[-1].path] = path
    return tuple(described)


def _request_seal(reach: Connection, manifest: BundleManifest, request: str) -> str:
    """Return the envelope of a bundle's list, signed by the daemon.

    `request`: an approved request for the same list; "": ask for one. Ends with exit code 3 where
    another person has to approve it, and with 1 where it is refused. Raises InputError if the
    request is for other files.
    """
    if request:
        answer = reach.send_request("GET", f"/operations/{quote(request, safe='')}")
    else:
        body = manifest.model_dump(mode="json", context=AT_EDGE)
        answer = reach.send_request("POST", "/bundles/seal", body=body, changes=True)
    if answer.good and answer.document["state"] == "running":
        answer = follow_operation(reach, answer, to_the_end=True)
    if not answer.good:
        show_problem(answer.document, answer.status, "table")
        raise typer.Exit(1)
    operation = answer.document
    if operation["state"] == "waiting":
        line = f"{operation['id']} waits for another person's approval; then give --request"
        typer.echo(f"{line} {operation['id']}.", err=True)
        raise typer.Exit(3)
    if operation["state"] != "done":
        typer.echo(f"{operation['id']} is {operation['state']}.", err=True)
        raise typer.Exit(1)
    sealed = json.dumps((operation["result"] or {}).get("envelope"))
    signed_list = bundles.read_sealed_manifest(sealed)
    if signed_list.model_copy(update={"made_at": manifest.made_at}) != manifest:
        remedy = "Leave --request out: the present files are signed by a new one."
        raise InputError("--request", request, "it is for other files", remedy)
    return sealed


def _show(manifest: BundleManifest, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(manifest.model_dump(mode="json", context=AT_EDGE)))
        return
    made = datetime.fromtimestamp(manifest.made_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    table = Table("file", "bytes", "SHA-256", title=Text(f"of {manifest.site}, {made}"))
    for file in manifest.files:
        table.add_row(Text(file.path), str(file.size), file.sha256)
    open_console().print(table)
    for reference in manifest.references:
        until = datetime.fromtimestamp(reference.until, UTC).strftime("until %Y-%m-%d")
        line = f"{reference.kind} {reference.subject} {until if reference.until else ''}"
        open_console().print(Text(line.rstrip()))
    for name in manifest.missing:
        open_console().print(Text(f"not in it: {name}"), style="yellow")
