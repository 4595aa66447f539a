"""`provisioner sim`: a simulated site for any Redfish client."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import typer
from rich.console import Console

from provisioner.cli.options.bmc_options import read_recording
from provisioner.cli.options.tables import Table, open_console
from provisioner.integrations.sim.hardware.build import HOST_ITEMS
from provisioner.integrations.sim.hardware.clock import FastClock
from provisioner.integrations.sim.site.control import Control
from provisioner.integrations.sim.site.serve import Server
from provisioner.integrations.sim.site.serve_site import serve_recordings, serve_site
from provisioner.integrations.sim.site.site import Site
from provisioner.integrations.sim.storage import vms
from provisioner.integrations.sim.switches import ufm
from provisioner.model.input_error import InputError
from provisioner.runtime.event_loop import new_event_loop

# ------------------------------------------------------------------------------
# `provisioner sim break`, `swap` and `faults`: faults and exchanges on a simulated site.


ControlOption = Annotated[
    Path, typer.Option("--control", help="Socket of the site (`sim serve --control`).")
]
SITE = Path("var/demo/control.sock")
ANSWER_S = 60.0  # seconds; a large site answers in one or two


def break_(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node of the site.")],
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
    node: Annotated[str, typer.Argument(metavar="NODE", help="A node of the site.")],
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
    became = answer["serial"] or "sound again"
    typer.echo(f"{node}: {part} is now {became}, it was {answer['was']}")


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


NODES_MAX = 2048  # 22,528 BMCs at ports of their own; 64 units of 32 hosts

app = typer.Typer(
    help="A simulated site: serve it, break parts, exchange them.", no_args_is_help=True
)
app.command("break")(break_)
app.command()(swap)
app.command()(faults)


@app.callback()
def _group() -> None:
    """Simulate a site with real update semantics."""


@app.command()
def serve(
    nodes: Annotated[int, typer.Option(help="Number of HGX nodes with 11 BMCs each.")] = 1,
    listen: Annotated[
        str, typer.Option(help="First address; in 127.0.0.0/8 each BMC gets the next one.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0: a free one for each BMC.")] = 0,
    seed: Annotated[
        int, typer.Option(help="The same seed gives the same serials and chances.")
    ] = 0,
    speed: Annotated[float, typer.Option(help="Simulated seconds in one real second.")] = 1.0,
    vendor: Annotated[str, typer.Option(help=f"One of {', '.join(HOST_ITEMS)}.")] = "supermicro",
    control: Annotated[
        Path | None, typer.Option(help="Socket for the ground truth and faults.")
    ] = None,
    recording: Annotated[
        list[Path] | None,
        typer.Option(help="Serve this recorded BMC instead of a site; repeat it for more."),
    ] = None,
    consoles: Annotated[
        bool, typer.Option("--consoles", help="Serve the hosts' serial consoles over SSH, too.")
    ] = False,
    secure_boot: Annotated[
        bool, typer.Option("--secure-boot", help="Start the hosts with Secure Boot on.")
    ] = False,
    with_ufm: Annotated[
        bool, typer.Option("--ufm", help="Serve a UFM for InfiniBand partitions, too.")
    ] = False,
    with_storage: Annotated[
        bool, typer.Option("--storage", help="Serve a VAST management system (VMS), too.")
    ] = False,
    one_listener: Annotated[
        bool,
        typer.Option(
            "--one-listener",
            help="One socket for all BMCs, each at an address in 127.0.0.0/8 (large sites).",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the endpoints as one JSON object.")
    ] = False,
) -> None:
    """Serve a site over HTTPS until interrupted; print endpoints and factory credentials.

    Example: provisioner sim serve --nodes 2 --control site.sock
    """
    _check(nodes, listen, port, speed, vendor)
    if one_listener and (recording or not ip_address(listen).is_loopback or ":" in listen):
        remedy = "Give it with an address of 127.0.0.0/8, and without --recording."
        raise InputError("--one-listener", "", f"{listen:.40} is not in 127.0.0.0/8", remedy)
    if recording:
        trees = {str(file): read_recording(file).tree for file in recording}
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve_recordings(trees, listen, port, as_json=as_json))
        return
    site = Site(nodes, seed, clock=FastClock(speed), vendor=vendor)
    site.ufm = ufm.UfmService() if with_ufm else None
    site.vms = vms.SimulatedVms() if with_storage else None
    for machine in site.machines.values() if secure_boot else ():
        machine.host.bios.turn_on_secure_boot()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        served = partial(
            serve_site, site, listen, port, consoles=consoles, one_listener=one_listener
        )
        runner.run(_serve(site, served, listen, control, as_json=as_json))


def _check(nodes: int, listen: str, port: int, speed: float, vendor: str) -> None:
    if not 1 <= nodes <= NODES_MAX:
        problem = f"{nodes} is not in 1..{NODES_MAX}"
        raise InputError("--nodes", "", problem, "Serve fewer nodes.")
    if not 0 <= port <= 65535:
        raise InputError("--port", "", f"{port} is no port", "Give 0 to 65535.")
    if not 0 < speed <= 10_000:
        raise InputError("--speed", "", f"{speed} is not in 0..10000", "Give a factor over 0.")
    if vendor not in HOST_ITEMS:
        vendors = ", ".join(HOST_ITEMS)
        raise InputError("--vendor", "", f"{vendor!r:.40} is not known", f"Choose of {vendors}.")
    try:
        ip_address(listen)
    except ValueError:
        remedy = "Give an IP address of this machine."
        raise InputError("--listen", "", f"{listen!r:.40} is no IP address", remedy) from None


async def _serve(
    site: Site,
    start: Callable[[], Awaitable[Server]],
    listen: str,
    control: Path | None,
    *,
    as_json: bool,
) -> None:
    stop = _listen_for_the_end()
    try:
        server = await start()
    except OSError as error:
        raise _taken(listen, error) from None
    control_server = Control(site, control) if control else None
    if control_server:
        try:
            await control_server.start()
        except OSError as error:
            await server.close()
            remedy = "Name a file in a directory that can be written, with a short path."
            raise InputError("--control", str(control), str(error), remedy) from None
    _print(site, as_json=as_json)
    await stop.wait()
    if control_server:
        await control_server.stop()
    await server.close()


async def _serve_recordings(
    trees: Mapping[str, Mapping[str, Mapping[str, Any]]], listen: str, port: int, *, as_json: bool
) -> None:
    stop = _listen_for_the_end()
    try:
        server, urls = await serve_recordings(trees, listen, port)
    except OSError as error:
        raise _taken(listen, error) from None
    if as_json:
        typer.echo(json.dumps({"recordings": urls}))
    else:
        table = Table("recording", "URL")
        for name, url in urls.items():
            table.add_row(name, url)
        open_console().print(table)
        typer.echo("Any user and password log in. Stop with Ctrl-C.")
    await stop.wait()
    await server.close()


def _listen_for_the_end() -> asyncio.Event:
    """Return an event that a signal to end sets."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def _taken(listen: str, error: OSError) -> InputError:
    return InputError("--listen", listen, str(error), "Choose another --listen or --port.")


def list_endpoints(site: Site) -> list[dict[str, Any]]:
    """Return every endpoint with its factory credential."""
    endpoints = []
    for name, url in site.urls.items():
        node, _, bmc = name.partition("/")
        if bmc:
            hardware = site.machines[node].bmcs[bmc]
            kind = hardware.vendor
            user = hardware.username
            password = hardware.password
        elif name == ufm.NAME and site.ufm is not None:
            kind = name
            user = site.ufm.username
            password = site.ufm.password
        elif name == vms.NAME and site.vms is not None:
            kind = name
            user = site.vms.user
            password = site.vms.password
        else:
            switch = site.switches[name]
            kind = "cumulus"
            user = switch.username
            password = switch.password
        endpoints.append(
            {"name": name, "url": url, "kind": kind, "username": user, "password": password}
        )
    return endpoints


def _print(site: Site, *, as_json: bool) -> None:
    listed = list_endpoints(site)
    if as_json:
        typer.echo(json.dumps({"endpoints": listed}))
        return
    table = Table(title=f"{site.name}: {len(listed)} endpoints", title_justify="left")
    for title in ("endpoint", "URL", "kind", "user", "factory password"):
        table.add_column(title, overflow="fold", min_width=max(len(title), 10))
    for row in listed:
        table.add_row(*(str(row[k]) for k in ("name", "url", "kind", "username", "password")))
    Console().print(table)
    typer.echo("Stop with Ctrl-C.")
