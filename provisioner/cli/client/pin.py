"""`provisioner pin`: which release a node, a rack or the fleet is to run, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.client.campaign import when
from provisioner.cli.client.campaign_options import ByOption, MatrixOption
from provisioner.cli.client.campaign_tables import moment
from provisioner.cli.options.data_options import DataOption, JsonOption, show_table, with_data
from provisioner.cli.options.matrix_files import read_matrix
from provisioner.daemon.data import Data
from provisioner.model.campaign_row import PinScope, ReleasePin
from provisioner.model.input_error import InputError
from provisioner.runtime.site_clock import site_clock
from provisioner.store.repositories.campaign_rows import CampaignRows

app = typer.Typer(
    help="Releases of single nodes and racks, and the fleet's own.", no_args_is_help=True
)
ScopeArgument = Annotated[PinScope, typer.Argument(metavar="node|rack|fleet")]
NameArgument = Annotated[str, typer.Argument(metavar="[NAME]", help="Of the node or rack.")]


@app.command("set")
def set_pin(
    scope: ScopeArgument,
    name: NameArgument = "",
    release: Annotated[str, typer.Option(help="The release that it is to run.")] = "",
    reason: Annotated[str, typer.Option(help="Why; it is kept for good.")] = "",
    until: Annotated[str, typer.Option(help="A time of UTC; a node's or rack's pin has one.")] = "",
    by: ByOption = "",
    data: DataOption = Path("var"),
    matrix: MatrixOption = None,
) -> None:
    """Say which release it is to run. A campaign moves it there; others leave it alone."""
    known = read_matrix(matrix or []).releases
    if release not in known:
        remedy = f"Known: {', '.join(sorted(known))}."
        raise InputError("--release", "", f"there is no release {release!r:.60}", remedy)
    if not reason:
        raise InputError("--reason", "", "a pin has a reason", "Say why, in a sentence.")
    now = site_clock(data).now()
    expires = when("--until", until) if until else 0.0
    if (scope is not PinScope.FLEET and not until) or (until and expires <= now):
        problem = "a pin of a node or rack ends at some time in the future"
        raise InputError("--until", "", problem, "Write it like 2026-12-24T18:00.")

    async def put(opened: Data) -> None:
        nodes = await opened.store.nodes()
        there = {
            PinScope.NODE: {n.id for n in nodes},
            PinScope.RACK: {n.location.rack for n in nodes},
            PinScope.FLEET: {""},
        }[scope]
        if name not in there:
            problem = f"there is no {scope} {name!r:.60}"
            raise InputError("NAME", "", problem, "See `provisioner node list`.")
        pin = ReleasePin(
            scope=scope,
            name=name,
            release=release,
            reason=reason,
            by=by,
            at=now,
            expires_at=expires,
        )
        await CampaignRows(opened.store).put_pin(pin, now)

    with_data(data, put)
    typer.echo(f"{scope} {name}: {release}".replace(" :", ":"))


@app.command("remove")
def remove_pin(
    scope: ScopeArgument, name: NameArgument = "", data: DataOption = Path("var")
) -> None:
    """Take a pin away. Nothing moves by that."""

    async def drop(opened: Data) -> None:
        book = CampaignRows(opened.store)
        mine = [p for p in await book.pins() if (p.scope, p.name) == (scope, name)]
        if not mine:
            problem = f"there is no pin of {scope} {name!r:.60}"
            raise InputError("NAME", "", problem, "See `provisioner pin list`.")
        await book.drop_pin(mine[0], opened.clock.now())

    with_data(data, drop)
    typer.echo(f"{scope} {name}: no pin".replace(" :", ":"))


@app.command("list")
def list_pins(data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """All pins, expired ones too."""
    pins = with_data(data, lambda d: CampaignRows(d.store).pins())
    if as_json:
        typer.echo(json.dumps([p.model_dump(mode="json") for p in pins]))
        return
    now = site_clock(data).now()
    table = Table("of", "name", "release", "until", "by", "reason")
    for p in pins:
        until = moment(p.expires_at) if p.holds(now) else f"expired {moment(p.expires_at)}"
        words = (p.scope, p.name or "–", p.release, until, p.by or "–", p.reason)
        table.add_row(*(Text(str(word)) for word in words))
    show_table(table, "Nothing is pinned: each node has the release of its campaign, or of intake.")
