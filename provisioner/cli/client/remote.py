"""`provisioner remote`: every verb of the REST API as a command, on a daemon anywhere.

The commands are made of the table of routes that the server runs, so none can be missing.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from urllib.parse import quote

import typer
from pydantic.fields import FieldInfo

from provisioner.adapters.api_client import Answer, ApiClient
from provisioner.api import table
from provisioner.api.route import PREFIX, Route
from provisioner.cli.client.remote_views import show, show_event, show_problem
from provisioner.cli.client.remote_waiting import followed
from provisioner.daemon.data import read_text
from provisioner.model.base import Record
from provisioner.model.input_error import InputError
from provisioner.ports import Secret

WORD = re.compile(r"{(\w+)}")
SCALARS = (str, int, float, bool)
NEEDS_OVER = 3  # exit code: written down, and another person has to approve it
# pages for a browser, and its cookie: a command line has no use of them
NOT_HERE = frozenset(
    {"show_docs", "show_docs_file", "show_openapi", "begin_session", "end_session"}
)

app = typer.Typer(
    help="Every verb of the REST API, on a daemon anywhere. Exit code 0: done; 1: refused or "
    "failed; 2: the input is wrong; 3: written down, another person has to approve it.",
    no_args_is_help=True,
)

Server = Annotated[
    str, typer.Option(envvar="PROVISIONER_SERVER", help="https://HOST:PORT of the daemon.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option(envvar="PROVISIONER_TOKEN_FILE", help="File with a token (mode 0600)."),
]
CaFile = Annotated[
    Path | None,
    typer.Option("--ca", envvar="PROVISIONER_CA", help="CA of its certificate: agent-ca.pem."),
]


@app.callback()
def reached(
    context: typer.Context, server: Server = "", token_file: TokenFile = None, ca: CaFile = None
) -> None:
    """Every verb of the REST API, on a daemon anywhere.

    Exit code 0: done; 1: refused or failed; 2: the input is wrong; 3: written down, another person
    has to approve it.
    """
    context.obj = (server, token_file, ca)


def client(context: typer.Context) -> ApiClient:
    """As the options before the command say. Raises InputError."""
    server, token_file, ca = context.obj
    if not server:
        remedy = "Give `remote --server https://HOST:8443`, or set PROVISIONER_SERVER."
        raise InputError("--server", "", "it is not given", remedy)
    if token_file is None:
        remedy = "Give `remote --token-file FILE`, or set PROVISIONER_TOKEN_FILE."
        raise InputError("--token-file", "", "it is not given", remedy)
    token = read_text(token_file).strip()
    if not token.isascii() or not token.isprintable() or not token:
        remedy = "Write one token of `provisioner token create` into it."
        raise InputError("--token-file", str(token_file), "it holds no token", remedy)
    return ApiClient(server, Secret(token), ca)


def command(route: Route) -> Callable[..., None]:
    """The function whose signature is a route: typer makes options of it."""
    words = WORD.findall(route.path)

    def run(context: typer.Context, **given: Any) -> None:
        path = WORD.sub(lambda found: quote(given[found[1]], safe=":"), route.path)
        query = {n: _text(given[n]) for n in _fields(route.query) if given.get(n) is not None}
        body = None if route.body is None else _body(route.body, given)
        if route.media == "text/event-stream":
            asyncio.run(_streamed(client(context), path, query, as_json=given["as_json"]))
            return
        if route.changes and not given["yes"] and sys.stdin.isatty():
            typer.confirm(
                f"{route.summary.rstrip('.')}: {' '.join(given[w] for w in words)}?", abort=True
            )
        headers = {"If-Match": given["if_match"]} if given.get("if_match") else {}
        wait = bool(given.get("wait"))
        answer = asyncio.run(_asked(client(context), route, path, query, body, headers, wait))
        _tell(answer, given)

    run.__name__, run.__doc__ = route.name, route.summary
    shape = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)]
    shape += [_argument(word) for word in words]
    shape += [_option(n, f) for n, f in _fields(route.query).items() if n not in words]
    if route.body is not None:
        taken = {p.name for p in shape}
        shape += [_option(n, f) for n, f in _scalars(route.body).items() if n not in taken]
    shape += _common(route)
    run.__signature__ = inspect.Signature(shape)  # type: ignore[attr-defined]  # typer reads it
    run.__annotations__ = {p.name: p.annotation for p in shape}
    return run


def _fields(model: type[Record]) -> dict[str, FieldInfo]:
    return dict(model.model_fields)


def _scalars(model: type[Record]) -> dict[str, FieldInfo]:
    """Those fields of a body that an option can give; --body gives all."""
    return {n: f for n, f in model.model_fields.items() if _kind(f.annotation) is not None}


def _kind(annotation: Any) -> Any:
    """What typer is to read for a field: a scalar, a list of words, or None for all else."""
    parts = [a for a in get_args(annotation) if a is not NoneType]
    origin = get_origin(annotation)
    if origin in (Union, UnionType) and len(parts) == 1:
        return _kind(parts[0])
    if origin in (tuple, list) and _kind(parts[0]) is str:
        return list[str]
    if origin is Literal or (isinstance(annotation, type) and issubclass(annotation, StrEnum)):
        return str  # the server knows the words, and says so
    return annotation if annotation in SCALARS else None


def _argument(word: str) -> inspect.Parameter:
    annotation = Annotated[str, typer.Argument(metavar=word.upper(), show_default=False)]
    return inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


def _option(name: str, field: FieldInfo) -> inspect.Parameter:
    """Without a default of its own: what is not given is left to the server."""
    kind = _kind(field.annotation) or str
    flag = "--" + name.replace("_", "-")
    said = typer.Option(flag, help=field.description or None, show_default=False)
    annotation = Annotated[kind | None, said]  # type: ignore[valid-type]  # made of data
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _common(route: Route) -> list[inspect.Parameter]:
    """--json everywhere, --out for what is no JSON; for changes --body, --wait and so on."""
    wanted: list[tuple[str, Any, Any]] = []
    if route.body is not None:
        told = "JSON of the whole body; - reads it from the standard input. Options go before it."
        wanted.append(("body", None, Annotated[str | None, typer.Option("--body", help=told)]))
    if route.changes:
        told = "Follow it until it is over."
        wanted.append(("wait", True, Annotated[bool, typer.Option("--wait/--no-wait", help=told)]))
        told = "Do not ask whether it is meant."
        wanted.append(("yes", False, Annotated[bool, typer.Option("--yes", help=told)]))
    if route.entity and route.changes:
        told = "ETag of what you decided on: refused if it changed since."
        wanted.append(("if_match", "", Annotated[str, typer.Option("--if-match", help=told)]))
    if "json" not in route.media and route.media != "text/event-stream":
        told = "File to write what comes into."
        wanted.append(("out", None, Annotated[Path | None, typer.Option("--out", help=told)]))
    told = "JSON for machines."
    wanted.append(("as_json", False, Annotated[bool, typer.Option("--json", help=told)]))
    keyword = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(n, keyword, default=d, annotation=a) for n, d, a in wanted]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _body(model: type[Record], given: dict[str, Any]) -> Any:
    raw = given.get("body")
    told: Any = {}
    if raw is not None:
        text = sys.stdin.read() if raw == "-" else read_text(Path(raw))
        try:
            told = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError("--body", raw, f"it is no JSON: {error}", "Correct it.") from None
    if not isinstance(told, dict):
        raise InputError("--body", str(raw), "it is no JSON object", "Write {...}.")
    more = {n: given[n] for n in _scalars(model) if given.get(n) not in (None, [])}
    return {**told, **more}


async def _asked(
    reach: ApiClient,
    route: Route,
    path: str,
    query: dict[str, str],
    body: Any,
    headers: dict[str, str],
    wait: bool,
) -> Answer:
    async with reach:
        answer = await reach.ask(route.verb, PREFIX + path, query, body, headers)
        return await followed(reach, answer) if wait and answer.status == 202 else answer


async def _streamed(reach: ApiClient, path: str, query: dict[str, str], *, as_json: bool) -> None:
    async with reach:
        async for frame in reach.stream(PREFIX + path, query):
            show_event(frame, as_json=as_json)


def _tell(answer: Answer, given: dict[str, Any]) -> None:
    if not answer.good:
        show_problem(answer, as_json=given["as_json"])
        raise typer.Exit(2 if answer.status in (400, 422) else 1)
    out = given.get("out")
    if answer.document is None and answer.content:
        if out is None:
            sys.stdout.buffer.write(answer.content)
        else:
            out.write_bytes(answer.content)
        return
    show(answer.document, as_json=given["as_json"])
    state = answer.document.get("state") if isinstance(answer.document, dict) else None
    if answer.status == 202 and state == "waiting":
        raise typer.Exit(NEEDS_OVER)
    if answer.location.startswith(f"{PREFIX}/operations/") and state not in (
        "done",
        "running",
        "unfinished",
        "dry_run",
    ):
        raise typer.Exit(1)


for _route in table.ALL:
    if _route.name not in NOT_HERE:
        _name = _route.name.replace("_", "-")
        app.command(_name, help=_route.summary, rich_help_panel=_route.tag)(command(_route))
