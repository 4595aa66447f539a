"""`provisioner compatibility`: how much of each recorded BMC is read, and which writes are known.

Each recording is read with the daemon's own client, and each action is previewed on it as `bmc
dry-run` does. A row is no proof on hardware, until a person reports it.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from provisioner import quirks
from provisioner.adapters.redfish.client import Redfish
from provisioner.adapters.redfish.dry_run import DryRunTransport, StandingClock
from provisioner.adapters.redfish.recordings.recorded_transport import RecordedTransport
from provisioner.adapters.redfish.recordings.recording import Recording
from provisioner.cli.offline.bmc import Request, carry_out
from provisioner.cli.options.recordings import read_recording
from provisioner.cli.options.showing import JsonOption
from provisioner.model.input_error import InputError
from provisioner.model.inventory import DeviceKind
from provisioner.model.outcome import Blocker
from provisioner.ports import BmcAddress, PortError, Secret

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
