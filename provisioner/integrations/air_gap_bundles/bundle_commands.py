"""`provisioner bundle`: everything for a site without a network in one signed file.

`create` asks a daemon for the signature; `verify` and `unpack` need nothing but the file and the
public key.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from rich.text import Text

from provisioner.checks.attestation.certificate_chains import parse_answer
from provisioner.checks.attestation.evidence_containers import read_manifest_file
from provisioner.checks.attestation.reference_manifests import read_manifest
from provisioner.checks.attestation.trust_anchors import TrustStore
from provisioner.cli.client.connection import (
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
from provisioner.execution.observe.inband import ANSWER, list_references, read_reference
from provisioner.integrations.air_gap_bundles import bundle_files
from provisioner.model.agent import BundleManifest, BundleReference, ReferenceKind
from provisioner.model.input_error import InputError
from provisioner.model.times.instant import AT_EDGE
from provisioner.planning.matrix.pinned_files import list_pinned_files
from provisioner.runtime.shipped import find_shipped
from provisioner.runtime.wall_clock import WallClock

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
    listed = bundle_files.list_files(files)
    missing = bundle_files.find_missing_files(pinned, artifacts, listed)
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
        bundle_files.pack(output, _request_seal(reach, manifest, request), files)
    _show(manifest, as_json=as_json)


@app.command()
def verify(bundle: BundleArgument, key: KeyOption, as_json: JsonOption = False) -> None:
    """Check the signature and every byte. Exit code 2: do not use the bundle.

    Example: provisioner bundle verify site.tar --key keys.pem
    """
    _show(bundle_files.verify(bundle, read_trusted_keys(key)), as_json=as_json)


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
    _show(bundle_files.unpack(bundle, read_trusted_keys(key), into), as_json=as_json)


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
    signed_list = bundle_files.read_sealed_manifest(sealed)
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


def describe_reference(path: Path, at: float) -> BundleReference:
    """Return what a bundle's list says of a reference. Raises InputError for any other file, and
    for an answer that has ended already.
    """
    raw = read_reference(path)
    name = f"references/{path.name}"
    if path.suffix != ANSWER:
        rows = read_manifest_file(raw, path.stem)
        manifests = [read_manifest(r, i, TrustStore().references, at, at) for i, r in rows]
        if not manifests or not manifests[0].version:
            remedy = f"Take manifests (RIM), and OCSP answers in DER named *{ANSWER}."
            raise InputError(str(path), "", "it is no manifest", remedy)
        first = manifests[0]
        subject = f"{first.product} {first.version}"
        return BundleReference(
            path=name, kind=ReferenceKind.RIM, subject=subject, until=first.signed_until
        )
    try:
        answer = parse_answer(raw)
    except ValueError as error:
        remedy = "Fetch it with `openssl ocsp -respout`."
        raise InputError(str(path), "", f"it is no OCSP answer: {error}", remedy) from None
    ends = answer.next_update_utc
    until = ends.timestamp() if ends else 0.0
    if until < at:
        raise InputError(str(path), "", "the answer has ended", "Fetch a new one.")
    subject = f"{answer.serial_number:x}"
    since = answer.this_update_utc.timestamp()
    return BundleReference(
        path=name, kind=ReferenceKind.OCSP, subject=subject, since=since, until=until
    )
