"""The commands and where each of them is: only the one that is asked for is loaded.

The whole program takes seconds to load on a slow machine, and a person who types `provisioner
where` or presses the tab key waits for it each time. So the list has its own short words.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

ROUTES = "routes"  # in place of a module: made of the table of routes


@dataclass(frozen=True)
class Command:
    """`name` in `module` of this package: a function, or the typer application of a noun."""

    module: str
    name: str
    about: str  # the first paragraph of its own help: a test holds them together


COMMANDS = {
    "demo": Command(
        "serve.demo",
        "demo",
        "Take a simulated rack from just cabled to two tenants, "
        "with three nodes broken on purpose.",
    ),
    "serve": Command(
        "serve.serve",
        "serve",
        "Run the daemon until it is stopped (Ctrl-C or SIGTERM); it drives every node taken in.",
    ),
    "doctor": Command(
        "serve.doctor",
        "doctor",
        "Look at a site before go-live, and tell what to do: nothing is changed anywhere.",
    ),
    "context": Command("client.context", "app", "Contexts: the daemons that commands go to."),
    "intake": Command(
        ROUTES, "", "Take racked nodes in: they are stored, and the daemon goes on from there."
    ),
    "explain": Command(
        ROUTES, "", "What a node is, why it is there, what comes next, and what unblocks it."
    ),
    "node": Command(ROUTES, "", "Nodes: where each is on its journey, why, and what to do."),
    "switch": Command(ROUTES, "", "Switches."),
    "tenant": Command(ROUTES, "", "Tenants: their networks, quotas and nodes."),
    "campaign": Command(
        ROUTES, "", "Campaigns: upgrades in waves, with limits, stops and a way back."
    ),
    "pin": Command(ROUTES, "", "Releases of single nodes and racks, and the fleet's own."),
    "drift": Command(
        ROUTES,
        "",
        "Nodes that do not run what they are to run: by campaign, pin, or the fleet's release.",
    ),
    "debt": Command(
        ROUTES, "", "What is written and does not run yet, and which reset it waits for."
    ),
    "cohort": Command(ROUTES, "", "The fleet's comparison: outliers, learned floors, changes."),
    "case": Command(ROUTES, "", "Repairs: cases, what is suspected, what was done."),
    "alert": Command(ROUTES, "", "Alerts of nodes: list, override for a time, clear."),
    "notice": Command(ROUTES, "", "Notices to tenants: failures, maintenance, returns."),
    "watch": Command(ROUTES, "", "The watch over nodes that serve."),
    "certificate": Command(
        ROUTES, "", "Certificates: show, export, verify, revoke; the keys that sign them."
    ),
    "release": Command(ROUTES, "", "Releases of the matrix that the daemon runs."),
    "artifact": Command(ROUTES, "", "Firmware files that the matrix names."),
    "operation": Command(ROUTES, "", "Operations that are under way, or were."),
    "request": Command(ROUTES, "", "Changes that people asked for: list, approve, refuse."),
    "event": Command(ROUTES, "", "What happened: list it, or follow it as it happens."),
    "audit": Command(ROUTES, "", "The audit log: list, verify, archive and prune it."),
    "token": Command(ROUTES, "", "Tokens for the REST API: create, list, revoke."),
    "session": Command(ROUTES, "", "Browsers that are signed in: list, end."),
    "webhook": Command(ROUTES, "", "Webhooks: receivers of events, and what was not delivered."),
    "recovery": Command(
        ROUTES, "", "After a restore: what differs between rows and leaves, and what settles it."
    ),
    "agents": Command(
        ROUTES, "", "Maintenance agents, and the certificate authority that their images trust."
    ),
    "clock": Command(ROUTES, "", "The clock: say that it is right after a step."),
    "health": Command(ROUTES, "", "Whether the daemon is overloaded, and by what."),
    "whoami": Command(ROUTES, "", "Who I am, as my token says."),
    "netbox": Command(
        "client.netbox", "app", "NetBox: hardware lists from it, the fleet shown in it."
    ),
    "backup": Command(
        "serve.backup",
        "backup",
        "Write a backup of a site's database and learned keys to one file, while daemons run.",
    ),
    "restore": Command(
        "serve.backup",
        "restore",
        "Restore a backup into an empty data directory, or into an empty PostgreSQL database.",
    ),
    "db": Command("serve.backup", "db", "The database: its schema."),
    "bmc": Command("offline.bmc", "app", "BMCs: what would be sent to one."),
    "inspect": Command("offline.inspect", "inspect", "Print the inventory of a Redfish service."),
    "plan": Command(
        "offline.plan",
        "plan",
        "Print the steps to a release with their reasons, "
        "or what blocks and what would unblock it.",
    ),
    "matrix": Command("offline.matrix", "app", "The pinned matrix: check, show, compare, draw."),
    "checks": Command("offline.checks", "app", "Health checks: list them, judge any output."),
    "xid": Command("offline.xid", "xid", "Explain an Xid, or with --switch an NVSwitch's SXid."),
    "attest": Command(
        "offline.attest", "app", "Attestation: signed evidence of devices, verified."
    ),
    "where": Command(
        "offline.places",
        "where",
        "What an address belongs to: rack, node, rail, card and leaf port.",
    ),
    "address": Command(
        "offline.places", "address", "The addresses of a place: the inverse of `where`."
    ),
    "bundle": Command("offline.bundle", "app", "Air-gap bundles: create, verify, unpack."),
    "sim": Command("serve.sim", "app", "A simulated site."),
}


class Loading(MutableMapping[str, Any]):
    """Every command by its name; each is loaded when it is taken out."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = load(name)
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


def load(name: str) -> Any:
    """The command itself, as typer makes it of its function. Raises KeyError."""
    where = COMMANDS[name]
    if where.module == ROUTES:
        surface = import_module("provisioner.cli.client.surface")
        return surface.load(name, where.about)
    found = getattr(import_module(f"provisioner.cli.{where.module}"), where.name)
    around = typer.Typer()
    if isinstance(found, typer.Typer):
        around.add_typer(found, name=name)
    else:
        around.command(name)(found)
    return typer.main.get_group(around).commands[name]


class Commands(TyperGroup):
    """The program: lists without loading anything, and runs what was asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Loading()
        self._lists = False

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, or in a list only its name and what it is about."""
        if cmd_name not in COMMANDS:
            return None
        if self._lists:
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name].about)
        return self.commands[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """`--help` of the program itself."""
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """What the tab key offers."""
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        self._lists = True
        try:
            yield
        finally:
            self._lists = False
