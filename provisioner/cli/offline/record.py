"""`provisioner record`: a BMC as it shows itself, in a file without its site's values."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import secrets
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from provisioner.adapters.redfish.recordings.pseudonyms import Pseudonyms
from provisioner.adapters.redfish.recordings.recorder import Recorder
from provisioner.adapters.redfish.recordings.recording import Recording
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.cli.options.bmc_options import (
    CaOption,
    InsecureOption,
    PinOption,
    UrlArgument,
    UserOption,
    build_address,
)
from provisioner.cli.options.showing import JsonOption, open_console
from provisioner.model.input_error import InputError
from provisioner.model.outcome import Reason
from provisioner.ports import BmcAddress, PortError

_KEY_BYTES = 32
_OUT_REMEDY = "Name a file in a directory that can be written."
_HINTS: Mapping[Reason, str] = {
    Reason.CERTIFICATE_CHANGED: ". Give --ca, --pin or --insecure.",
    Reason.CERTIFICATE_UNTRUSTED: ". Give --ca, --pin or --insecure.",
    Reason.LOGIN_REFUSED: ". Name one that may read: --user.",
    Reason.UNREACHABLE: ". Check the address, and the way to it from here.",
}
_KEY_REMEDY = f"Name a new file, or one with {_KEY_BYTES} bytes that `record` wrote."


def record(
    url: UrlArgument,
    out: Annotated[Path, typer.Option(help="File of the recording; .gz packs it.")],
    key: Annotated[
        Path | None,
        typer.Option(help="Key of the pseudonyms, made if missing: the same in all recordings."),
    ] = None,
    user: UserOption = "",
    insecure: InsecureOption = False,
    pin: PinOption = "",
    ca: CaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record every resource of a BMC by reads alone, without secrets and the site's own values.

    Serial numbers, MAC and IP addresses, names and asset tags become pseudonyms. Look through the
    file before you share it: a free text may still say more than you want.

    Exit code 1: the BMC does not answer, or is no Redfish service.

    Example: provisioner record https://10.0.0.11 --out r750.json.gz --user admin
    """
    _check_place(out)
    address = build_address(url, user, pin, ca, insecure=insecure)
    pseudonyms = Pseudonyms(_read_key(key))
    try:
        recording = asyncio.run(_record(address, ca, pseudonyms))
    except PortError as error:
        hint = _HINTS.get(error.reason, "")
        typer.echo(f"error: {error.reason}: {error}{hint}", err=True)
        raise typer.Exit(1) from None
    _write(out, recording)
    if as_json:
        typer.echo(json.dumps(_summarise(recording, out)))
    else:
        _show(recording, out)


def _check_place(out: Path) -> None:
    """Check that the file can be made, before minutes of reading."""
    if out.exists():
        raise InputError("--out", str(out), "exists already", "Name a new file.")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        problem = "its directory is not there, or cannot be written"
        raise InputError("--out", str(out), problem, _OUT_REMEDY)


async def _record(address: BmcAddress, ca: Path | None, pseudonyms: Pseudonyms) -> Recording:
    transport = RedfishTransport(ca_file=ca)
    recorded_by = f"recorded {datetime.now(UTC):%Y-%m-%d} by {version('gpu-provisioner')}"
    with Progress(console=_progress_console(), transient=True) as progress:
        bar = progress.add_task("resources read", total=None)
        recorder = Recorder(
            transport,
            address,
            lambda done, known: progress.update(bar, completed=done, total=known),
        )
        try:
            return await recorder.record(pseudonyms, recorded_by)
        finally:
            await transport.close()


def _progress_console() -> Console:
    return Console(stderr=True, quiet=not sys.stderr.isatty())


def _read_key(file: Path | None) -> bytes:
    if file is None:
        return secrets.token_bytes(_KEY_BYTES)
    try:
        if not file.exists():
            _write_private(file, secrets.token_bytes(_KEY_BYTES))
        key = file.read_bytes()
    except OSError as error:
        raise InputError("--key", str(file), error.strerror or "", _KEY_REMEDY) from None
    if len(key) != _KEY_BYTES:
        raise InputError("--key", str(file), f"has {len(key)} bytes", _KEY_REMEDY)
    return key


def _write(out: Path, recording: Recording) -> None:
    raw = recording.model_dump_json(indent=1).encode()
    try:
        _write_private(out, gzip.compress(raw, mtime=0) if out.suffix == ".gz" else raw)
    except OSError as error:
        raise InputError("--out", str(out), error.strerror or "", _OUT_REMEDY) from None


def _write_private(file: Path, content: bytes) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)


def _summarise(recording: Recording, out: Path) -> dict[str, object]:
    return {
        "file": str(out),
        "source": recording.source,
        "resources": len(recording.tree),
        "pseudonyms": recording.replaced,
        "removed": recording.removed,
        "unread": recording.unread,
        "withheld": recording.withheld,
    }


def _show(recording: Recording, out: Path) -> None:
    console = open_console()
    console.print(f"{out}: {recording.source}")
    table = Table("content", "count")
    table.add_row("resources", str(len(recording.tree)))
    for kind, number in sorted(recording.replaced.items()):
        table.add_row(f"{kind}: distinct values, each with a pseudonym", str(number))
    table.add_row("secrets removed", str(recording.removed))
    table.add_row("resources that did not answer", str(len(recording.unread)))
    table.add_row(
        "resources withheld: a value could not be taken out", str(len(recording.withheld))
    )
    console.print(table)
    console.print(f"Look through {out} before you share it; `sim serve --recording` replays it.")
