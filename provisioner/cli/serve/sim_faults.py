"""`provisioner sim break`, `swap` and `faults`: faults and exchanges on a simulated site."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer
from rich.table import Table

from provisioner.cli.options.showing import open_console
from provisioner.model.input_error import InputError

ControlOption = Annotated[
    Path, typer.Option("--control", help="Socket of the site (`sim serve --control`).")
]
SITE = Path("var/demo/control.sock")
ANSWER_S = 60.0  # seconds; a large site answers in one or two


def break_(
    node: Annotated[str, typer.Argument(metavar="NODE")],
    fault: Annotated[
        str, typer.Argument(metavar="FAULT", help="Name of a fault; `sim faults` lists them.")
    ],
    part: Annotated[str, typer.Option(help="A part or a BMC, such as GPU_SXM_3 or NIC_0.")] = "",
    control: ControlOption = SITE,
) -> None:
    """Break a part, a BMC, a cable or a switch.

    Example: provisioner sim break su0-n03 xid_79 --part GPU_SXM_3
    """
    answer = _ask(control, "POST", "/faults", {"preset": fault, "node": node, "part": part})
    typer.echo(f"{node}: {answer['meaning']}")


def swap(
    node: Annotated[str, typer.Argument(metavar="NODE")],
    part: Annotated[
        str, typer.Argument(metavar="PART", help="Slot of the part, such as GPU_SXM_4.")
    ],
    serial: Annotated[str, typer.Option(help="Serial of the new part.")] = "",
    control: ControlOption = SITE,
) -> None:
    """Exchange a part as a technician does: put a sound one with another serial into the slot.

    Example: provisioner sim swap su0-n03 GPU_SXM_4
    """
    body = {"node": node, "part": part, "serial": serial}
    answer = _ask(control, "POST", "/parts", body)
    typer.echo(f"{node}: {part} is now {answer['serial']}, it was {answer['was']}")


def faults(control: ControlOption = SITE) -> None:
    """List every fault by name, and the faults that are active.

    Example: provisioner sim faults
    """
    answer = _ask(control, "GET", "/faults", None)
    table = Table("fault", "in the catalogue", "on", "meaning")
    for name, preset in answer["presets"].items():
        table.add_row(name, preset["catalogue"], preset["target"], preset["meaning"])
    open_console().print(table)
    for injected in answer["injected"]:
        typer.echo(f"broken: {injected}")


def _ask(control: Path, verb: str, path: str, body: dict[str, Any] | None) -> Any:
    """Send a request to the simulator. Raises InputError if no site answers, or if it refuses."""

    async def work() -> tuple[int, Any]:
        limit = aiohttp.ClientTimeout(total=ANSWER_S)
        wire = aiohttp.UnixConnector(path=str(control))
        async with (
            aiohttp.ClientSession(connector=wire, timeout=limit) as session,
            session.request(verb, f"http://simulator{path}", json=body) as reply,
        ):
            return reply.status, await reply.json()

    try:
        status, answer = asyncio.run(work())
    except (aiohttp.ClientError, OSError, ValueError, TimeoutError):
        remedy = "Start `provisioner sim serve --control FILE` or `provisioner demo --stay` first."
        raise InputError("--control", str(control), "no site answers there", remedy) from None
    if status != 200:
        remedy = "See `provisioner sim faults`, and `provisioner node show NODE` for its parts."
        raise InputError("sim", "", str(answer.get("error", status)), remedy)
    return answer
