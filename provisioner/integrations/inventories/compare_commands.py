"""`provisioner compare`: the daemon's hosts beside the records of another system."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from rich.text import Text

from provisioner.cli.client.connection import Connection, DataOption, NoAnswer, open_connection
from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.tables import Table, open_console
from provisioner.integrations.inventories.deciding.belief import Belief, Difference
from provisioner.integrations.inventories.deciding.belief_comparison import compare_beliefs
from provisioner.integrations.inventories.deciding.maas_machines import TenantField, ZoneMeaning
from provisioner.integrations.inventories.deciding.netbox_beliefs import list_beliefs
from provisioner.integrations.inventories.ironic import Ironic
from provisioner.integrations.inventories.maas import Maas
from provisioner.integrations.inventories.netbox_commands import (
    HostRole,
    TokenFile,
    open_netbox,
    read_fleet,
    read_token,
)
from provisioner.integrations.inventories.nico import Nico
from provisioner.model.input_error import InputError
from provisioner.model.node import Node, NodeKind
from provisioner.ports import PortError

app = typer.Typer(
    help="Compare the daemon's hosts with the records of another system; nothing is changed."
)
CaFile = Annotated[
    Path | None, typer.Option("--ca-file", help="File with the CAs of its certificate.")
]
ReadPower = Annotated[
    bool, typer.Option("--power", help="Read each host's power state at its BMC, one by one.")
]
CELL_MAX = 200  # characters


@app.command()
def ironic(
    url: Annotated[str, typer.Argument(help="Address of Ironic: https://ironic.example:6385.")],
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File with a Keystone token, readable by its owner."),
    ] = None,
    user: Annotated[str, typer.Option(help="User of Ironic's HTTP basic authentication.")] = "",
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="File with that user's password.")
    ] = None,
    ca_file: CaFile = None,
    power: ReadPower = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare with an OpenStack Ironic. Exit code 1: a difference; 2: no answer.

    Example: provisioner compare ironic https://ironic.example:6385 --token-file keystone.token
    """
    if bool(user) != (password_file is not None):
        remedy = "Name both, or neither."
        raise InputError("--user", user, "a user and a password file belong together", remedy)
    there = Ironic(
        url,
        token=read_token("--token-file", token_file) if token_file else None,
        login=(user, read_token("--password-file", password_file)) if password_file else None,
        ca_file=str(ca_file) if ca_file else None,
    )
    _compare(there.read, data, power=power, as_json=as_json)


@app.command()
def netbox(
    url: Annotated[str, typer.Argument(help="Address of NetBox: https://netbox.example.")],
    token_file: TokenFile,
    site: Annotated[list[str], typer.Option(help="Slug of a site; repeatable.")],
    ca_file: CaFile = None,
    host_role: HostRole = "gpu-server",
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare with a NetBox. Exit code 1: a difference; 2: no answer.

    Example: provisioner compare netbox https://netbox.example --token-file t --site fra1
    """
    there = open_netbox(url, token_file, ca_file)
    _compare(
        lambda: list_beliefs(there.read(site, ()), host_role), data, power=False, as_json=as_json
    )


@app.command()
def maas(
    url: Annotated[str, typer.Argument(help="Address of MAAS: https://maas.example:5443/MAAS.")],
    key_file: Annotated[
        Path, typer.Option("--key-file", help="File with an API key, readable by its owner.")
    ],
    tenant: Annotated[
        TenantField, typer.Option("--tenant-field", help="The field that has a host's tenant.")
    ] = TenantField.OWNER,
    zone: Annotated[
        ZoneMeaning, typer.Option("--zone-is", help="The place that an availability zone means.")
    ] = ZoneMeaning.SITE,
    ca_file: CaFile = None,
    power: ReadPower = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare with a MAAS. Exit code 1: a difference; 2: no answer.

    Example: provisioner compare maas https://maas.example:5443/MAAS --key-file maas.key
    """
    there = Maas(url, read_token("--key-file", key_file), str(ca_file) if ca_file else None)
    _compare(lambda: there.read(tenant, zone), data, power=power, as_json=as_json)


@app.command()
def nico(
    url: Annotated[str, typer.Argument(help="Address of its REST API: https://nico.example.")],
    org: Annotated[str, typer.Option(help="The org of its provider.")],
    token_file: TokenFile,
    site: Annotated[
        list[str] | None, typer.Option(help="Name of a site; repeatable. All without it.")
    ] = None,
    ca_file: CaFile = None,
    power: ReadPower = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare with an NVIDIA infra controller. Exit code 1: a difference; 2: no answer.

    Example: provisioner compare nico https://nico.example --org acme --token-file nico.jwt
    """
    token = read_token("--token-file", token_file)
    there = Nico(url, org, token, str(ca_file) if ca_file else None)
    _compare(
        lambda: [row.belief for row in there.read_rows(tuple(site or ()))],
        data,
        power=power,
        as_json=as_json,
    )


def _compare(
    read: Callable[[], Sequence[Belief]], data: Path | None, *, power: bool, as_json: bool
) -> None:
    """Compare and end. Exit code 2: one side gave no answer, which is no difference."""
    try:
        beliefs = read()
        nodes, inventories = read_fleet(data)
        states = _read_power(open_connection(data=data), nodes) if power else {}
    except (PortError, NoAnswer) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(2) from None
    differences = compare_beliefs(nodes, inventories, states, beliefs)
    if as_json:
        typer.echo(json.dumps([d.model_dump(mode="json") for d in differences]))
    else:
        _show(differences, len(beliefs))
    raise typer.Exit(1 if differences else 0)


def _read_power(reach: Connection, nodes: Sequence[Node]) -> dict[str, str]:
    """Return the power state that each host's BMC reports now; a silent one is left out."""
    states = {}
    for node in (n for n in nodes if n.kind is NodeKind.HOST):
        answer = reach.send_request("GET", f"/nodes/{quote(node.id, safe='')}/power")
        if answer.good:
            states[node.id] = str(answer.document["power"])
    return states


def _show(differences: Sequence[Difference], records: int) -> None:
    console = open_console()
    if not differences:
        console.print(f"{records} records, no difference")
        return
    table = Table("node", "about", "here", "there", "settled by")
    for d in differences:
        cells = (d.node, d.aspect, d.here, d.there, d.settle)
        table.add_row(*(Text(_clean(str(cell))) for cell in cells))
    console.print(table)
    console.print(f"{records} records, {len(differences)} differences")


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:CELL_MAX]
