"""`provisioner netbox`: expected hardware from a NetBox, and the fleet's state written to it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
import yaml
from rich.text import Text

from provisioner.cli.client.connection import DataOption, open_connection
from provisioner.cli.client.following import read_nodes
from provisioner.cli.options.checked_options import JsonOption
from provisioner.cli.options.tables import Table, open_console
from provisioner.integrations.inventories.deciding.netbox_mirror import (
    build_objects,
    format_slug,
    plan_changes,
    spell_ports,
)
from provisioner.integrations.inventories.deciding.netbox_records import (
    NetBoxChange,
    NetBoxKind,
    NetBoxObject,
    Verb,
)
from provisioner.integrations.inventories.deciding.netbox_source import build_expected
from provisioner.integrations.inventories.netbox import NetBox
from provisioner.model.input_error import InputError
from provisioner.model.inventory import Inventory
from provisioner.model.node import Node, NodeKind
from provisioner.planning.intake.expected_text import parse
from provisioner.ports import PortError, Secret
from provisioner.runtime.shipped import read_text

app = typer.Typer(help="NetBox: read expected hardware from it, write the fleet's state to it.")
Url = Annotated[str, typer.Option("--url", help="Address of NetBox: https://netbox.example.")]
TokenFile = Annotated[
    Path, typer.Option("--token-file", help="File with a token, readable by its owner only.")
]
CaFile = Annotated[
    Path | None, typer.Option("--ca-file", help="File with the CAs of NetBox's certificate.")
]
HostRole = Annotated[str, typer.Option("--host-role", help="Slug of the device role of hosts.")]
SwitchRole = Annotated[
    str, typer.Option("--switch-role", help="Slug of the device role of switches.")
]
Prune = Annotated[
    bool, typer.Option("--prune", help="Delete stale objects that the provisioner made.")
]
SHOWN_MAX = 200  # characters of a cell


@app.command()
def plan(
    url: Url,
    token_file: TokenFile,
    ca_file: CaFile = None,
    host_role: HostRole = "gpu-server",
    switch_role: SwitchRole = "switch",
    prune: Prune = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the changes that would bring NetBox up to date with the fleet; change nothing.

    Example: provisioner netbox plan --url https://netbox.example --token-file netbox.token
    """
    netbox = open_netbox(url, token_file, ca_file)
    _show(_changes(netbox, data, _roles(host_role, switch_role), prune), as_json=as_json)


@app.command()
def apply(
    url: Url,
    token_file: TokenFile,
    ca_file: CaFile = None,
    host_role: HostRole = "gpu-server",
    switch_role: SwitchRole = "switch",
    prune: Prune = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the plan, ask, and carry it out. Exit code 1 if a change was refused.

    Example: provisioner netbox apply --url https://netbox.example --token-file netbox.token
    """
    netbox = open_netbox(url, token_file, ca_file)
    changes = _changes(netbox, data, _roles(host_role, switch_role), prune)
    _show(changes, as_json=as_json)
    todo = [c for c in changes if c.verb is not Verb.LEAVE]
    if not todo:
        return
    if not yes:
        typer.confirm(f"{len(todo)} changes: carry them out?", abort=True, err=True)
    netbox.tag()
    refused = 0
    for change in todo:
        try:
            netbox.carry_out(change)
        except PortError as error:
            refused += 1
            typer.echo(f"{change.verb} {change.kind} {change.key}: {error}", err=True)
    typer.echo(f"{len(todo) - refused} done, {refused} refused", err=True)
    raise typer.Exit(1 if refused else 0)


@app.command()
def expected(
    url: Url,
    token_file: TokenFile,
    site: Annotated[list[str], typer.Option(help="Slug of a site; repeatable.")],
    ca_file: CaFile = None,
    host_role: HostRole = "gpu-server",
    switch_role: SwitchRole = "switch",
    switch_user: Annotated[str, typer.Option(help="User name on switches.")] = "cumulus",
    switch_password_env: Annotated[
        str, typer.Option(help="Environment variable that holds its password at intake.")
    ] = "SWITCH_PASSWORD",  # noqa: S107 (a name)
) -> None:
    """Print the expected-hardware list from NetBox, for `provisioner intake`.

    Example: provisioner netbox expected --url https://netbox.example --token-file t --site lab
    """
    roles = {slug_: kind for kind, slug_ in _roles(host_role, switch_role).items()}
    objects = open_netbox(url, token_file, ca_file).read(site, ())
    listed = build_expected(objects, roles, (switch_user, switch_password_env))
    if not listed["nodes"]:
        problem = f"no device has one of the roles {host_role}, {switch_role}"
        remedy = "Check the sites and the roles in NetBox."
        raise InputError("--site", ", ".join(site), problem, remedy)
    text = yaml.safe_dump({"site": site[0], **listed}, sort_keys=False, allow_unicode=True)
    parse("the list from NetBox", text)
    typer.echo(text, nl=False)


def _roles(host: str, switch: str) -> dict[NodeKind, str]:
    if host == switch:
        raise InputError("--switch-role", switch, "it is the hosts' role", "Name two roles.")
    return {NodeKind.HOST: host, NodeKind.SWITCH: switch}


def open_netbox(url: str, token_file: Path, ca_file: Path | None) -> NetBox:
    """Return a NetBox, with the token of a file. Raises InputError."""
    token = read_token("--token-file", token_file)
    return NetBox(url, token, str(ca_file) if ca_file else None)


def read_token(option: str, file: Path) -> Secret:
    """Return the secret of a file that only its owner may read. Raises InputError."""
    token = read_text(file).strip()
    if file.stat().st_mode & 0o077:
        remedy = "chmod 600 it, and make a new token."
        raise InputError(option, str(file), "others may read it", remedy)
    if not token or not token.isascii() or not token.isprintable():
        raise InputError(option, str(file), "there is no token in it", "Write it.")
    return Secret(token)


def _changes(
    netbox: NetBox, data: Path | None, roles: dict[NodeKind, str], prune: bool
) -> tuple[NetBoxChange, ...]:
    nodes, inventories = read_fleet(data)
    desired = build_objects(nodes, inventories, roles)
    sites = {format_slug(n.location.site) for n in nodes}
    addresses = {o.key for o in desired if o.kind is NetBoxKind.ADDRESS}
    existing: Sequence[NetBoxObject] = netbox.read(sites, addresses)
    names = {n: i.port_names for n, i in inventories.items() if i.port_names is not None}
    return plan_changes(spell_ports(desired, existing, names), existing, prune=prune)


def read_fleet(data: Path | None) -> tuple[list[Node], dict[str, Inventory]]:
    """Return every node and its last inventory, from the daemon."""
    reach = open_connection(data=data)
    views = read_nodes(reach)
    fields = set(Node.model_fields)
    nodes = [
        Node.model_validate({k: v for k, v in view.items() if k in fields}, strict=False)
        for view in views
    ]
    inventories = {}
    for node in nodes:
        answer = reach.send_request("GET", f"/nodes/{quote(node.id, safe='')}/inventory")
        if answer.good:
            inventories[node.id] = Inventory.model_validate(answer.document, strict=False)
    return nodes, inventories


def _show(changes: Sequence[NetBoxChange], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([c.model_dump(mode="json") for c in changes]))
        return
    table = Table("", "kind", "name", "what")
    for change in changes:
        cells = (change.verb, change.kind, change.key, change.why or _what(change))
        table.add_row(*(Text(_plain(str(w))) for w in cells))
    counts = Counter(str(change.verb) for change in changes)
    open_console().print(table)
    summary = ", ".join(f"{number} to {verb}" for verb, number in sorted(counts.items()))
    open_console().print(summary or "NetBox shows the fleet as it is")


def _what(change: NetBoxChange) -> str:
    if change.verb is Verb.UPDATE:
        pairs = ((n, change.there.get(n, ""), w) for n, w in change.wanted.items())
        return ", ".join(f"{name}: {old or '–'} → {new or '–'}" for name, old, new in pairs)
    return ", ".join(f"{name} {value}" for name, value in change.wanted.items() if value)


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:SHOWN_MAX]
