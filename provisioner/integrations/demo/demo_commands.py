"""`provisioner demo`: the whole journey on a simulated site, in a minute or two."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from provisioner.access.tokens import DAYS_MAX, new_token
from provisioner.adapters.redfish.transport import RedfishTransport
from provisioner.cli.options.matrix_files import FILE_NAME, read_matrix, read_matrix_texts
from provisioner.cli.serve.daemon_parts import served_api
from provisioner.control.context import Context
from provisioner.daemon.data import Data
from provisioner.daemon.tenants import FabricAccess
from provisioner.execution.artifacts.artifacts import Artifacts
from provisioner.integrations.demo.running import Asked, Progress, Summary, as_json, run
from provisioner.integrations.demo.site import OVERLAY
from provisioner.integrations.demo.stay import DATA, serve_until_stopped
from provisioner.model.access import Role
from provisioner.model.input_error import InputError
from provisioner.model.matrix import Matrix
from provisioner.model.node import Node, NodeKind, State
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.ports.isolation import UfmAddress
from provisioner.runtime.event_loop import new_event_loop
from provisioner.runtime.shipped import find_shipped
from provisioner.runtime.wall_clock import WallClock
from provisioner.settings import Settings
from provisioner.store.database.data_directory import lock_data_directory

STYLE = {
    State.DISCOVERED: "dim",
    State.INTAKE: "cyan",
    State.CONVERGING: "yellow",
    State.VALIDATING: "magenta",
    State.CERTIFIED: "blue",
    State.RELEASED: "green",
    State.QUARANTINED: "bold red",
}
ORDER = tuple(STYLE)
LOG = "daemon.log"  # marks a directory of ours
ROWS = 14  # nodes shown by name; the rest is in the counts
LINE_EVERY_S = 5.0  # between two lines of progress where there is no terminal


def demo(
    nodes: Annotated[
        int, typer.Option(help="Number of hosts; 32 make a scalable unit.", min=1, max=256)
    ] = 32,
    seed: Annotated[int, typer.Option(help="The same seed gives the same site.")] = 0,
    speed: Annotated[
        float, typer.Option(help="Simulated seconds in one real second.", min=1, max=2000)
    ] = 300.0,
    directory: Annotated[
        Path,
        typer.Option(help="Directory for the demonstration's files; an earlier one's are removed."),
    ] = Path("var/demo"),
    matrix: Annotated[Path, typer.Option(help="The matrix file.")] = Path(FILE_NAME),
    svg: Annotated[
        Path | None, typer.Option("--svg", help="Write the last picture to this SVG file.")
    ] = None,
    as_json_: Annotated[
        bool, typer.Option("--json", help="Print the summary as one JSON object in the last line.")
    ] = False,
    stay_: Annotated[
        bool,
        typer.Option("--stay", help="Break nothing and serve until Ctrl-C (docs/tutorial.md)."),
    ] = False,
    spare: Annotated[
        int | None,
        typer.Option(
            min=0, help="With --stay: number of hosts without a customer; default: a quarter."
        ),
    ] = None,
    api_port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Port of the console and the API; 0: a free one."),
    ] = 0,
    rack: Annotated[bool, typer.Option("--rack", help="Update a rack: one tray leaks.")] = False,
) -> None:
    """Take a simulated rack from just cabled to two tenants, with three nodes broken on purpose.

    The simulated BMCs are real HTTPS Redfish endpoints on loopback, and the code that drives them
    is the code that drives real ones. The first line has the address of the console and a token for
    it. Exit code 0: every node ended as planned.

    Example: provisioner demo --nodes 8
    """
    if rack:
        _play_rack(directory, as_json=as_json_)
    matrix = matrix if matrix != Path(FILE_NAME) else find_shipped(FILE_NAME)
    read_matrix([matrix])  # before any file is removed
    spare = (nodes // 4 if stay_ else 0) if spare is None else spare
    _check_spare(spare, nodes, stay=stay_)
    _empty(directory)
    logging.basicConfig(filename=directory / LOG, level=logging.INFO)
    if stay_:
        served = {"consoles": True, "secure_boot": True, "ufm": True, "storage": True}
        asked = Asked(nodes, seed, speed, spare, **served)
        _stay(asked, directory, matrix, api_port)
        return
    console = Console(stderr=as_json_)
    size = Asked(nodes=nodes, seed=seed, speed=speed, storage=True)
    summary, last = _drive(size, directory, matrix, console, api_port)
    if not console.is_terminal:
        console.line()  # rich ends a live picture with a newline on terminals only
    console.print(draw_result(summary))
    if svg is not None and last is not None:
        svg.write_text(draw_end(last, summary), encoding="utf-8")
    if as_json_:
        typer.echo(as_json(summary))
    if not summary.as_planned:
        raise typer.Exit(1)


def _drive(
    size: Asked, directory: Path, matrix: Path, console: Console, api_port: int
) -> tuple[Summary, Progress | None]:
    """Show the journey while it goes on; return its result and the last picture's content."""
    last: Progress | None = None
    # where standard output is JSON, the picture is removed at its end
    with Live(console=console, refresh_per_second=4, transient=console.stderr) as live:
        lines = ProgressLines(console)

        def show(progress: Progress) -> None:
            nonlocal last
            last = progress
            if console.is_terminal:
                live.update(draw_picture(progress))
            else:
                lines.show(progress)

        beside = partial(serve_console, console, Role.VIEWER, directory / DATA, api_port)
        with asyncio.Runner(loop_factory=new_event_loop) as loop:
            summary = loop.run(run(size, directory, matrix, show, beside))
    return summary, last


def _check_spare(spare: int, nodes: int, *, stay: bool) -> None:
    """Raise InputError unless so many hosts can be spare."""
    if spare and not stay:
        problem = "the demonstration gives every sound host to a customer"
        raise InputError("--spare", str(spare), problem, "Add --stay, or leave it out.")
    if spare >= nodes:
        problem = f"of {nodes} hosts so many cannot be spare"
        raise InputError("--spare", str(spare), problem, "Name fewer, or more --nodes.")


def _play_rack(directory: Path, *, as_json: bool) -> NoReturn:
    """Play the update of a rack; exit code 1 where it did not end as planned."""
    from provisioner.integrations.demo.rack_demo import run_rack

    _empty(directory)
    (directory / LOG).touch()
    ended = run_rack(directory, lambda said: typer.echo(said, err=as_json))
    typer.echo(json.dumps(ended) if as_json else json.dumps(ended, indent=2))
    raise typer.Exit(0 if ended["ok"] else 1)


def _stay(asked: Asked, directory: Path, matrix: Path, api_port: int) -> None:
    """Serve until it is stopped. Without a terminal one line reports that all nodes serve."""
    console = Console()
    serve = (
        f"Every node serves, but for {asked.spare} spare." if asked.spare else "Every node serves."
    )
    lines = f"{serve} In another terminal: --data {directory / DATA}. Stop with Ctrl-C."

    told = ProgressLines(console)

    async def work(live: Live) -> None:
        stop = asyncio.Event()
        for sign in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(sign, stop.set)

        def show(progress: Progress) -> None:
            if console.is_terminal:
                live.update(draw_picture(progress))
            else:
                told.show(progress)

        place = directory / DATA
        files = (matrix, directory / OVERLAY)
        beside = partial(serve_console, console, Role.OPERATOR, place, api_port, matrix_files=files)
        await serve_until_stopped(
            asked, directory, matrix, show, lambda: console.print(lines), stop, beside
        )

    with (
        Live(console=console, refresh_per_second=4) as live,
        asyncio.Runner(loop_factory=new_event_loop) as loop,
    ):
        loop.run(work(live))


@asynccontextmanager
async def serve_console(
    console: Console,
    role: Role,
    directory: Path,
    port: int,
    data: Data,
    clock: WallClock,
    settings: Settings,
    matrix: Matrix,
    artifacts: Artifacts,
    *,
    ufm: UfmAddress | None = None,
    matrix_files: Sequence[Path] = (),
) -> AsyncIterator[str]:
    """Serve console and API, at the directory's socket and over TLS, and print how to sign in."""
    chosen = {"api_serve": True, "api_port": port}
    access = FabricAccess(AddressPlan(), settings.model_copy(update=chosen), ufm=ufm)
    context = Context(data.store, clock, access.settings)
    transport = RedfishTransport()
    parts = (data, context, access, matrix, artifacts, transport)
    texts = read_matrix_texts(matrix_files) if matrix_files else ()
    served = served_api(directory, *parts, matrix_texts=texts)
    try:
        async with served as url:
            now = clock.now()
            secret, token = new_token("demo", role, "", DAYS_MAX, now)
            await data.store.tokens.add(token, now)
            note = f"(role {role}; the certificate is the demo's own)"
            line = f"console: {url}/  token: {secret}  {note}"
            console.print(line, highlight=False, soft_wrap=True)
            yield url
    finally:
        await transport.close()


def _empty(directory: Path) -> None:
    """Empty the directory of an earlier demonstration; one with other files is refused."""
    try:
        if directory.is_dir() and any(directory.iterdir()):
            if not (directory / LOG).is_file():
                problem = "it holds files that no demonstration made"
                raise InputError("--directory", str(directory), problem, "Name an empty one.")
            # raises if another demonstration runs there
            with lock_data_directory(directory / DATA):
                shutil.rmtree(directory)
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        problem = f"it cannot be emptied ({error.strerror})"
        raise InputError("--directory", str(directory), problem, "Name another one.") from None


def draw_end(last: Progress, summary: Summary) -> str:
    """Return the last picture of a terminal as SVG, without figures that depend on the machine."""
    recorder = Console(record=True, width=110, file=io.StringIO())
    recorder.print(Group(_bars(last.nodes), _words(last.nodes)))
    recorder.print(draw_result(summary, measured=False))
    return recorder.export_svg(title="provisioner demo")


class ProgressLines:
    """Progress without a terminal: a line when hosts changed state, at most every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told = ""
        self._next_s = 0.0

    def show(self, progress: Progress) -> None:
        """Print a line if there is news, and enough time went by since the last one."""
        counts = Counter(n.state for n in progress.nodes if n.kind is NodeKind.HOST)
        states = ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])
        if states == self._told or progress.wall_s < self._next_s:
            return
        self._told = states
        self._next_s = progress.wall_s + LINE_EVERY_S
        line = f"{progress.wall_s:4.0f} s  {progress.doing}: {states or 'no host is known yet'}"
        self._console.print(line, highlight=False, soft_wrap=True)


def draw_picture(progress: Progress) -> Group:
    """Return the live view: a bar for each state, the nodes under way, the time."""
    clock = f"{progress.simulated_s / 3600:5.2f} simulated hours, {progress.wall_s:4.0f} s"
    return Group(
        Text(f"{progress.doing} · {clock}", style="bold"),
        _bars(progress.nodes),
        _words(progress.nodes),
    )


def _bars(nodes: Sequence[Node]) -> Table:
    table = Table.grid(padding=(0, 1))
    hosts = [n for n in nodes if n.kind is NodeKind.HOST]
    counts = Counter(n.state for n in hosts)
    down = Counter(n.state for n in nodes if n.kind is NodeKind.SWITCH)
    for state in ORDER:
        bar = ProgressBar(
            total=max(len(hosts), 1),
            completed=counts[state],
            width=32,
            style="grey23",
            complete_style=STYLE[state],
            finished_style=STYLE[state],
        )
        table.add_row(
            Text(state, style=STYLE[state]),
            bar,
            f"{counts[state]:3d} hosts",
            f"{down[state]:3d} switches",
        )
    return table


def _words(nodes: Sequence[Node]) -> Table:
    table = Table("node", "state", "VRF", "activity", expand=True, box=None)
    busy = [n for n in nodes if n.state is not State.RELEASED]
    busy.sort(key=lambda n: (n.state is not State.QUARANTINED, n.kind, n.id))
    for node in busy[:ROWS]:
        note = str(node.blockers[0]) if node.blockers else node.note
        table.add_row(
            node.id,
            Text(node.state, style=STYLE.get(node.state, "")),
            node.vrf or "–",
            Text(note, no_wrap=True, overflow="ellipsis"),
        )
    if len(busy) > ROWS:
        table.add_row("…", "", "", f"and {len(busy) - ROWS} more")
    return table


def draw_result(summary: Summary, *, measured: bool = True) -> Panel:
    """Return the summary for people.

    `measured` False: without figures that depend on the machine.
    """
    lines = [
        (
            f"{summary.released} of {summary.nodes} hosts released, "
            f"{summary.switches} switches upgraded"
        ),
        f"{summary.uncertified_in_customer_vrf} uncertified hosts in a customer VRF",
        (
            f"{summary.storage_own} hosts may mount their tenant's storage, "
            f"{summary.storage_foreign} another's"
        ),
        *([f"{summary.redfish_requests} Redfish requests in {summary.wall_s:.0f} s"] * measured),
    ]
    if summary.quarantined:
        lines += ["", "quarantined:"]
        lines += [f"  {q['node']}: {q['blocker']}" for q in summary.quarantined]
    if summary.ran_out_of_time:
        lines += ["", "the time was over before everything rested: fewer --nodes, less load"]
    if summary.violations:
        lines += ["", "violations seen by the simulator:", *summary.violations[:10]]
    good = summary.as_planned
    title = "everything ended as it must" if good else "NOT as it must be: see above"
    return Panel(Text("\n".join(lines)), title=title, border_style="green" if good else "red")
