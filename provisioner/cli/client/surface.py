"""The commands of a noun, built from the table of routes, each when it is used."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from provisioner.cli.client.preparing import FILE_IS_A_LIST, FILED
from provisioner.model.input_error import InputError

if TYPE_CHECKING:
    from provisioner.cli.client.calls import OpenOffline

FILE = Path(__file__).with_name("routes.json")
KINDS: Mapping[str, Any] = {
    "text": str,
    "integer": int,
    "number": float,
    "flag": bool,
    "time": str,
    "file": Path,
    "document": Path,
}
PLACE = "Where it goes"
INTEGRATION = "integration"  # in place of a module: found by its entry point
# verbs with several requests, or none: `module:function` of this package
LOCAL: Mapping[str, tuple[str, str]] = {
    "node watch": ("client.following:watch_nodes", "Follow the fleet until every node rests."),
    "campaign watch": ("client.following:watch_campaign", "Follow a campaign until it rests."),
    "certificate verify": (INTEGRATION, "Check an exported certificate without a daemon."),
    "usage verify": (INTEGRATION, "Check a signed statement of usage offline."),
    "log verify": (INTEGRATION, "Check a node's entries of the log offline."),
    "log witness": (INTEGRATION, "Have witnesses cosign the log's head."),
    "case verify-bundle": (INTEGRATION, "Check a case's archive without a daemon."),
    "image upload": (
        "client.upload:upload_image",
        "Upload a file into the artifact store, verified by its SHA-256.",
    ),
    "audit verify": ("serve.reading:verify", "Follow the whole chain of the audit log."),
    "audit check-archive": ("serve.reading:check_archive", "Verify archives without a daemon."),
}
HIDDEN: Mapping[str, tuple[str, ...]] = {
    "token create": ("sha256",),
    "case factory": ("logins",),
    "webhook set": ("paused_why",),  # `webhook pause` and `resume`
    "adopt": ("recorded_tenants",),
}
MORE: Mapping[str, tuple[tuple[str, Any, Any, str], ...]] = {
    "case factory": (
        ("file", Path, ..., "Expected-hardware list with factory logins."),
        ("forget", bool, False, "Forget those of the list."),
    ),
    "adopt": (
        ("from_", str, "", "Adopt another system's hosts: netbox, ironic, nico or csv."),
        ("source", str, "", "Its address, or the CSV file; FILE has logins, tenants, switches."),
        ("apply", bool, False, "With --from: carry it out; without, it is only shown."),
        ("ports", Path, None, "CSV of the hosts' leaf ports: columns name and ports."),
        ("tenant", list[str], None, "A tenant's name there and ours: 3f2a=red; repeatable."),
        ("source_token_file", Path, None, "File with a token of that system."),
        ("source_user", str, "", "Ironic: user of its HTTP basic authentication."),
        ("source_password_file", Path, None, "Ironic: file with that user's password."),
        ("source_ca", Path, None, "File with the CAs of its certificate."),
        ("source_site", list[str], None, "NetBox: slug of a site; NICo: its name; repeatable."),
        ("source_org", str, "", "NICo: the org of its provider."),
        ("host_role", str, "gpu-server", "NetBox: slug of the device role of hosts."),
        ("switch_role", str, "switch", "NetBox: slug of the device role of switches."),
    ),
    "certificate keys": (("pem", bool, False, "PEM, for --key of verify."),),
    "watch status": (("all", bool, False, "Every node, however many."),),
    "recovery list": (("all", bool, False, "Settled ones, too."),),
    "node console": (("follow", bool, False, "Go on with new lines until Ctrl-C."),),
    "node syslog": (("follow", bool, False, "Go on with new messages until Ctrl-C."),),
    "node proof": (("all", bool, False, "Every row, also those that passed."),),
}


@cache
def read_specs() -> Mapping[str, Any]:
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def list_verbs(noun: str) -> Iterator[tuple[str, str]]:
    """Yield each verb of a noun with its summary, in the order of the help."""
    for name, spec in read_specs().items():
        first, _, verb = name.partition(" ")
        if first == noun and verb:
            yield verb, spec["summary"]
    for name, (_, about) in LOCAL.items():
        first, _, verb = name.partition(" ")
        if first == noun:
            yield verb, about


class Verbs(MutableMapping[str, Any]):
    """The verbs of one noun by name; each is built at its first access."""

    def __init__(self, noun: str, open_offline: OpenOffline) -> None:
        self._noun = noun
        self._open_offline = open_offline
        self._built: dict[str, Any] = {}

    def __getitem__(self, verb: str) -> Any:
        name = f"{self._noun} {verb}"
        if verb not in self._built:
            if name not in read_specs() and name not in LOCAL:
                raise KeyError(verb)
            self._built[verb] = build(name, self._open_offline)
        return self._built[verb]

    def __setitem__(self, verb: str, command: Any) -> None:
        self._built[verb] = command

    def __delitem__(self, verb: str) -> None:
        del self._built[verb]

    def __iter__(self) -> Iterator[str]:
        return (verb for verb, _ in list_verbs(self._noun))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Noun(TyperGroup):
    """All verbs of one noun: listed without building any, built when one is run."""

    def __init__(self, open_offline: OpenOffline, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Verbs(self.name or "", open_offline)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs, in the order of the help."""
        return [verb for verb, _ in list_verbs(self.name or "")]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the verb's command, or None; while verbs are listed, its help alone."""
        if getattr(self, "_lists", False):
            return TyperCommand(cmd_name, help=dict(list_verbs(self.name or ""))[cmd_name])
        return self.commands.get(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write `--help` of the noun."""
        self._lists = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._lists = False


def load(name: str, about: str, open_offline: OpenOffline) -> Any:
    """Return a noun with its verbs, or a command that is one word."""
    if name in read_specs():
        return build(name, open_offline)
    return Noun(open_offline, name=name, help=about, no_args_is_help=True)


def build(name: str, open_offline: OpenOffline) -> Any:
    """Return one command in typer's form, from a function."""
    verb = name.rpartition(" ")[2]
    around = typer.Typer()
    if name in LOCAL:
        around.command(verb)(_load_local(name))
    else:
        spec = read_specs()[name]
        around.command(verb, help=_help(spec))(_function(name, spec, open_offline))
    around.callback()(lambda: None)  # a single verb still makes a group
    return typer.main.get_group(around).commands[verb]


def _load_local(name: str) -> Callable[..., None]:
    """Return the function of a verb that is no request. Raises InputError."""
    reference = LOCAL[name][0]
    if reference != INTEGRATION:
        module, function = reference.split(":")
        return cast(
            Callable[..., None], getattr(import_module(f"provisioner.cli.{module}"), function)
        )
    noun, _, verb = name.partition(" ")
    verbs = dict(import_module("provisioner.runtime.integrations").find_verbs(noun))
    if verb not in verbs:
        problem = "its integration is not installed"
        raise InputError("provisioner", name, problem, "Install gpu-provisioner again.")
    return cast(Callable[..., None], verbs[verb])


def _help(spec: Mapping[str, Any]) -> str:
    roles = " or ".join(spec["roles"])
    return f"{spec['summary']}\n\nExample: provisioner {spec['example']}\n\nFor: {roles}."


def _function(name: str, spec: Mapping[str, Any], open_offline: OpenOffline) -> Callable[..., None]:
    """Return the function whose signature is the command's options."""

    def run(**given: Any) -> None:
        from provisioner.cli.client.calls import run_command

        run_command(name, spec, given, open_offline)

    shape = list(_parameters(name, spec))
    run.__signature__ = inspect.Signature(shape)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {p.name: p.annotation for p in shape}
    return run


def _parameters(name: str, spec: Mapping[str, Any]) -> Iterator[inspect.Parameter]:
    taken = set(HIDDEN.get(name, ()))
    for word, about, required in spec["words"]:
        argument = typer.Argument(
            metavar=word.upper() if required else f"[{word.upper()}]", help=about
        )
        yield _parameter(word, str, argument, ... if required else None)
        taken.add(word)
    for option in (*spec["query"], *spec.get("body", ())):
        if option["name"] not in taken:
            taken.add(option["name"])
            yield _option(option)
    for field, kind, default, about in MORE.get(name, ()):
        flag = "--" + field.rstrip("_").replace("_", "-")  # `from_`: a keyword is no parameter
        argument = typer.Option(flag, help=about, show_default=bool(default))
        yield _parameter(field, kind | None if default is None else kind, argument, default)
    yield from _common(name, spec)


def _option(option: Mapping[str, Any]) -> inspect.Parameter:
    kind = KINDS[option["kind"]]
    about = option["help"]
    if option["kind"] == "time":
        about += " A time of UTC: 2026-12-24T18:00."
    if option.get("choices"):
        about += f" One of: {', '.join(option['choices'])}."
    flag = option.get("flag") or "--" + option["name"].replace("_", "-")
    declared = typer.Option(flag, help=about.strip() or None, show_default=False)
    kind = list[str] if option.get("many") else kind
    return _parameter(option["name"], kind | None, declared, None)


def _common(name: str, spec: Mapping[str, Any]) -> Iterator[inspect.Parameter]:
    if "list" in spec:
        fields = ", ".join(spec["list"])
        about = "Show only rows that match: state=released and not tenant=red."
        yield _parameter("where", str | None, typer.Option(help=about), None)
        about = f"Sort by this field ({fields}); -FIELD: the greatest first."
        yield _parameter("sort", str | None, typer.Option(help=about), None)
        most = typer.Option(min=1, help="Show at most so many rows.")
        yield _parameter("limit", int | None, most, None)
    if "body" in spec and name not in FILE_IS_A_LIST:
        about = "File with the body as YAML or JSON; - is the standard input. Options override it."
        yield _parameter("file", Path | None, typer.Option("--file", help=about), None)
    if spec.get("recorded"):
        about = "Show the changes without making them."
        yield _parameter("dry_run", bool, typer.Option("--dry-run", help=about), False)
        about = "Wait until the node rests."
        yield _parameter("wait", bool, typer.Option("--wait", help=about), False)
    if spec.get("destructive"):
        about = "Do not ask for confirmation."
        yield _parameter("yes", bool, typer.Option("--yes", "-y", help=about), False)
    if spec.get("entity"):
        about = "ETag of the record that you decided on; refused if it changed since."
        yield _parameter("if_match", str, typer.Option("--if-match", help=about), "")
    if "media" in spec or name in FILED:
        yield _parameter("out", Path | None, typer.Option("--out", help="File to write."), None)
    yield from _everywhere(spec)


def _everywhere(spec: Mapping[str, Any]) -> Iterator[inspect.Parameter]:
    about = "Format: table, wide, json or yaml."
    yield _parameter("output", str, typer.Option("--output", "-o", help=about), "table")
    yield _parameter("as_json", bool, typer.Option("--json", help="The same as -o json."), False)
    panel: dict[str, Any] = {"rich_help_panel": PLACE, "show_default": False}
    about = "Context: a daemon by its name (`provisioner context`)."
    yield _parameter("context", str, typer.Option("--context", help=about, **panel), "")
    about = "Data directory of a daemon of this machine."
    yield _parameter("data", Path | None, typer.Option("--data", help=about, **panel), None)
    about = "https://HOST:PORT of a daemon."
    yield _parameter("server", str, typer.Option("--server", help=about, **panel), "")
    about = "File with a token for the daemon (mode 0600)."
    yield _parameter(
        "token_file", Path | None, typer.Option("--token-file", help=about, **panel), None
    )
    about = "File with the CA of the daemon's certificate."
    yield _parameter("ca_file", Path | None, typer.Option("--ca", help=about, **panel), None)
    if not spec.get("changes") and spec.get("media") != "text/event-stream":
        about = "Read the data directory itself, for a daemon that is down."
        yield _parameter("offline", bool, typer.Option("--offline", help=about, **panel), False)
        about = "With --offline: matrix file of the daemon; repeatable."
        yield _parameter(
            "matrix", list[Path] | None, typer.Option("--matrix", help=about, **panel), None
        )


def _parameter(name: str, kind: Any, said: Any, default: Any) -> inspect.Parameter:
    annotation = Annotated[kind, said]
    empty = inspect.Parameter.empty
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=empty if default is ... else default,
        annotation=annotation,
    )
