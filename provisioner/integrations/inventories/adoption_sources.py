"""The lists of `provisioner adopt --from`: another system's hosts, laid over the list of the site.

Everything is read here, with logins that the daemon never gets. The daemon gets one list, as if a
person had written it, with the tenant that the other system records of each node: it refuses a
node that it reads in another tenant's network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from provisioner.daemon.data import read_expected
from provisioner.integrations.inventories.deciding.adoption_rows import MergedList, merge_rows
from provisioner.integrations.inventories.deciding.belief import SourceRow
from provisioner.integrations.inventories.deciding.host_table import read_table
from provisioner.integrations.inventories.deciding.netbox_beliefs import list_beliefs
from provisioner.integrations.inventories.deciding.netbox_source import build_expected
from provisioner.integrations.inventories.ironic import Ironic
from provisioner.integrations.inventories.netbox import NetBox
from provisioner.integrations.inventories.netbox_commands import read_token
from provisioner.integrations.inventories.nico import Nico
from provisioner.model.expected import ExpectedNode
from provisioner.model.input_error import InputError
from provisioner.model.node import NodeKind
from provisioner.model.outcome import Blocker, Reason
from provisioner.planning.matrix.located_yaml import LIST_SIZE_MAX
from provisioner.runtime.shipped import read_text

Given = dict[str, Any]
SWITCH_LOGIN = ("cumulus", "SWITCH_PASSWORD")  # user, and variable with the password, from NetBox

_OPTION = re.compile(r"--(org|site|token-file|user|password-file)\b")


class Source(StrEnum):
    """The systems whose hosts can be adopted."""

    NETBOX = "netbox"
    IRONIC = "ironic"
    NICO = "nico"
    CSV = "csv"


class Listing:
    """The rows of a source, the switches that it records, and the rows that cannot be read."""

    def __init__(
        self,
        rows: Sequence[SourceRow],
        switches: Sequence[ExpectedNode] = (),
        refused: Sequence[Blocker] = (),
    ) -> None:
        self.rows = tuple(rows)
        self.switches = tuple(switches)
        self.refused = tuple(refused)


def read_listed(path: Path, given: Given) -> MergedList:
    """Return the list of a source's hosts over that of a file. Raises InputError, PortError."""
    source = _choose(given)
    base = read_expected(path)
    try:
        listing = READERS[source](given)
    except InputError as error:
        raise _name_options(error) from None
    cables = {}
    if given.get("ports"):
        table = read_table(str(given["ports"]), read_text(given["ports"], LIST_SIZE_MAX))
        cables = {row.belief.name.lower(): row.ports for row in table.rows}
        listing.refused = (*listing.refused, *table.refused)
    rows = [
        row.model_copy(update={"ports": cables[row.belief.name.lower()]})
        if row.belief.name.lower() in cables
        else row
        for row in listing.rows
    ]
    own = {n.name for n in base.nodes}
    switches = tuple(n for n in listing.switches if n.name not in own)
    base = base.model_copy(update={"nodes": (*base.nodes, *switches)})
    merged = merge_rows(base, rows, _read_pairs(given), source)
    return merged.model_copy(update={"refused": (*listing.refused, *merged.refused)})


def _choose(given: Given) -> Source:
    try:
        source = Source(given["from_"])
    except ValueError:
        problem = "no such source"
        raise InputError(
            "--from", given["from_"][:20], problem, f"One of: {', '.join(Source)}."
        ) from None
    if not given.get("source"):
        remedy = "Give the address of the system, or the CSV file."
        raise InputError("--source", "", "it is not given", remedy)
    return source


def _name_options(error: InputError) -> InputError:
    """Return a reader's error with the options of this command: readers name those of `compare`."""
    source = "--source" if error.source == "URL" else _OPTION.sub(r"--source-\1", error.source)
    remedy = _OPTION.sub(r"--source-\1", error.remedy)
    return InputError(source, error.where, error.problem, remedy)


def _read_pairs(given: Given) -> Mapping[str, str]:
    """Return the tenants' names there with ours."""
    pairs = {}
    for text in given.get("tenant") or ():
        there, _, here = text.partition("=")
        if not there or not here:
            remedy = "Write it like --tenant 3f2a-…=red."
            raise InputError("--tenant", text[:80], "it is no pair of names", remedy)
        pairs[there] = here
    return pairs


def _read_netbox(given: Given) -> Listing:
    sites = given.get("source_site") or []
    if not sites:
        raise InputError("--source-site", "", "it is not given", "Name a site's slug in NetBox.")
    token = read_token("--source-token-file", _token(given))
    netbox = NetBox(given["source"], token, _ca_file(given))
    objects = netbox.read(sites, ())
    role = given.get("host_role") or "gpu-server"
    roles = {role: NodeKind.HOST, given.get("switch_role") or "switch": NodeKind.SWITCH}
    listed = build_expected(objects, roles, SWITCH_LOGIN)["nodes"]
    nodes = {n["name"]: n for n in listed}
    rows = []
    switches = [
        ExpectedNode.model_validate(n, strict=False)
        for n in listed
        if n["kind"] == NodeKind.SWITCH and n["address"]
    ]
    refused: list[Blocker] = []
    for belief in list_beliefs(objects, role):
        node = nodes[belief.name]
        try:
            fields = {"ports": node["ports"], "cards": node["dpus"]}
            rows.append(SourceRow.model_validate({"belief": belief, **fields}, strict=False))
        except ValidationError as error:
            refused.append(_refuse_device(belief.name, str(error.errors()[0]["msg"])))
    return Listing(rows, switches, refused)


def _read_ironic(given: Given) -> Listing:
    user = given.get("source_user") or ""
    file = given.get("source_password_file")
    if bool(user) != (file is not None):
        problem = "a user and a password file belong together"
        raise InputError("--source-user", user, problem, "Name both, or neither.")
    token = given.get("source_token_file")
    ironic = Ironic(
        given["source"],
        token=read_token("--source-token-file", token) if token else None,
        login=(user, read_token("--source-password-file", file)) if file else None,
        ca_file=_ca_file(given),
    )
    return Listing(ironic.read_rows())


def _read_nico(given: Given) -> Listing:
    org = given.get("source_org") or ""
    token = read_token("--source-token-file", _token(given))
    nico = Nico(given["source"], org, token, _ca_file(given))
    return Listing(nico.read_rows(tuple(given.get("source_site") or ())))


def _read_csv(given: Given) -> Listing:
    path = Path(given["source"])
    table = read_table(str(path), read_text(path, LIST_SIZE_MAX))
    return Listing(table.rows, refused=table.refused)


def _token(given: Given) -> Path:
    file = given.get("source_token_file")
    if file is None:
        remedy = "Write a token to a file that its owner alone may read."
        raise InputError("--source-token-file", "", "it is not given", remedy)
    return Path(file)


def _ca_file(given: Given) -> str | None:
    return str(given["source_ca"]) if given.get("source_ca") else None


def _refuse_device(name: str, detail: str) -> Blocker:
    unblock = "Correct the device in NetBox; the others go on without it."
    return Blocker(reason=Reason.MALFORMED, subject=name, detail=detail, unblock=unblock)


READERS: Mapping[Source, Callable[[Given], Listing]] = {
    Source.NETBOX: _read_netbox,
    Source.IRONIC: _read_ironic,
    Source.NICO: _read_nico,
    Source.CSV: _read_csv,
}
