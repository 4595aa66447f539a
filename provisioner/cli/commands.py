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
    "doctor": Command(
        "serve.doctor",
        "doctor",
        "Look at a site before go-live, and tell what to do: nothing is changed anywhere.",
    ),
    "drift": Command(
        "client.drift",
        "drift",
        "Nodes that do not run what they are to run: by campaign, pin, or the fleet's release.",
    ),
    "debt": Command(
        "client.drift",
        "debt",
        "What is written and does not run yet, and which reset it waits for.",
    ),
    "explain": Command(
        "client.explain",
        "explain",
        "Tell in plain words what a node is, why it is there, what comes next, what unblocks it.",
    ),
    "inspect": Command("offline.inspect", "inspect", "Print the inventory of a Redfish service."),
    "plan": Command(
        "offline.plan",
        "plan",
        "Print the steps to a release with their reasons, "
        "or what blocks and what would unblock it.",
    ),
    "intake": Command(
        "serve.intake",
        "intake",
        "Take racked nodes in: they are stored as `discovered`, and the daemon goes on from there.",
    ),
    "serve": Command(
        "serve.serve",
        "serve",
        "Run the daemon until it is stopped (Ctrl-C or SIGTERM); it drives every node taken in.",
    ),
    "api": Command(
        "serve.api",
        "api",
        "Serve the REST API alone (docs/api.md). `provisioner serve` serves it too: "
        "it needs no other.",
    ),
    "where": Command(
        "offline.places",
        "where",
        "What an address belongs to: rack, node, rail, card and leaf port.",
    ),
    "address": Command(
        "offline.places", "address", "The addresses of a place: the inverse of `where`."
    ),
    "certify": Command(
        "offline.certify",
        "certify",
        "Judge the stored evidence of a node, or of all, again: `certify --rejudge NODE|--all`.",
    ),
    "xid": Command("offline.xid", "xid", "Explain an Xid, or with --switch an NVSwitch's SXid."),
    "node": Command("client.node", "app", "Nodes: where each is on its journey, and why."),
    "agents": Command(
        "client.agents",
        "app",
        "Maintenance agents, and the certificate authority that their images trust.",
    ),
    "case": Command("client.case", "app", "Repairs: cases, what is suspected, what was done."),
    "alert": Command(
        "client.alert", "app", "Alerts of nodes: list, show, override for a time, clear."
    ),
    "audit": Command(
        "client.audit", "app", "The audit log: list it, and verify its chain of digests."
    ),
    "backup": Command(
        "serve.backup",
        "backup",
        "Write a backup of a site's database and learned keys to one file, while daemons run.",
    ),
    "bundle": Command("offline.bundle", "app", "Air-gap bundles: create, verify, unpack."),
    "checks": Command("offline.checks", "app", "Health checks: list them, judge any output."),
    "campaign": Command(
        "client.campaign", "app", "Campaigns: upgrades in waves, with limits, stops and a way back."
    ),
    "certificate": Command(
        "client.certificate",
        "app",
        "Certificates: show, export, verify offline, revoke; the keys that sign them.",
    ),
    "clock": Command("client.clock", "app", "The clock: say that it is right after a step."),
    "cohort": Command(
        "client.cohort",
        "app",
        "The fleet's comparison: outliers, learned floors, before and after.",
    ),
    "db": Command("serve.backup", "db", "The database: its schema."),
    "matrix": Command("offline.matrix", "app", "The pinned matrix: check, show, compare, draw."),
    "netbox": Command(
        "client.netbox", "app", "NetBox: hardware lists from it, the fleet shown in it."
    ),
    "release": Command("client.release", "app", "Releases: the proof of each."),
    "recovery": Command(
        "client.recovery",
        "app",
        "After a restore: what differs between rows and leaves, and what settles it.",
    ),
    "restore": Command(
        "serve.backup",
        "restore",
        "Restore a backup into an empty data directory, or into an empty PostgreSQL database.",
    ),
    "remote": Command(
        "client.remote",
        "app",
        "Every verb of the REST API, on a daemon anywhere. Exit code 0: done; 1: refused or "
        "failed; 2: the input is wrong; 3: written down, another person has to approve it.",
    ),
    "pin": Command("client.pin", "app", "Releases of single nodes and racks, and the fleet's own."),
    "sim": Command("serve.sim", "app", "A simulated site."),
    "tenant": Command("client.tenant", "app", "Tenants: their networks, quotas and nodes."),
    "token": Command("client.token", "app", "Tokens for the REST API: create, list, revoke."),
    "watch": Command("client.watch", "app", "The watch over nodes that serve."),
    "webhook": Command("client.webhook", "app", "Webhooks: add, list, and what could not be told."),
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
