"""The commands and their modules; a module is loaded only when its command is used.

The whole program takes seconds to load on a slow machine, and a person who types `provisioner
where` or presses the tab key would wait each time. So this list has its own short summaries.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from provisioner.model.input_error import InputError

if TYPE_CHECKING:
    from provisioner.cli.client.connection import Connection, Place

ROUTES = "routes"  # in place of a module: built from the table of routes
INTEGRATION = "integration"  # in place of a module: ours, found by its entry point


@dataclass(frozen=True)
class Command:
    """`name` in `module` of this package: a function, or the typer application of a noun."""

    module: str
    name: str
    about: str  # the first paragraph of its own help: a test holds them together


COMMANDS = {
    "demo": Command(
        INTEGRATION,
        "",
        "Take a simulated rack from just cabled to two tenants, "
        "with three nodes broken on purpose.",
    ),
    "serve": Command(
        "serve.serve",
        "serve",
        "Run the daemon until it is stopped (Ctrl-C or SIGTERM); it drives every node taken in.",
    ),
    "init": Command(
        INTEGRATION,
        "",
        "Propose a site's hardware list and overlay from its BMCs and switches; "
        "nothing is changed.",
    ),
    "doctor": Command(
        INTEGRATION,
        "",
        "Examine a site before go-live and report the remedies; nothing is changed.",
    ),
    "help": Command(
        "offline.pages", "show_page", "Show a page of the documentation, or list all pages."
    ),
    "context": Command("client.context", "app", "Contexts: the daemons that commands use."),
    "sign-in": Command(
        INTEGRATION,
        "",
        "Sign in at the site's OIDC provider: open its page in any browser and type the code.",
    ),
    "sign-out": Command(
        INTEGRATION,
        "",
        "End the sign-in at a daemon: its tokens are revoked at the provider and removed here.",
    ),
    "intake": Command(
        ROUTES, "", "Take racked nodes in: they are stored, and the daemon continues with them."
    ),
    "explain": Command(
        ROUTES,
        "",
        "Explain a node: its state, the cause, the next step, and the remedy for a blocker.",
    ),
    "search": Command(
        ROUTES,
        "",
        "Find nodes, serials, addresses, ports, tenants, cases, alerts, campaigns, pages, verbs.",
    ),
    "node": Command(ROUTES, "", "Nodes: their states, the causes, and the actions on them."),
    "switch": Command(ROUTES, "", "Switches."),
    "storage": Command(ROUTES, "", "Shared storage of tenants, against their records."),
    "tenant": Command(ROUTES, "", "Tenants: their networks, quotas and nodes."),
    "campaign": Command(
        ROUTES, "", "Campaigns: upgrades in waves, with limits, stop conditions and a way back."
    ),
    "pin": Command(
        ROUTES, "", "Pins: target releases of single nodes and racks, and of the fleet."
    ),
    "policy": Command(ROUTES, "", "Policies: the precautions of campaigns, kept under names."),
    "hardware": Command(ROUTES, "", "The hardware list: places, cables, cards and feeds of nodes."),
    "drift": Command(
        ROUTES,
        "",
        "List nodes whose versions differ from their campaign, pin, or the fleet's release.",
    ),
    "versions": Command(
        ROUTES, "", "List the running versions of each component, counted against the pins."
    ),
    "debt": Command(
        ROUTES,
        "",
        "List firmware that is written but not active yet, and the reset that activates it.",
    ),
    "usage": Command(
        ROUTES, "", "Usage: who had which nodes, why and for how long; statements and bills."
    ),
    "cohort": Command(ROUTES, "", "The fleet's comparison: outliers, learned floors, changes."),
    "case": Command(ROUTES, "", "Repairs: cases, their suspects and remedies."),
    "alert": Command(ROUTES, "", "Alerts of nodes: list, override for a time, clear."),
    "notice": Command(ROUTES, "", "Notices to tenants: failures, maintenance, returns."),
    "watch": Command(ROUTES, "", "The watch over nodes that serve."),
    "certificate": Command(
        ROUTES, "", "Certificates: show, export, verify, revoke; the keys that sign them."
    ),
    "log": Command(
        ROUTES, "", "The log of certificates, erasures and handovers that tenants verify."
    ),
    "release": Command(ROUTES, "", "Target releases of the daemon's matrix."),
    "overlay": Command(ROUTES, "", "Files of the matrix in force: its base and its overlays."),
    "image": Command(ROUTES, "", "Images in the artifact store: upload, list, describe, remove."),
    "artifact": Command(ROUTES, "", "Firmware files that the matrix names."),
    "operation": Command(ROUTES, "", "Operations, under way and finished."),
    "request": Command(ROUTES, "", "Requests for changes: list, approve, refuse."),
    "event": Command(ROUTES, "", "Events: list them, or follow them as they happen."),
    "audit": Command(ROUTES, "", "The audit log: list, verify, archive and prune it."),
    "credential": Command(
        ROUTES, "", "Passwords of BMCs: their ages; change them; one is shown with four eyes."
    ),
    "token": Command(ROUTES, "", "Tokens for the REST API: create, list, revoke."),
    "view": Command(ROUTES, "", "Saved views of the console: list, show, save, delete."),
    "session": Command(ROUTES, "", "Sessions of browsers: list, end."),
    "webhook": Command(ROUTES, "", "Webhooks: receivers of events, and undelivered events."),
    "recovery": Command(
        ROUTES,
        "",
        "Recovery after a restore: differences between rows and leaves, and their decisions.",
    ),
    "agents": Command(
        ROUTES, "", "Maintenance agents, and the certificate authority that their images trust."
    ),
    "mode": Command(ROUTES, "", "Show whether this daemon changes devices, and why not."),
    "adopt": Command(
        ROUTES,
        "",
        "Adopt nodes that serve: they enter as released to the tenant whose network they are in.",
    ),
    "capability": Command(
        ROUTES, "", "Capabilities over adopted nodes: list, show, grant, withdraw."
    ),
    "observation": Command(
        ROUTES, "", "Observing (`serve --observe`): each node's reading, and the acts that follow."
    ),
    "clock": Command(ROUTES, "", "The clock: confirm it after a step."),
    "health": Command(
        ROUTES, "", "Show the daemon's load: whether it is overloaded, and the cause."
    ),
    "whoami": Command(ROUTES, "", "Show the caller that your token identifies."),
    "netbox": Command(
        INTEGRATION, "", "NetBox: read expected hardware from it, write the fleet's state to it."
    ),
    "rehearse": Command(
        INTEGRATION,
        "",
        "Rehearse an intake: the site's own list and overlay on a simulated twin of that site.",
    ),
    "compare": Command(
        INTEGRATION,
        "",
        "Compare the daemon's hosts with the records of another system; nothing is changed.",
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
    "db": Command("serve.backup", "db", "The database: upgrade its schema."),
    "bmc": Command(INTEGRATION, "", "BMCs: requests to one, previewed; network boot."),
    "pdu": Command(INTEGRATION, "", "PDUs: read outlets; preview an AC cycle."),
    "discover": Command(
        INTEGRATION, "", "Discovery: BMCs in the leases of DHCP servers; nothing is changed."
    ),
    "inspect": Command(INTEGRATION, "", "Print the inventory of a Redfish service."),
    "record": Command(
        INTEGRATION,
        "",
        "Record every resource of a BMC by reads alone, without secrets and the site's own values.",
    ),
    "compatibility": Command(
        INTEGRATION,
        "",
        "Print which BMCs were recorded, and how each of their parts and writes is known.",
    ),
    "plan": Command(
        INTEGRATION,
        "",
        "Print the steps to a release with their reasons, or the blockers with their remedies.",
    ),
    "matrix": Command(INTEGRATION, "", "The pinned matrix: check, show, compare, draw, fill."),
    "checks": Command(INTEGRATION, "", "Health checks: list them, judge any output."),
    "xid": Command(INTEGRATION, "", "Explain an Xid, or with --switch an NVSwitch's SXid."),
    "attest": Command(INTEGRATION, "", "Attestation: signed evidence of devices, verified."),
    "where": Command(
        "offline.places",
        "where",
        "Find the place of an address: rack, node, rail, card and leaf port.",
    ),
    "address": Command(
        "offline.places", "address", "Print the addresses of a place: the inverse of `where`."
    ),
    "optics": Command(
        INTEGRATION, "", "Optics: ends that are dirty or dying, flaps, and causes that they share."
    ),
    "topology": Command(
        INTEGRATION, "", "The cabled fabric for others: Slurm, Kubernetes, Prometheus."
    ),
    "bundle": Command(INTEGRATION, "", "Air-gap bundles: create, verify, unpack."),
    "sim": Command(INTEGRATION, "", "A simulated site: serve it, break parts, exchange them."),
}


# the commands by what people do with them, in the order of the program's help
GROUPS: dict[str, str] = {
    "Every day": "search intake explain node case alert notice tenant storage switch certificate "
    "log drift debt usage event",
    "The fleet's versions": "versions campaign pin policy matrix release cohort overlay image "
    "artifact plan",
    "Who may do what": "whoami sign-in sign-out token session view credential request operation "
    "audit",
    "The site and its daemon": "init doctor rehearse serve health mode watch hardware adopt "
    "capability observation recovery clock agents backup restore db webhook context",
    "Without a daemon": "demo sim help inspect record compatibility bmc pdu discover where address "
    "checks xid attest optics bundle",
    "Other systems": "netbox compare topology",
}
_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names.split()}
_PLACES = {name: place for place, name in enumerate(_GROUP_OF)}
OTHERS = "Other systems"  # also of integrations that others ship


class Loading(MutableMapping[str, Any]):
    """Every command by its name; each is loaded at its first access."""

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
    """Return the command in typer's form. Raises KeyError."""
    where = COMMANDS[name]
    if where.module == ROUTES:
        surface = import_module("provisioner.cli.client.surface")
        return surface.load(name, where.about, open_offline)
    if where.module == INTEGRATION:
        found = _load_foreign(name)
        if found is None:
            problem = "its integration is not installed"
            raise InputError("provisioner", name, problem, "Install gpu-provisioner again.")
        return found
    return _wrap(name, getattr(import_module(f"provisioner.cli.{where.module}"), where.name))


def open_offline(place: Place, matrices: Sequence[Path]) -> Connection:
    """Open a data directory for `--offline`; no other command imports the daemon for it."""
    from provisioner.cli.serve.reading import OfflineConnection

    return OfflineConnection(place, matrices)


def _load_foreign(name: str) -> Any:
    """Return the command that an integration brings, or None. Raises InputError."""
    found = import_module("provisioner.runtime.integrations").find_command(name)
    return None if found is None else _wrap(name, found[1])


def _wrap(name: str, command: Any) -> Any:
    around = typer.Typer()
    if isinstance(command, typer.Typer):
        around.add_typer(command, name=name)
    else:
        around.command(name)(command)
    return typer.main.get_group(around).commands[name]


class Commands(TyperGroup):
    """The program: it lists commands without loading any, and runs the one that was named."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Loading()
        self._lists = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of the help."""
        return sorted(COMMANDS, key=lambda name: _PLACES.get(name, len(_PLACES)))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command; in a list, only its name and summary.

        Those of integrations are looked for last: reading all entry points takes a tenth of a
        second, which nobody waits for at `--help` and the tab key.
        """
        if cmd_name not in COMMANDS:
            return None if self._lists else _load_foreign(cmd_name)
        if self._lists:
            group = _GROUP_OF.get(cmd_name, OTHERS)
            return TyperCommand(cmd_name, help=COMMANDS[cmd_name].about, rich_help_panel=group)
        return self.commands[cmd_name]

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write `--help` of the program itself."""
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        self._lists = True
        try:
            yield
        finally:
            self._lists = False
