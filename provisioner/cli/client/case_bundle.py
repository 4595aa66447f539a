"""`provisioner case bundle`, `verify-bundle`, `rma`, `spare`, `tell`: what a vendor gets."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from provisioner.cli.client.case_hardware import ByOption, CaseArgument, case_of, desk_of, tell
from provisioner.cli.options.data_options import DataOption, JsonOption, with_data
from provisioner.daemon.data import Data, read_settings, read_text
from provisioner.execution.repair.bundling import Bundler
from provisioner.model.case import Case, Spare
from provisioner.model.input_error import InputError
from provisioner.model.inventory import DeviceKind
from provisioner.planning.repair import evidence_bundle as archive
from provisioner.planning.repair.evidence_bundle import NotABundle
from provisioner.store.repositories.case_rows import CaseRows
from provisioner.store.signing import keys_of, signed

KEY_REMEDY = "Write it with: provisioner certificate keys --pem"
SettingsOption = Annotated[Path | None, typer.Option("--settings", help="As the daemon's.")]


def bundle(
    name: CaseArgument,
    out: Annotated[Path, typer.Option("--out", help="Where the archive is written (tar.gz).")],
    fresh: Annotated[
        bool, typer.Option("--fresh", help="As the case is now, not as its ticket has it.")
    ] = False,
    settings: SettingsOption = None,
    data: DataOption = Path("var"),
) -> None:
    """The case's evidence as one signed archive for the vendor, without secrets."""
    site = read_settings(settings).site

    async def make(opened: Data) -> bytes:
        case = await case_of(opened, name)
        book = CaseRows(opened.store)
        bundler = Bundler(opened.store, book, opened.vault, opened.signer, site)
        kept = b"" if fresh else await bundler.kept(case)
        return kept or await bundler.make(case, opened.clock.now())

    content = with_data(data, make)
    _write(out, content)
    typer.echo(f"{out}: {len(content)} bytes, SHA-256 {archive.digest(content)}")


def verify_bundle(
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    key: Annotated[Path, typer.Option("--key", help="The site's public keys (PEM).")],
) -> None:
    """Whether an archive is exactly what a trusted site signed. Needs no data directory."""
    try:
        keys = dict(keys_of(read_text(key)))
    except ValueError as error:
        raise InputError(str(key), "", f"unreadable key: {error}", KEY_REMEDY) from None
    if not keys:
        raise InputError(str(key), "", "there is no public key in it", KEY_REMEDY)
    try:
        members = archive.unpack(_read(file))
        envelope = archive.envelope_of(members)
    except NotABundle as error:
        raise InputError(str(file), "", str(error), "Write it with `case bundle`.") from None
    wrong = ["no trusted key signed it"] if not signed(envelope, keys) else []
    wrong += archive.objections(members, envelope.payload)
    for line in wrong:
        typer.echo(f"{file}: {line}", err=True)
    if wrong:
        raise typer.Exit(1)
    typer.echo(f"{file}: good; {len(members)} files, signed by {envelope.key_id}")


def rma(
    name: CaseArgument,
    number: Annotated[str, typer.Argument(metavar="NUMBER", help="The vendor's.")],
    by: ByOption = "operator",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Record the vendor's return number; its ticket hears of it."""
    if not (0 < len(number) <= 100 and number.isprintable()):
        raise InputError("NUMBER", "", "it is empty, too long or not printable", "Type it again.")

    async def work(opened: Data) -> Case | str:
        return await desk_of(opened, None).rma(await case_of(opened, name), number, by)

    tell(with_data(data, work), name, as_json=as_json)


def spare(
    name: CaseArgument,
    kind: Annotated[DeviceKind, typer.Option("--kind", help="What it is.")],
    serial: Annotated[str, typer.Option("--serial", help="Its serial.")] = "",
    part_number: Annotated[str, typer.Option("--part-number")] = "",
    by: ByOption = "operator",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Record the part that is to go in; its ticket hears of it."""
    for said in (serial, part_number):
        if len(said) > 100 or not said.isprintable():
            raise InputError(said[:40], "", "it is too long or not printable", "Type it again.")
    part = Spare(kind=kind, serial=serial, part_number=part_number)

    async def work(opened: Data) -> Case | str:
        return await desk_of(opened, None).spare(await case_of(opened, name), part, by)

    tell(with_data(data, work), name, as_json=as_json)


def tell_again(
    name: CaseArgument,
    by: ByOption = "operator",
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Its ticket could not be told: the daemon tries it again now."""

    async def work(opened: Data) -> Case | str:
        return await desk_of(opened, None).tell(await case_of(opened, name), by)

    tell(with_data(data, work), name, as_json=as_json)


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            content = opened.read(archive.BYTES_MAX + 1)
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise InputError(str(file), "", problem, "Check the path.") from None
    if len(content) > archive.BYTES_MAX:
        raise InputError(str(file), "", "it is too large for such an archive", "Check the path.")
    return content


def _write(out: Path, content: bytes) -> None:
    """Whole or not at all, and readable by its owner: it names serials and addresses."""
    try:
        handle, part = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(part).replace(out)
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
        raise InputError(str(out), "", problem, "Check the path.") from None
