"""`provisioner compatibility`: how much of each recorded BMC is read, and which writes are known.

Each recording is read with the daemon's own client, and each action is previewed on it as `bmc
dry-run` does. A row is no proof on hardware, until a person reports it.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.dry_run import DryRunTransport, StandingClock
from provisioner.adapters.redfish.recorded import RecordedTransport, Recording
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.cli.options.bmc_options import (
    CaOption,
    InsecureOption,
    PinOption,
    UrlArgument,
    UserOption,
    build_address,
    read_recording,
)
from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.tables import Table, open_console
from provisioner.integrations.recordings.bmc_commands import Request, carry_out
from provisioner.integrations.recordings.pseudonyms import Pseudonyms
from provisioner.integrations.recordings.recorder import Recorder
from provisioner.model.input_error import InputError
from provisioner.model.inventory import DeviceKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.ports import BmcAddress, PortError, Secret

# ------------------------------------------------------------------------------
# `provisioner record`: a BMC as it shows itself, in a file without its site's values.


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


_IMAGE = "http://192.0.2.9:8080/maintenance.iso"  # RFC 5737
_EVENTS = "https://192.0.2.9:8443/events/x"
# column -> the action that is previewed
_WRITES: Mapping[str, Request] = {
    "maintenance image": Request("boot-maintenance", image=_IMAGE),
    "power": Request("power", "cycle"),
    "AC cycle": Request("ac-cycle"),
    "password": Request("change-password"),
    "events": Request("subscribe", destination=_EVENTS),
}
_UNREADABLE = "unclassified"  # kind of a firmware item that no declaration knows


@dataclass(frozen=True)
class Row:
    """One recording. `writes`: action -> number of requests, or the refusal in words."""

    vendor: str
    model: str
    firmware: str  # of the BMC; "" where no item is the host's or the card's BMC
    source: str
    devices: Mapping[str, int]
    items: int
    unclassified: int
    gaps: int
    writes: Mapping[str, int | str]


def compatibility(
    recordings: Annotated[
        list[Path], typer.Argument(help="Recordings, or folders of them (*.json, *.json.gz).")
    ],
    as_json: JsonOption = False,
) -> None:
    """Print which BMCs were recorded, and how each of their parts and writes is known.

    Example: provisioner compatibility r750.json.gz recordings/
    """
    rows = [build_row(read_recording(file)) for file in _list_files(recordings)]
    if as_json:
        typer.echo(json.dumps([vars(row) for row in rows]))
    else:
        typer.echo(make_page(rows), nl=False)


def _list_files(places: Sequence[Path]) -> list[Path]:
    files = [
        file
        for place in places
        for file in (sorted(place.glob("*.json*")) if place.is_dir() else [place])
    ]
    if not files:
        remedy = "Make a recording with `provisioner record URL --out FILE`."
        raise InputError("RECORDINGS", str(places[0]), "holds no recording", remedy)
    return files


def build_row(recording: Recording) -> Row:
    """Return what the daemon's client reads of a recording, and the writes that it would send."""
    return asyncio.run(_build_row(recording))


async def _build_row(recording: Recording) -> Row:
    transport = RecordedTransport(recording.tree)
    root = recording.tree.get("/redfish/v1", {})
    quirk = quirks.identify(root)
    address = BmcAddress("https://recording.invalid", "root", Secret("x"))
    inventory = await Redfish(transport, address, quirk).collect("", "")
    bmc = next(
        (c for kind in ("host.bmc", "bluefield.bmc", "hgx.bmc") for c in inventory.of_kind(kind)),
        None,
    )
    return Row(
        vendor=quirk.title,
        model=inventory.model or "unknown",
        firmware=(bmc.version or "") if bmc else "",
        source=recording.source,
        devices=dict(
            Counter(d.kind.value for d in inventory.devices if d.kind is not DeviceKind.SYSTEM)
        ),
        items=len(inventory.components),
        unclassified=len(inventory.of_kind(_UNREADABLE)),
        gaps=len(inventory.gaps),
        writes={name: await _preview(recording, quirk, ask) for name, ask in _WRITES.items()},
    )


async def _preview(recording: Recording, quirk: quirks.Quirk, request: Request) -> int | str:
    transport = DryRunTransport(RecordedTransport(recording.tree))
    clock = StandingClock()
    user = _find_user(recording.tree)
    address = BmcAddress("https://recording.invalid", user, Secret("x"))
    try:
        refused = await carry_out(Redfish(transport, address, quirk, clock.sleep), clock, request)
    except PortError as error:
        return f"{error.reason}: {error}"
    return _describe(refused) if refused is not None else len(transport.writes)


def _describe(refused: Blocker) -> str:
    return f"{refused.reason.value}: {refused.detail}"


def _find_user(tree: Mapping[str, Mapping[str, Any]]) -> str:
    """Return an account of the recording, so that a change of its password can be previewed."""
    accounts = (body for path, body in tree.items() if "/Accounts/" in path)
    names = [str(body["UserName"]) for body in accounts if body.get("UserName")]
    return names[0] if names else "root"


def make_page(rows: Sequence[Row]) -> str:
    """Return the tables in Markdown: one of reads, one of writes."""
    lines = ["| BMC | model | BMC firmware | parts read | firmware items | gaps | recorded from |"]
    lines.append("|---|---|---|---|---|---|---|")
    for row in rows:
        parts = ", ".join(f"{number} {kind}" for kind, number in sorted(row.devices.items()))
        items = f"{row.items}, {row.unclassified} unclassified" if row.unclassified else row.items
        firmware = row.firmware or "unknown"
        cells = (row.vendor, row.model, firmware, parts or "none", items, row.gaps, row.source)
        lines.append(_make_line(*cells))
    lines += ["", f"| BMC | {' | '.join(_WRITES)} | tried on hardware by |"]
    lines.append("|---|" + "---|" * (len(_WRITES) + 1))
    for row in rows:
        writes = (_show_write(row.writes[name]) for name in _WRITES)
        lines.append(_make_line(f"{row.vendor}, {row.model}", *writes, "nobody yet"))
    return "\n".join(lines) + "\n"


def _show_write(write: int | str) -> str:
    if isinstance(write, str):
        return f"refused: {write}"
    return f"by documents, {write} request{'' if write == 1 else 's'}"


def _make_line(*cells: object) -> str:
    return (
        "| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in cells) + " |"
    )
