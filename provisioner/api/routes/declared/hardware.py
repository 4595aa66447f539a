"""Routes of the hardware list: each node as it was declared, with its place, cables and feeds.

An entry that is put is taken in like a list of one (`routes/intake.py`). Of a node that was taken
in, outlets alone are replaced: place, cables and cards were compared with the world since, and
other ones are another node.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field, ValidationError

from provisioner.api.changes import decode_cursor, encode_cursor
from provisioner.api.operations import OperationView
from provisioner.api.parts import Ask, Reply
from provisioner.api.problem import build_refusal, refuse_missing
from provisioner.api.route import OPERATORS, VIEWERS, Counted, Effect, Paging, Route, format_etag
from provisioner.api.routes.intake import IntakeList, submit_list
from provisioner.model.base import Record
from provisioner.model.expected import DEFAULT_OS, ExpectedBmc, ExpectedDpu, ExpectedNode
from provisioner.model.location import Location, Outlet, Port
from provisioner.model.node import Node, NodeKind, Origin

TAG = "intake"
VENDORS_MAX = 32


class ListedBmc(Record):
    """A BMC of an entry, as it was found."""

    name: str = Field(description="Name within the node: host, DPU_1, NIC_3.")
    kind: str = Field(description="host, dpu, supernic or switch.")
    url: str = Field(description="Origin of its Redfish service.")
    serial: str = Field(description="Serial number of the card or system, as paired.")
    base_mac: str = Field(description="First MAC address of a card.")
    pci: str = Field(description="PCI address of a card, as the host has it.")


class HardwareEntry(Record):
    """One node of the hardware list."""

    name: str = Field(description="Name of the node.")
    kind: NodeKind = Field(description="Host or switch.")
    origin: Origin = Field(description="Whether it was taken in, adopted or detached.")
    release: str = Field(description="Release of the matrix that it is to run.")
    address: str = Field(description="In-band address of a host, management address of a switch.")
    location: Location = Field(description="Its place.")
    ports: tuple[Port, ...] = Field(description="Leaf ports that it is cabled to.")
    outlets: tuple[Outlet, ...] = Field(description="All its feeds.")
    os_disk: str = Field(description="Serial number or WWN of the disk for its system.")
    os: str = Field(description="Operating system of a switch.")
    bmcs: tuple[ListedBmc, ...] = Field(description="Its BMCs.")


class HardwarePage(Counted):
    """A part of the hardware list, by name."""

    items: tuple[HardwareEntry, ...]
    next: str = ""


class Login(Record):
    """A name and a password."""

    username: str = Field(min_length=1, max_length=200, description="Name of the account.")
    password: str = Field(min_length=1, max_length=1000, repr=False, description="Its password.")


class HardwareDeclaration(Record):
    """The body of an entry: the fields of the expected-hardware list, and the first logins."""

    kind: NodeKind = Field(description="Host or switch.")
    release: str = Field("", max_length=128, description="Release that it is brought to.")
    bmc: ExpectedBmc = Field(ExpectedBmc(), description="Its BMC, by address, MAC or serial.")
    address: str = Field("", max_length=300, description="Address of the host or switch.")
    location: Location = Field(Location(), description="Its place.")
    dpus: tuple[ExpectedDpu, ...] = Field((), max_length=32, description="Its BlueField cards.")
    ports: tuple[Port, ...] = Field((), max_length=256, description="Leaf ports of its cables.")
    outlets: tuple[Outlet, ...] = Field((), max_length=16, description="All its feeds.")
    os_disk: str = Field("", max_length=64, description="Serial or WWN of its system's disk.")
    os: str = Field(DEFAULT_OS, max_length=32, description="Operating system of a switch.")
    login: Login | None = Field(None, description="Login of a switch.")
    factory_credentials: dict[str, Login] = Field(
        default_factory=dict, description="Factory logins of its BMCs, by vendor."
    )


async def list_hardware(ask: Ask) -> Reply:
    started = decode_cursor(ask.query.cursor, str)
    after = str(started[0]) if started else ""
    book = ask.parts.store.nodes
    rows = await book.list_page(after=after, limit=ask.query.limit + 1, narrowed={})
    total = sum(group[-1] for group in await book.count_groups(None))
    shown = rows[: ask.query.limit]
    following = encode_cursor(shown[-1].id) if len(rows) > len(shown) else ""
    items = tuple(build_entry(n) for n in shown)
    return Reply(HardwarePage(items=items, next=following, total=total))


async def show_hardware(ask: Ask) -> Reply:
    node = await ask.read_node()
    return Reply(build_entry(node), etag=format_etag(node.generation))


def build_entry(node: Node) -> HardwareEntry:
    """Return a node as an entry of the list. It has no login."""
    fields = {name: getattr(node, name) for name in HardwareEntry.model_fields if name != "name"}
    names = ListedBmc.model_fields
    bmcs = tuple(ListedBmc(**{name: getattr(b, name) for name in names}) for b in node.bmcs)
    return HardwareEntry(**{**fields, "name": node.id, "bmcs": bmcs})


async def declare_hardware(ask: Ask) -> Reply:
    """Ask that an entry be taken in, or that a known node's outlets be replaced."""
    body: HardwareDeclaration = ask.body
    name = ask.read_word("node")
    try:
        entry = _make_node(name, body)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        detail = f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"[:300]
        unblock = "See docs/intake.md for what an entry holds."
        raise build_refusal(400, "entry", "The entry cannot be used", unblock, detail) from None
    present = await ask.parts.store.nodes.get(name)
    ask.check_match("" if present is None else format_etag(present.generation))
    if present is not None:
        if not ask.may_see(present):
            raise refuse_missing("node")
        _check_same(present, entry)
    listed = {
        "site": ask.parts.settings.site,
        "release": body.release,
        "factory_credentials": {v: _dump(login) for v, login in body.factory_credentials.items()},
        "nodes": [entry.model_dump(mode="json", exclude_defaults=True)],
    }
    return await submit_list(ask, IntakeList(expected=json.dumps(listed)))


def _make_node(name: str, body: HardwareDeclaration) -> ExpectedNode:
    shared = set(ExpectedNode.model_fields) & set(HardwareDeclaration.model_fields)
    fields = body.model_dump(mode="json", include=shared)
    login = {} if body.login is None else _dump(body.login)
    return ExpectedNode.model_validate({**fields, **login, "name": name}, strict=False)


def _dump(login: Login) -> dict[str, Any]:
    return login.model_dump(mode="json")


def _check_same(node: Node, entry: ExpectedNode) -> None:
    """Check that an entry differs from a known node in its outlets at most. Raises Refused."""
    pairs = {
        "kind": (node.kind, entry.kind),
        "address": (node.address, entry.address),
        "location": (node.location, entry.location),
        "ports": (node.ports, entry.ports),
        "os_disk": (node.os_disk, entry.os_disk),
    }
    if node.kind is NodeKind.SWITCH and node.os:
        pairs["os"] = (node.os, entry.os)
    other = [name for name, (was, declared) in pairs.items() if was != declared]
    if other:
        title = "This node was taken in with another entry"
        unblock = "Outlets alone are replaced. For another place or other cables, retire it first."
        raise build_refusal(
            409, "known", title, unblock, f"{node.id} differs in {', '.join(other)}"
        )


_ASKED = {200: OperationView, 202: OperationView}
ROUTES = (
    Route(
        "GET",
        "/hardware",
        "list_hardware",
        TAG,
        "List the hardware as it was declared: places, cables, cards and feeds.",
        VIEWERS,
        list_hardware,
        {200: HardwarePage},
        query=Paging,
    ),
    Route(
        "GET",
        "/hardware/{node}",
        "show_hardware",
        TAG,
        "Show one entry of the hardware list.",
        VIEWERS,
        show_hardware,
        {200: HardwareEntry},
        entity=True,
    ),
    Route(
        "PUT",
        "/hardware/{node}",
        "declare_hardware",
        TAG,
        "Declare a node and take it in; of a known one, replace the outlets.",
        OPERATORS,
        declare_hardware,
        _ASKED,
        effect=Effect.LASTING,
        body=HardwareDeclaration,
        example={
            "kind": "host",
            "release": "spectrum-x-1.3.0",
            "bmc": {"url": "https://10.0.0.9"},
            "location": {"rack": "su0-rack1", "index": 3},
            "factory_credentials": {"nvidia": {"username": "root", "password": "the-printed-one"}},
        },
        refusals={409: "It was taken in with another entry, or this process reaches no BMC."},
        entity=True,
        site=True,
    ),
)
