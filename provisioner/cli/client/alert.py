"""`provisioner alert`: what stands against nodes, and what a person decides about it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from provisioner.cli.options.data_options import (
    DataOption,
    JsonOption,
    console,
    node_of,
    show_table,
    with_data,
)
from provisioner.daemon.data import Data
from provisioner.model.alert import ANY, Alert, Override
from provisioner.model.input_error import InputError
from provisioner.planning.watch import alerts as rules
from provisioner.runtime.site_clock import site_clock
from provisioner.store.repositories.alert_rows import AlertRows

app = typer.Typer(
    help="Alerts of nodes: list, show, override for a time, clear.", no_args_is_help=True
)
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="As listed; * for all.")]
TargetOption = Annotated[str, typer.Option("--target", help="One part; without it: all.")]
ByOption = Annotated[str, typer.Option("--by", help="Who decides this; it is kept for good.")]
WhyOption = Annotated[str, typer.Option("--why", help="The reason; it is kept for good.")]


@app.command("list")
def list_alerts(
    node: Annotated[str, typer.Option("--node", help="Of this node only.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="With --node: cleared ones too.")] = False,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """Alerts that stand."""

    async def read(opened: Data) -> tuple[list[Alert], list[Override]]:
        book = AlertRows(opened.store)
        if node:
            await node_of(opened, node)
        found = [a for a in await book.alerts(node) if a.active or all_]
        return found, list(await book.overrides(node))

    alerts, overrides = with_data(data, read)
    now = site_clock(data).now()
    if as_json:
        typer.echo(json.dumps([_document(a, overrides, now) for a in alerts]))
        return
    table = Table(
        "node", "alert", "target", "classifications", "since", "count", "standing", "says"
    )
    for alert in alerts:
        row = (
            alert.node,
            alert.id,
            alert.target or "–",
            ", ".join(alert.classifications),
            _minute(alert.since),
            str(alert.count),
            _standing(alert, overrides, now),
            alert.message,
        )
        table.add_row(*(_shown(word) for word in row))
    show_table(table, "There is no such alert.")


@app.command()
def show(
    node: str,
    ident: IdArgument,
    target: TargetOption = ANY,
    data: DataOption = Path("var"),
    as_json: JsonOption = False,
) -> None:
    """One alert with all that is known of it, also when it is over."""

    async def read(opened: Data) -> tuple[list[Alert], list[Override]]:
        book = AlertRows(opened.store)
        return await _chosen(opened, book, node, ident, target), list(await book.overrides(node))

    alerts, overrides = with_data(data, read)
    now = site_clock(data).now()
    if as_json:
        typer.echo(json.dumps([_document(a, overrides, now) for a in alerts]))
        return
    for alert in alerts:
        table = Table(show_header=False, box=None)
        over = rules.overridden(alert, overrides, now)
        rows = {
            "alert": f"{alert.node} {alert.id} {alert.target}",
            "classifications": ", ".join(alert.classifications) or "none",
            "says": alert.message,
            "source": alert.source,
            "since": _minute(alert.since),
            "last": f"{_minute(alert.last_at)}, {alert.count} reports",
            "raised": ", ".join(_minute(at) for at in alert.raises),
            "standing": _standing(alert, overrides, now),
            "cleared": f"{_minute(alert.cleared_at)}: {alert.cleared_why}"
            if not alert.active
            else "",
            "override": f"by {over.by} until {_minute(over.until)}: {over.why}" if over else "",
        }
        for word, said in rows.items():
            if said:
                table.add_row(word, _shown(said))
        console().print(table)


@app.command()
def override(
    node: str,
    ident: IdArgument,
    by: ByOption,
    why: WhyOption,
    hours: Annotated[float, typer.Option("--hours", min=0.01, help="For how long.")],
    target: TargetOption = ANY,
    data: DataOption = Path("var"),
) -> None:
    """Take the effect of an alert away for a time: it revokes nothing and holds nothing back.

    It also counts for alerts that come later. A certificate that was revoked stays revoked.
    """
    now = site_clock(data).now()
    if hours * 3600 > rules.OVERRIDE_MAX_S:
        problem = f"this is longer than {rules.OVERRIDE_MAX_S / 86400:.0f} days"
        remedy = "What is right for good belongs into the matrix."
        raise InputError("--hours", f"{hours:g}", problem, remedy)
    _worded(by, why)
    until = now + hours * 3600
    made = Override(node=node, id=ident, target=target, by=by, why=why, made_at=now, until=until)

    async def apply(opened: Data) -> None:
        await node_of(opened, node)
        await AlertRows(opened.store).put_override(made)
        detail = {"request": "override", **made.model_dump(mode="json")}
        await opened.store.journal("request", node, detail, now)

    with_data(data, apply)
    typer.echo(f"{node}: {ident} has no effect until {_minute(until)}")


@app.command()
def clear(
    node: str,
    ident: IdArgument,
    by: ByOption,
    why: WhyOption,
    target: TargetOption = ANY,
    data: DataOption = Path("var"),
) -> None:
    """Say that an alert is over. It is raised again when it is seen again."""
    now = site_clock(data).now()
    _worded(by, why)

    async def apply(opened: Data) -> int:
        book = AlertRows(opened.store)
        chosen = await _chosen(opened, book, node, ident, target)
        over = [c for a in chosen if (c := rules.cleared(a, now, f"{by}: {why}")) is not None]
        rows = [
            ("request", node, {"request": "clear", "id": a.id, "target": a.target,
                               "by": by, "why": why})
            for a in over
        ]  # fmt: skip
        await book.put_alerts(over, rows, now)
        return len(over)

    typer.echo(f"{node}: {with_data(data, apply)} alerts are cleared")


async def _chosen(opened: Data, book: AlertRows, node: str, ident: str, target: str) -> list[Alert]:
    await node_of(opened, node)
    found = [
        a for a in await book.alerts(node) if ident in (ANY, a.id) and target in (ANY, a.target)
    ]
    if not found:
        remedy = f"See `provisioner alert list --node {node} --all`."
        raise InputError(node, ident, "there is no such alert", remedy)
    return found


def _worded(by: str, why: str) -> None:
    for option, said in (("--by", by), ("--why", why)):
        if not said.strip() or len(said) > 200 or not said.isprintable():
            raise InputError(option, "", "says nothing, or too much", "Write one short line.")


def _document(alert: Alert, overrides: list[Override], now: float) -> dict[str, object]:
    over = rules.overridden(alert, overrides, now)
    return {
        **alert.model_dump(mode="json"),
        "active": alert.active,
        "override": None if over is None else over.model_dump(mode="json"),
    }


def _standing(alert: Alert, overrides: list[Override], now: float) -> str:
    if not alert.active:
        return "over"
    over = rules.overridden(alert, overrides, now)
    words = "flapping" if alert.flapping else "stands"
    return f"{words}, overridden until {_minute(over.until)}" if over else words


def _shown(said: str) -> Text:
    """What was told from outside, without what moves a terminal's cursor."""
    return Text("".join(c if c.isprintable() else "\ufffd" for c in said))


def _minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
