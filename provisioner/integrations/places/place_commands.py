"""`provisioner where` and `provisioner address`: from an address to its place, and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.tables import Table, open_console
from provisioner.integrations.places import front_bonds
from provisioner.integrations.places.gazetteer import Gazetteer, NoPlace
from provisioner.model.input_error import InputError
from provisioner.model.location import NodePlace
from provisioner.planning.places import address_plan
from provisioner.planning.places.address_plan import AddressPlan
from provisioner.planning.places.addressing import Addressing
from provisioner.runtime.shipped import read_text

PlanOption = Annotated[
    Path | None,
    typer.Option("--plan", help="The site's address plan (YAML); by default the shipped one."),
]


def where(
    word: Annotated[str, typer.Argument(help="An address, a number or a name.")],
    plan: PlanOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the place of an address: rack, node, rail, card and leaf port.

    Takes an address of a rail (IPv4 or IPv6), a switch's loopback, AS4200000003, vni:4001, a route
    target, the name of a node or switch, or leaf/interface.

    Example: provisioner where 172.224.0.18
    """
    gazetteer = Gazetteer(Addressing(_read_plan(plan)))
    try:
        place = gazetteer.find_place(word)
    except NoPlace as error:
        remedy = "Is it an address of this site? Name its plan with --plan."
        raise InputError(word, "", f"it belongs to no place: {error}", remedy) from None
    _show(gazetteer.describe_place(place), as_json)


def address(
    location: Annotated[str, typer.Argument(help="A place, such as pod0/su0/n09/rail7.")],
    plan: PlanOption = None,
    bonds: Annotated[
        Path | None, typer.Option("--bonds", help="Plan of the front-end's bonds (YAML).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the addresses of a place: the inverse of `where`.

    Example: provisioner address pod0/su0/n09/rail7
    """
    chosen = _read_plan(plan)
    gazetteer = Gazetteer(Addressing(chosen))
    try:
        place = gazetteer.parse_place(location)
    except NoPlace as error:
        remedy = "Write pod0/su0/n09[/rail7[/host|leaf]], pod0/su0/leaf3, pod0/spine1 or tenant5."
        raise InputError(location, "", str(error), remedy) from None
    told = gazetteer.describe_place(place)
    if bonds is not None:
        planned = front_bonds.parse(str(bonds), read_text(bonds), chosen)
        if not isinstance(place, NodePlace):
            raise InputError(location, "", "bonds are of nodes", "Name one: pod0/su0/n09.")
        ports = front_bonds.plan_node(planned, gazetteer, chosen, place)
        told["ports"] = front_bonds.describe(ports)
    _show(told, as_json)


def _read_plan(plan: Path | None) -> AddressPlan:
    return AddressPlan() if plan is None else address_plan.parse(str(plan), read_text(plan))


def _show(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(told))
        return
    out = open_console()
    table = Table(show_header=False, box=None)
    for name, value in told.items():
        if name not in ("rails", "ports"):
            table.add_row(name.replace("_", " "), Text(str(value)))
    out.print(table)
    if "rails" in told:
        columns = ("rail", "card", "ipv4", "peer_ipv4", "leaf", "leaf_port")
        rails = Table(*(c.replace("_", " ") for c in columns))
        for rail in told["rails"]:
            rails.add_row(*(str(rail[c]) for c in columns))
        out.print(rails)
    if "ports" in told:  # in the form of the list, to be taken over
        typer.echo("ports:")
        for port in told["ports"]:
            typer.echo(f"- {json.dumps(port)}")
