"""`provisioner webhook`: who is told of what happens (docs/integrations/webhooks.md).

The daemon sends; these commands write down to whom. They work beside a running daemon.
"""

from __future__ import annotations

import json
import secrets
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.options.data_options import DataOption, JsonOption, show_table, with_data
from provisioner.daemon.data import Data, read_text
from provisioner.model.input_error import InputError
from provisioner.model.webhook import Standing, Webhook, secret_name
from provisioner.planning.watch.webhooks import check, event_id, key_of, secret_of
from provisioner.ports import Secret
from provisioner.runtime.site_clock import site_clock
from provisioner.store.repositories.webhook_rows import WebhookRows

app = typer.Typer(help="Webhooks: add, list, and what could not be told.", no_args_is_help=True)
By = Annotated[str, typer.Option("--by", help="Who asks, for the journal.")]
Seq = Annotated[int | None, typer.Option("--seq", min=1, help="Only this one; all without.")]
KEY_BYTES = 32


@app.command()
def add(
    name: str,
    url: Annotated[str, typer.Option("--url", help="Where events are posted: https://...")],
    kind: Annotated[list[str] | None, typer.Option(help="Globs of kinds; repeatable.")] = None,
    node: Annotated[list[str] | None, typer.Option(help="Globs of nodes; repeatable.")] = None,
    tenant: Annotated[str, typer.Option(help="Only notices to this tenant.")] = "",
    ca_file: Annotated[Path | None, typer.Option(help="CAs of its certificate.")] = None,
    secret_file: Annotated[
        Path | None, typer.Option(help="whsec_...; one is made without.")
    ] = None,
    after: Annotated[
        int | None, typer.Option(min=0, help="From after this row on, not now.")
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Allow http.")] = False,
    by: By = "",
    data: DataOption = Path("var"),
) -> None:
    """Add one, and show its secret once; the receiver verifies signatures with it."""
    now = site_clock(data).now()
    kinds, nodes = tuple(kind or ("*",)), tuple(node or ("*",))
    ca = "" if ca_file is None else _authorities(ca_file)
    made = Webhook(name=name, url=url, kinds=kinds, nodes=nodes, tenant=tenant, ca=ca, made_at=now)
    webhook = check(made, plain=plain)
    secret = _secret(secret_file)

    async def keep(opened: Data) -> None:
        if tenant and not any(t.name == tenant for t in await opened.store.tenants()):
            remedy = "See `provisioner tenant list`."
            raise InputError("--tenant", tenant, "there is no such tenant", remedy)
        book = WebhookRows(opened.store)
        if any(s.webhook.name == name for s in await book.webhooks()):
            raise InputError(name, "", "there is one of this name", "Remove it first.")
        # the secret first: a crash in between leaves a secret that opens nothing
        await opened.vault.put(secret_name(name), name, Secret(secret))
        await book.add(webhook, after, by)

    with_data(data, keep)
    if secret_file is None:
        typer.echo(secret)


@app.command("list")
def list_webhooks(data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """All, and how far each of them is."""
    found = with_data(data, lambda d: WebhookRows(d.store).webhooks())
    if as_json:
        typer.echo(
            json.dumps([s.model_dump(mode="json", exclude={"webhook": {"ca"}}) for s in found])
        )
        return
    table = Table("webhook", "url", "kinds", "nodes", "waiting", "dead", "told", "last", "standing")
    for s in found:
        w = s.webhook
        last = _time(s.delivered_at) if s.delivered_at else "–"
        kinds = f"notices to {w.tenant}" if w.tenant else " ".join(w.kinds)
        words = (w.name, w.url, kinds, " ".join(w.nodes), s.pending, s.dead, s.delivered, last)
        table.add_row(*(Text(str(word)) for word in (*words, _standing(s))))
    show_table(table, "There is no webhook yet: `provisioner webhook add URL` adds one.")


@app.command()
def dead(name: str, data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """What it could not be told of, and why. Exit code 1 if there is anything."""

    async def read(opened: Data) -> object:
        await _found(opened, name)
        return await WebhookRows(opened.store).dead(name)

    found = with_data(data, read)
    assert isinstance(found, tuple)
    if as_json:
        rows = [{**d.model_dump(mode="json"), "event": r.model_dump(mode="json")} for d, r in found]
        typer.echo(json.dumps(rows))
    else:
        table = Table("row", "event", "time", "kind", "node", "tries", "why")
        for d, r in found:
            words = (d.seq, event_id(r), _time(r.at), r.kind, r.node or "–", d.tries, d.error)
            table.add_row(*(Text(str(word)) for word in words))
        show_table(table, "Nothing is waiting that could not be sent.")
    raise typer.Exit(1 if found else 0)


@app.command()
def again(name: str, seq: Seq = None, data: DataOption = Path("var")) -> None:
    """Send what is dead once more, with the same ids."""
    now = site_clock(data).now()

    async def work(opened: Data) -> int:
        await _found(opened, name)
        return await WebhookRows(opened.store).revive(name, seq, now)

    typer.echo(f"{name}: {with_data(data, work)} are sent again")


@app.command()
def drop(name: str, seq: Seq = None, by: By = "", data: DataOption = Path("var")) -> None:
    """Let go of what is dead; the journal keeps it."""
    now = site_clock(data).now()

    async def work(opened: Data) -> int:
        await _found(opened, name)
        return await WebhookRows(opened.store).bury(name, seq, by, now)

    typer.echo(f"{name}: {with_data(data, work)} dropped")


@app.command()
def pause(
    name: str,
    why: Annotated[str, typer.Option("--why", help="For whoever looks.")],
    data: DataOption = Path("var"),
) -> None:
    """Send nothing to it; what happens meanwhile waits."""
    if not why.strip():
        raise InputError("--why", "", "there is no reason", "Say why.")
    _pause(name, why.strip()[:200], data)


@app.command()
def resume(name: str, data: DataOption = Path("var")) -> None:
    """Send to it again, what waits first."""
    _pause(name, "", data)


@app.command()
def rotate(
    name: str,
    done: Annotated[bool, typer.Option("--done", help="The receiver knows the new one.")] = False,
    data: DataOption = Path("var"),
) -> None:
    """Make a new secret and show it; both sign until `--done`."""
    key = secret_name(name)

    async def work(opened: Data) -> str:
        await _found(opened, name)
        pending = await opened.vault.pending(key)
        if done and pending is None:
            remedy = f"Run `provisioner webhook rotate {name}` first."
            raise InputError(name, "", "there is no new secret", remedy)
        if done:
            await opened.vault.confirm(key)
            return f"{name}: only the new secret signs"
        if pending is None:
            pending = (name, Secret(_secret(None)))
            await opened.vault.begin(key, *pending)
        return pending[1].reveal()

    typer.echo(with_data(data, work))


@app.command()
def remove(name: str, by: By = "", data: DataOption = Path("var")) -> None:
    """Tell it nothing any more, and forget what waits for it."""
    now = site_clock(data).now()

    async def work(opened: Data) -> None:
        await _found(opened, name)
        await WebhookRows(opened.store).remove(name, by, now)
        await opened.vault.remove(secret_name(name))

    with_data(data, work)
    typer.echo(f"{name}: removed")


def _pause(name: str, why: str, data: Path) -> None:
    now = site_clock(data).now()

    async def work(opened: Data) -> None:
        await _found(opened, name)
        await WebhookRows(opened.store).pause(name, why, now)

    with_data(data, work)
    typer.echo(f"{name}: {'paused' if why else 'sent to again'}")


async def _found(opened: Data, name: str) -> Standing:
    for standing in await WebhookRows(opened.store).webhooks():
        if standing.webhook.name == name:
            return standing
    raise InputError(name, "", "there is no such webhook", "See `provisioner webhook list`.")


def _secret(file: Path | None) -> str:
    if file is None:
        return secret_of(secrets.token_bytes(KEY_BYTES))
    text = read_text(file).strip()
    try:
        return secret_of(key_of(text))
    except ValueError as error:
        remedy = "Write whsec_ and 24 to 64 bytes in base64."
        raise InputError(str(file), "", str(error), remedy) from None


def _authorities(file: Path) -> str:
    text = read_text(file)
    try:
        ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError):
        remedy = "Name a PEM file of CA certificates."
        raise InputError("--ca-file", str(file), "there is no certificate in it", remedy) from None
    return text


def _standing(s: Standing) -> str:
    if s.webhook.paused_why:
        return f"paused: {s.webhook.paused_why}"
    return "dead letters" if s.dead else "good"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
