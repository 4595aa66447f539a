"""`provisioner sim break`, `swap` and `faults`: what happens to hardware, on a simulated site."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer
from rich.table import Table

from provisioner.cli.options.showing import console
from provisioner.model.input_error import InputError

ControlOption = Annotated[
    Path, typer.Option("--control", help="Socket of the site (`sim serve --control`).")
]
SITE = Path("var/demo/control.sock")
ANSWER_S = 60.0  # a large site answers in a second or two


def break_(
    node: Annotated[str, typer.Argument(metavar="NODE")],
    fault: Annotated[str, typer.Argument(metavar="FAULT", help="As `sim faults` lists them.")],
    part: Annotated[str, typer.Option(help="A part or a BMC: GPU_SXM_3, NIC_0.")] = "",
    control: ControlOption = SITE,
) -> None:
    """Break something: a part, a BMC, a cable, a switch."""
    told = _ask(control, "POST", "/faults", {"preset": fault, "node": node, "part": part})
    typer.echo(f"{node}: {told['meaning']}")


def swap(
    node: Annotated[str, typer.Argument(metavar="NODE")],
    part: Annotated[str, typer.Argument(metavar="PART", help="Its slot, such as GPU_SXM_4.")],
    serial: Annotated[str, typer.Option(help="Of the new part.")] = "",
    control: ControlOption = SITE,
) -> None:
    """Do what a technician does: put a sound part with another serial into the slot."""
    body = {"node": node, "part": part, "serial": serial}
    told = _ask(control, "POST", "/parts", body)
    typer.echo(f"{node}: {part} is now {told['serial']}, it was {told['was']}")


def faults(control: ControlOption = SITE) -> None:
    """Every fault by name, and what was broken so far."""
    told = _ask(control, "GET", "/faults", None)
    table = Table("fault", "in the catalogue", "on", "meaning")
    for name, preset in told["presets"].items():
        table.add_row(name, preset["catalogue"], preset["target"], preset["meaning"])
    console().print(table)
    for injected in told["injected"]:
        typer.echo(f"broken: {injected}")


def _ask(control: Path, verb: str, path: str, body: dict[str, Any] | None) -> Any:
    """Raises InputError if no site answers there, or if it refuses."""

    async def work() -> tuple[int, Any]:
        limit = aiohttp.ClientTimeout(total=ANSWER_S)
        wire = aiohttp.UnixConnector(path=str(control))
        async with (
            aiohttp.ClientSession(connector=wire, timeout=limit) as session,
            session.request(verb, f"http://simulator{path}", json=body) as reply,
        ):
            return reply.status, await reply.json()

    try:
        status, told = asyncio.run(work())
    except (aiohttp.ClientError, OSError, ValueError, TimeoutError):
        remedy = "Start `provisioner sim serve --control FILE` or `provisioner demo --stay` first."
        raise InputError("--control", str(control), "no site answers there", remedy) from None
    if status != 200:
        remedy = "See `provisioner sim faults`, and `provisioner node show NODE` for its parts."
        raise InputError("sim", "", str(told.get("error", status)), remedy)
    return told
