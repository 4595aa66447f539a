"""`provisioner token`: local tokens for the REST API. They are shown once, and kept as digests."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.access.tokens import new_token
from provisioner.cli.options.data_options import DataOption, JsonOption, show_table, with_data
from provisioner.daemon.data import Data
from provisioner.model.access import Role, Token
from provisioner.model.input_error import InputError
from provisioner.runtime.site_clock import site_clock
from provisioner.store.rows import token_rows

app = typer.Typer(help="Tokens for the REST API: create, list, revoke.", no_args_is_help=True)


@app.command()
def create(
    subject: Annotated[str, typer.Option("--subject", help="The person or program it is for.")],
    role: Annotated[Role, typer.Option("--role", help="What it may do (docs/access.md).")],
    tenant: Annotated[str, typer.Option("--tenant", help="With the role tenant: whose.")] = "",
    days: Annotated[float, typer.Option("--days", help="Until it expires, at most 366.")] = 90.0,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Make a token and show it once; only its SHA-256 is kept."""
    now = site_clock(data).now()
    token, record = new_token(subject, role, tenant, days, now)

    async def keep(opened: Data) -> None:
        if tenant and not any(t.name == tenant for t in await opened.store.tenants()):
            remedy = "See `provisioner tenant list`."
            raise InputError("--tenant", tenant, "there is no such tenant", remedy)
        await opened.store.write(partial(token_rows.add_token, token=record, now=now))

    with_data(data, keep)
    if as_json:
        typer.echo(json.dumps({"token": token, **_document(record, now)}))
        return
    typer.echo(token)
    typer.echo(f"{record.id}: {role} {subject}, until {_day(record.expires_at)}", err=True)


@app.command("list")
def list_tokens(data: DataOption = Path("var"), as_json: JsonOption = False) -> None:
    """All tokens, without what opens anything."""
    now = site_clock(data).now()
    rows = with_data(data, lambda d: d.store.read(token_rows.read_tokens))
    if as_json:
        typer.echo(json.dumps([_document(t, now) for t in rows]))
        return
    table = Table("token", "subject", "role", "tenant", "made", "expires", "standing")
    for t in rows:
        words = (t.id, t.subject, t.role, t.tenant or "–", _day(t.made_at), _day(t.expires_at))
        table.add_row(*(Text(str(word)) for word in (*words, _standing(t, now))))
    show_table(table, "There is no token yet: `provisioner token create` makes one.")


@app.command()
def revoke(token_id: str, data: DataOption = Path("var")) -> None:
    """From now on this token lets nobody in; its event streams end within seconds."""
    work = partial(token_rows.revoke_token, token_id=token_id, now=site_clock(data).now())
    found = with_data(data, lambda d: d.store.write(work))
    if found is None:
        remedy = "See `provisioner token list`."
        raise InputError(token_id, "", "there is no such token", remedy)
    typer.echo(f"{found.id}: revoked")


def _document(token: Token, now: float) -> dict[str, object]:
    told = token.model_dump(mode="json", exclude={"sha256"})
    return {**told, "standing": _standing(token, now)}


def _standing(token: Token, now: float) -> str:
    if token.revoked_at:
        return f"revoked {_day(token.revoked_at)}"
    return "good" if token.good(now) else "expired"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
